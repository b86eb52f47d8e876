/** The result of the gate: the checks of a version before it may go live. */

import { h, sentence, spoken } from "../app/dom.js";
import { moment } from "../app/format.js";

export const hasPassed = (gate) => gate.checks.every((check) => check.passed || (gate.forced && ["metric", "overlap"].includes(check.name)));

/** One word for a table. */
export const gateWord = (gate) => (!gate ? "not checked" : hasPassed(gate) ? "passed" : "failed");

/** The checks of a report as a list. */
export function gateReport(gate) {
  if (!gate) return sentence("It was not checked yet. Activating it runs the checks first.");
  return h("div", {},
    h("p", { class: "hint" }, `Checked ${moment(gate.time)}${gate.forced ? ", with force" : ""}.`),
    h("ul", { class: "checks" }, gate.checks.map((check) => h("li", { class: check.passed ? null : "failed" },
      h("span", { class: "mark", "aria-hidden": "true" }, check.passed ? "✓" : "✗"),
      h("span", { class: "name" }, check.name, spoken(check.passed ? " passed: " : " failed: ")),
      h("span", { class: "words" }, check.words)))));
}
