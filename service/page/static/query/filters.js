/** Filters from the fields of the catalog; docs/filters.md describes the object that they write. */

import { catalog, labelOf } from "../app/catalog.js";
import { button, fill, h } from "../app/dom.js";
import { change, state } from "../app/state.js";
import { editorOf, isEditable } from "./condition.js";

/** The names that combine conditions; all other names are fields. */
const COMBINING = ["all", "any", "not"];

/** A text that identifies the version and the filter of the controls. */
const mark = (filter) => JSON.stringify([catalog.version, filter]);

function hintOf(name, field) {
  if (field || COMBINING.includes(name)) return "From the address; it can be removed here.";
  return catalog.version === null ? "Loading…" : "The live version has no such field. Remove this filter.";
}

const legendOf = (name, field) => (field?.unit ? `${labelOf(name)} (${field.unit})` : labelOf(name));

export function createFilters() {
  const rows = h("div", { class: "rows" });
  const adder = h("select", { id: "filter-add" });
  let names = [];
  let written = null;

  const conditionOf = (name) => (Object.hasOwn(state.filter, name) ? state.filter[name] : {});

  function write(name, condition) {
    const filter = { ...state.filter, [name]: condition }; // no assignment: a field may be called __proto__
    if (condition === null || !Object.keys(condition).length) delete filter[name];
    written = mark(filter);
    change({ filter });
  }

  function remove(name) {
    names = names.filter((other) => other !== name);
    write(name, null);
    draw();
    adder.focus();
  }

  function row(name) {
    const field = catalog.fields.find((each) => each.name === name);
    const drop = button("×", () => remove(name), { class: "icon", "aria-label": `Remove the filter of ${labelOf(name)}`, title: "Remove" });
    if (!field || !isEditable(conditionOf(name), field)) {
      return h("fieldset", { class: "condition" }, h("legend", {}, legendOf(name, field)), drop,
        h("p", { class: "hint" }, hintOf(name, field)),
        h("code", {}, JSON.stringify(conditionOf(name))));
    }
    return h("fieldset", { class: "condition" }, h("legend", {}, legendOf(name, field)), drop,
      editorOf(field, conditionOf(name), (condition) => write(name, condition)));
  }

  function draw() {
    fill(rows, names.map(row));
    const free = catalog.fields.filter((field) => !names.includes(field.name) && !COMBINING.includes(field.name));
    fill(adder, h("option", { value: "" }, catalog.fields.length ? (free.length ? "Add a filter…" : "No more fields") : "The catalog has no fields"),
      free.map((field) => h("option", { value: field.name }, labelOf(field.name))));
    adder.disabled = !free.length;
  }

  adder.addEventListener("change", () => {
    if (!adder.value) return;
    names = [...names, adder.value];
    draw();
    rows.lastElementChild?.querySelector("input, select")?.focus();
  });

  function update() {
    const now = mark(state.filter);
    if (now === written) return;
    written = now;
    names = Object.keys(state.filter);
    draw();
  }

  const element = h("div", { class: "control", role: "group", "aria-label": "Filters" },
    h("label", { for: "filter-add", class: "control-name" }, "Filters"),
    h("p", { class: "hint" }, "Only items whose fields fulfil every condition."), rows, adder);
  return { element, update };
}
