/** Pins: items with a position of their own in the answer; docs/rules.md describes them. */

import { lookUp, nameOfId } from "../app/catalog.js";
import { button, fill, h, newId } from "../app/dom.js";
import { change, state } from "../app/state.js";

/** Pin an item at a position, in place of the pin that has it. */
export function pinItem(item, position) {
  const others = state.pin.filter((pin) => pin.item !== String(item) && pin.position !== position);
  change({ pin: [...others, { item: String(item), position }].slice(-20) });
}

export function unpinItem(item) {
  change({ pin: state.pin.filter((pin) => pin.item !== String(item)) });
}

export function createPins() {
  const rows = h("ul", { class: "rows" });
  let drawn = null;

  function row({ item, position }) {
    const id = newId("pin");
    const input = h("input", { id, type: "number", min: "1", max: "1000", step: "1", value: position });
    input.addEventListener("change", () => input.value && input.validity.valid && pinItem(item, Number(input.value)));
    const name = h("span", {}, nameOfId(item));
    lookUp([item]).then(() => { name.textContent = nameOfId(item); }, () => {});
    return h("li", { class: "cap-row", "data-id": item }, h("label", { for: id }, "Position"), input, name,
      button("×", () => unpinItem(item), { class: "icon", "aria-label": `Remove the pin of ${nameOfId(item)}`, title: "Remove" }));
  }

  function update() {
    const now = JSON.stringify(state.pin);
    if (now === drawn) return;
    drawn = now;
    fill(rows, [...state.pin].sort((a, b) => a.position - b.position).map(row));
  }

  const element = h("div", { class: "control", role: "group", "aria-label": "Pins" }, h("span", { class: "control-name" }, "Pins"),
    h("p", { class: "hint" }, "“Pin” beside an item of the answer keeps it at its position."), rows);
  return { element, update };
}
