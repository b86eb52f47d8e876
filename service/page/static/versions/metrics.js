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

/** Two metrics for a table of versions: NDCG, and recall or hit rate (which are equal for one target a user), at 10 if they are. */
export function mainMetrics(versions) {
  const names = [...new Set(versions.flatMap((version) => [...flatMetrics(version.metrics).keys()]))];
  const liked = [["ndcg"], ["recall", "hr"]].flatMap((kinds) => {
    const fitting = kinds.flatMap((kind) => names.filter((name) => name.includes(`${kind}@`)));
    return fitting.find((name) => name.endsWith("@10")) ?? fitting[0] ?? [];
  });
  return liked.length ? liked : names.slice(0, 2);
}

/** The recall of an index as [what, recall]. */
export function recallRows(recall) {
  return new Map((recall ?? []).map((point) =>
    [`best ${point.k} among ${point.selectivity === 1 ? "all items" : `a share of ${point.selectivity}`}`, point.recall]));
}
