/** Boosts: numbers that are added to the scores of the items with some value of a field; docs/rules.md describes them. */

import { catalog, labelOf } from "../app/catalog.js";
import { button, fill, h, newId } from "../app/dom.js";
import { change, state } from "../app/state.js";
import { editorOf, isEditable } from "./condition.js";

const MOST = 10;
const mark = (boost) => JSON.stringify([catalog.version, boost]);

export function createBoosts() {
  const rows = h("div", { class: "rows" });
  const adder = h("select", { id: "boost-add" });
  let written = null;

  function write(boost) {
    written = mark(boost);
    change({ boost });
  }

  function row({ filter, by }, place) {
    const set = (patch) => write(state.boost.map((each, other) => (other === place ? { ...each, ...patch } : each)));
    const [name, condition] = Object.entries(filter)[0] ?? ["", {}];
    const field = catalog.fields.find((each) => each.name === name);
    const id = newId("boost");
    const input = h("input", { id, type: "number", min: "-1000", max: "1000", step: "any", value: by });
    input.addEventListener("input", () => input.value !== "" && input.validity.valid && set({ by: Number(input.value) }));
    const remove = () => {
      change({ boost: state.boost.filter((_, other) => other !== place) });
      adder.focus();
    };
    const isShown = field && Object.keys(filter).length === 1 && isEditable(condition, field);
    return h("fieldset", { class: "condition" }, h("legend", {}, labelOf(name)),
      button("×", remove, { class: "icon", "aria-label": `Remove the boost of ${labelOf(name)}`, title: "Remove" }),
      h("div", { class: "cap-row" }, h("label", { for: id }, "Add to the score"), input),
      isShown ? editorOf(field, condition, (next) => set({ filter: { [name]: next } })) : h("code", {}, JSON.stringify(filter)));
  }

  function draw() {
    fill(rows, state.boost.map(row));
    const free = catalog.fields.filter((field) => !["mixed", "none"].includes(field.kind));
    const isFull = !free.length || state.boost.length >= MOST;
    fill(adder, h("option", { value: "" }, free.length ? (isFull ? "No more boosts" : "Add a boost…") : "The catalog has no fields"),
      free.map((field) => h("option", { value: field.name }, labelOf(field.name))));
    adder.disabled = isFull;
  }

  adder.addEventListener("change", () => adder.value && change({ boost: [...state.boost, { filter: { [adder.value]: {} }, by: 1 }] }));

  function update() {
    const now = mark(state.boost);
    if (now === written) return;
    written = now;
    draw();
  }

  const element = h("div", { class: "control", role: "group", "aria-label": "Boosts" },
    h("label", { for: "boost-add", class: "control-name" }, "Boosts"),
    h("p", { class: "hint" }, "Adds a number to the score of items with a value; below 0 it buries them."), rows, adder);
  return { element, update };
}
