/** The controls of a recommendation: each has a sentence on its effect. */

import { h } from "../app/dom.js";
import { change, DEFAULTS, state } from "../app/state.js";
import { createBoosts } from "./boosts.js";
import { createCaps } from "./caps.js";
import { createFilters } from "./filters.js";
import { createPins } from "./pins.js";

const control = (input, name, hint, { extra, wrong } = {}) => {
  input.setAttribute("aria-describedby", `${input.id}-hint`);
  return h("div", { class: "control" }, h("label", { for: input.id, class: "control-name" }, name), extra,
    h("p", { class: "hint", id: `${input.id}-hint` }, hint), input, wrong);
};

/** A sentence below a number that can't be used, in the words of the browser. */
function checked(input) {
  const wrong = h("p", { class: "sentence warning", role: "status" });
  const check = () => {
    wrong.textContent = input.validity.valid ? "" : `${input.validationMessage} The answer keeps the last number.`;
  };
  input.addEventListener("input", check);
  return { wrong, check };
}

export function createControls() {
  const k = h("input", { id: "k", type: "number", min: "1", max: "1000", step: "1", required: true });
  k.addEventListener("input", () => k.validity.valid && change({ k: Number(k.value) }));
  const diversity = h("input", { id: "diversity", type: "range", min: "0", max: "1", step: "0.05" });
  const shownDiversity = h("output", { for: "diversity" });
  diversity.addEventListener("input", () => change({ diversity: Number(diversity.value) }));
  const minimum = h("input", { id: "min-score", type: "number", step: "any", placeholder: "none" });
  minimum.addEventListener("input", () => minimum.validity.valid && change({ min_score: minimum.value === "" ? null : Number(minimum.value) }));
  const choice = (id, labels) => h("select", { id }, labels.map(([value, label]) => h("option", { value }, label)));
  const among = choice("among", [["all", "All items"], ["new", "New ones: not used in the history"], ["again", "Used ones: again"]]);
  among.addEventListener("change", () => change({ among: among.value }));
  const seen = choice("exclude-seen", [["", "The version’s default"], ["true", "Yes, leave them out"], ["false", "No, they may appear"]]);
  seen.addEventListener("change", () => change({ exclude_seen: seen.value === "" ? null : seen.value === "true" }));
  const [checkedK, checkedMinimum] = [k, minimum].map(checked);
  const parts = [createFilters(), createBoosts(), createPins(), createCaps()];

  const put = (input, value) => {
    if (document.activeElement !== input || input.type === "range") input.value = value;
  };

  function update() {
    put(k, state.k);
    put(diversity, state.diversity);
    shownDiversity.textContent = String(state.diversity ?? DEFAULTS.diversity);
    put(minimum, state.min_score ?? "");
    among.value = state.among;
    seen.value = state.exclude_seen === null ? "" : String(state.exclude_seen);
    for (const { check } of [checkedK, checkedMinimum]) check();
    for (const part of parts) part.update();
  }

  const element = h("div", { class: "controls" },
    control(k, "Number of items", "How many items the answer has, from 1 to 1,000.", checkedK),
    parts.map(({ element: part }) => part),
    control(diversity, "Diversity", "Above 0, an item loses score for its similarity to the items before it.", { extra: shownDiversity }),
    control(minimum, "Minimum score", "Leaves out items below this score. Popular items have counts as scores, so it does not apply to them.", checkedMinimum),
    control(among, "Among", "“For you” has new items, “Buy it again” used ones. A view or a cart of the visit that goes on is no use."),
    control(seen, "Leave out items of the history", "The version’s default is how it was trained and measured."));
  return { element, update };
}
