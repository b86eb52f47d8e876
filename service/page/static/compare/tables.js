/** Metrics, measured recall and facts of two versions. */

import { h, sentence, table } from "../app/dom.js";
import { count, moment, number, signed } from "../app/format.js";
import { flatMetrics, recallRows } from "../versions/metrics.js";

function compared(caption, live, other, [before, after]) {
  const names = [...new Set([...before.keys(), ...after.keys()])];
  if (!names.length) return sentence(`Neither version has figures: ${caption.toLowerCase()}.`);
  return table(caption, ["figure", live.version, other.version, "difference"], names.map((name) => {
    const [a, b] = [before.get(name), after.get(name)];
    const difference = a === undefined || b === undefined ? null : b - a;
    return [name, number(a), number(b), h("span", { class: difference > 0 ? "up" : difference < 0 ? "down" : null }, signed(difference))];
  }));
}

export const metricsTable = (live, other) =>
  compared("Metrics of the evaluation", live, other, [flatMetrics(live.metrics), flatMetrics(other.metrics)]);

export const recallTable = (live, other) =>
  compared("Measured recall of the index", live, other, [recallRows(live.recall), recallRows(other.recall)]);

export function factsTable(live, other) {
  const rows = [["Created", moment, "created"], ["Data until", moment, "data_until"], ["Items", count, "item_count"], ["Dimension", count, "dimension"]];
  return table("Versions", ["fact", live.version, other.version], rows.map(([name, show, key]) => [name, show(live[key]), show(other[key])]));
}
