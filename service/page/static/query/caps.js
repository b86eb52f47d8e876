/** Caps: at most so many items with the same value of a field. */

import { catalog, labelOf } from "../app/catalog.js";
import { button, fill, h, newId } from "../app/dom.js";
import { change, state } from "../app/state.js";

const written = (cap) => JSON.stringify([catalog.version, cap]);

export function createCaps() {
  const rows = h("div", { class: "rows" });
  const adder = h("select", { id: "cap-add" });
  let drawn = null;

  function row([name, most]) {
    const id = newId("cap");
    const input = h("input", { id, type: "number", min: "1", max: "1000", step: "1", value: most });
    input.addEventListener("input", () => {
      if (!input.value || !input.validity.valid) return;
      const cap = { ...state.cap, [name]: Number(input.value) };
      drawn = written(cap);
      change({ cap });
    });
    return h("div", { class: "cap-row" }, h("label", { for: id }, "At most"), input, h("span", {}, `with the same ${labelOf(name)}`),
      button("×", () => change({ cap: Object.fromEntries(Object.entries(state.cap).filter(([other]) => other !== name)) }),
        { class: "icon", "aria-label": `Remove the cap of ${labelOf(name)}`, title: "Remove" }));
  }

  adder.addEventListener("change", () => adder.value && change({ cap: { ...state.cap, [adder.value]: 2 } }));

  function update() {
    const now = written(state.cap);
    if (now === drawn) return;
    drawn = now;
    fill(rows, Object.entries(state.cap).map(row));
    const free = catalog.fields.filter((field) => !Object.hasOwn(state.cap, field.name) && !["mixed", "none"].includes(field.kind));
    const isFull = !free.length || Object.keys(state.cap).length >= 10;
    fill(adder, h("option", { value: "" }, catalog.fields.length ? (isFull ? "No more fields" : "Add a cap…") : "The catalog has no fields"), free.map((field) => h("option", { value: field.name }, labelOf(field.name))));
    adder.disabled = isFull;
  }

  const element = h("div", { class: "control" }, h("label", { for: "cap-add", class: "control-name" }, "Caps"),
    h("p", { class: "hint" }, "Limits how many items share a value, such as a brand."), rows, adder);
  return { element, update };
}
