/** Metrics and measured recall of versions as rows. */

/**
 * Flatten the metrics of a manifest to [name, mean] pairs: those of the towers if it has some, else all.
 * @param {object} metrics
 * @returns {Map<string, number>}
 */
export function flatMetrics(metrics) {
  const found = [];
  const walk = (value, path) => {
    if (typeof value === "number") found.push([path, value]);
    else if (typeof value?.mean === "number") found.push([path, value.mean]);
    else if (value !== null && typeof value === "object" && !Array.isArray(value) && path.length < 5) {
      for (const [name, each] of Object.entries(value)) walk(each, [...path, name]);
    }
  };
  walk(metrics ?? {}, []);
  const ofTowers = found.filter(([path]) => path.at(-2) === "towers" && !path.some((part) => /slice|difference/.test(part)));
  return new Map((ofTowers.length ? ofTowers : found).slice(0, 60)
    .map(([path, value]) => [path.filter((part) => part !== "towers").join(" "), value]));
}

/** The first few metrics for a table of versions. */
export function mainMetrics(versions, most = 2) {
  const names = versions.flatMap((version) => [...flatMetrics(version.metrics).keys()]);
  const unique = [...new Set(names)];
  const liked = unique.filter((name) => /(ndcg|recall|hr)@/.test(name));
  return (liked.length ? liked : unique).slice(0, most);
}

/** The recall of an index as [what, recall]. */
export function recallRows(recall) {
  return new Map((recall ?? []).map((point) =>
    [`best ${point.k} among ${point.selectivity === 1 ? "all items" : `a share of ${point.selectivity}`}`, point.recall]));
}
