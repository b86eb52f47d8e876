/** How the items were found: the plan in words, and the time of each stage. */

import { bar, fill, h, sentence } from "../app/dom.js";
import { count, duration, plural } from "../app/format.js";

const PLANS = {
  index: "The index was searched without further conditions.",
  over_fetch: "The index was searched for more items than asked; those that may not appear were dropped.",
  selector: "The index was searched among the allowed items only.",
  subset: "Every allowed item was scored; that is faster than the index for so few.",
  popularity: "Items were taken by popularity; no vector was searched.",
};
const STAGES = { rows: "look up the history", encode: "encode it", search: "search", answer: "collect the fields" };

/** @param {() => void} onOpen called when an explanation is needed */
export function createPlan(onOpen) {
  const body = h("div", { class: "plan-body" });
  const element = h("details", { id: "plan", class: "fold" }, h("summary", {}, "How they were found"), body);
  let answer = null;
  element.addEventListener("toggle", () => {
    draw();
    if (element.open && answer && !answer.explanation) onOpen();
  });

  function draw() {
    if (!element.open || !answer) return;
    if (!answer.explanation) return void fill(body, sentence("Loading…"));
    const { plan, milliseconds } = answer.explanation;
    const most = Math.max(...Object.values(milliseconds), 1e-9);
    fill(body,
      h("p", {}, PLANS[plan.kind] ?? plan.kind,
        plan.allowed === null ? "" : ` The filter allows ${plural(plan.allowed, "item")}.`,
        ` ${count(plan.fetched)} ${plan.fetched === 1 ? "was" : "were"} examined.`),
      h("ul", { class: "bars", "aria-label": "Time of each stage" }, Object.entries(milliseconds).map(([stage, took]) =>
        h("li", {}, h("span", { class: "bar-name" }, STAGES[stage] ?? stage), bar(took / most), h("span", { class: "figure" }, duration(took / 1e3))))));
  }

  return {
    element,
    get needsExplanation() { return element.open; },
    show(next) { answer = next; draw(); },
  };
}
