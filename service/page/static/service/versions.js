/** The tables of versions and of activations. */

import { settings } from "../app/api.js";
import { button, h, table } from "../app/dom.js";
import { count, moment, number } from "../app/format.js";
import { hashOf, state } from "../app/state.js";
import { gateReport, gateWord } from "../versions/gate.js";
import { flatMetrics, mainMetrics, recallRows } from "../versions/metrics.js";
import { activate } from "../versions/swap.js";

const worst = (recall) => (recall.length ? Math.min(...recallRows(recall).values()) : null);

function actions(version, live) {
  if (version.error || version.version === live || !settings.admin_here) return "";
  return h("div", { class: "buttons" },
    h("a", { href: hashOf({ ...state, view: "compare", version: version.version }), "aria-label": `Compare version ${version.version}` }, "Compare"),
    button("Activate…", () => activate(version), { class: "quiet", "aria-label": `Activate version ${version.version}` }));
}

/** Every version of the folder, newest first. */
export function versionsTable({ live, versions }) {
  const metrics = mainMetrics(versions);
  const name = (version) => [version.version, version.version === live && h("span", { class: "live-mark" }, "live")];
  return table("Versions", ["version", "created", "data until", "items", ...metrics, "worst recall", "gate", ""],
    [...versions].reverse().map((version) => (version.error
      ? [name(version), h("span", { class: "down", title: version.error }, "can’t be read"), ...Array(metrics.length + 5).fill("")]
      : [name(version), moment(version.created), moment(version.data_until), count(version.item_count),
        ...metrics.map((metric) => number(flatMetrics(version.metrics).get(metric))),
        number(worst(version.recall)), gateWord(version.gate), actions(version, live)])), { isNamed: true });
}

/** The gate reports and errors behind the table. */
export function versionDetails({ versions }) {
  return [...versions].reverse().filter((version) => version.error || version.gate).map((version) =>
    h("details", { class: "fold", "data-version": version.version }, h("summary", {}, version.error ? `Why ${version.version} can’t be read` : `Checks of ${version.version}: ${gateWord(version.gate)}`),
      version.error ? h("p", { class: "sentence warning" }, version.error) : gateReport(version.gate)));
}

/** The activations and refusals, newest first. */
export function activationsTable(activations) {
  return table("Activations", ["time", "version", "outcome", "by", "before", "reason"], activations.map((each) => [
    moment(each.time), each.version, `${each.outcome}${each.forced ? " with force" : ""}`, each.who, each.previous ?? "–",
    h("span", { class: "reason" }, each.words || (each.failed ?? []).join(", ") || "–")]), { class: "texts", isNamed: true });
}
