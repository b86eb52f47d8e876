/** Calls of which only the newest counts. */

/**
 * Wrap a call so that a new call aborts the call before; an answer that was overtaken never resolves.
 * @template T
 * @param {(signal: AbortSignal, ...rest: any[]) => Promise<T>} work
 * @returns {((...rest: any[]) => Promise<T>) & {cancel: () => void}}
 */
export function latest(work) {
  let running = null;
  const start = (...rest) => {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    return new Promise((resolve, reject) => {
      work(mine.signal, ...rest).then(
        (answer) => mine === running && !mine.signal.aborted && resolve(answer),
        (error) => mine === running && !mine.signal.aborted && reject(error),
      );
    });
  };
  start.cancel = () => running?.abort();
  return start;
}

/** Call `work` once `milliseconds` after the last of several calls. */
export function debounced(work, milliseconds) {
  let timer = 0;
  return (...rest) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...rest), milliseconds);
  };
}
