/** Metrics, measured recall and catalogs of two versions. */

import { detailLine, nameOf } from "../app/catalog.js";
import { h, sentence, table } from "../app/dom.js";
import { count, moment, number, plural, signed } from "../app/format.js";
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

const examples = (title, items, total) => (items.length ? h("div", {}, h("h3", {}, title), h("ul", { class: "examples" },
  items.map((item) => h("li", {}, nameOf(item), " ", detailLine(item, 2))),
  total > items.length && h("li", { class: "hint" }, `and ${count(total - items.length)} more`))) : null);

export function catalogOf(answer) {
  return h("div", {},
    h("p", {}, `${plural(answer.added, "item")} added, ${count(answer.removed)} removed, ${count(answer.kept)} kept; ${count(answer.changed_fields)} of these have other fields.`),
    h("div", { class: "two" }, examples("Added", answer.added_examples, answer.added), examples("Removed", answer.removed_examples, answer.removed)));
}
