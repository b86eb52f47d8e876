/** The editor of one field's condition, by the kind of the field. */

import { labelOf } from "../app/catalog.js";
import { bar, button, fill, h, newId } from "../app/dom.js";
import { count, number } from "../app/format.js";

const OPERATORS = {
  text: ["equals", "any_of", "none_of", "gte", "lte", "not_null"], texts: ["equals", "any_of", "none_of", "gte", "lte", "not_null"],
  number: ["gte", "lte", "not_null"], numbers: ["gte", "lte", "not_null"], boolean: ["equals", "not_null"],
};

/** Whether the editor of a field shows all of a condition. */
export function isEditable(condition, field) {
  const known = OPERATORS[field.kind] ?? ["not_null"];
  return condition !== null && typeof condition === "object" && !Array.isArray(condition)
    && Object.entries(condition).every(([name, value]) => known.includes(name) && isShown(name, value, field.kind))
    && ["equals", "any_of", "none_of"].filter((name) => Object.hasOwn(condition, name)).length < 2;
}

function isShown(operator, value, kind) {
  if (operator === "not_null") return value === true;
  if (operator.endsWith("_of")) return Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === "string");
  return typeof value === (kind.startsWith("text") ? "string" : kind === "boolean" ? "boolean" : "number");
}

/**
 * Make the controls of a condition.
 * @param {{name: string, kind: string, values?: {value: string, items: number}[]}} field
 * @param {object} condition
 * @param {(condition: object) => void} write
 */
export function editorOf(field, condition, write) {
  let present = { ...condition };
  const set = (patch) => {
    present = Object.fromEntries(Object.entries({ ...present, ...patch }).filter(([, value]) => value !== undefined));
    write(present);
  };
  const editor = { text: texts, texts, number: range, numbers: range, boolean: choice }[field.kind];
  return h("div", { class: "editor" }, editor?.(field, present, set), (field.missing !== 0 || condition.not_null) && notNull(present, set));
}

function notNull(condition, set) {
  const id = newId("filter");
  const box = h("input", { id, type: "checkbox", checked: condition.not_null === true });
  box.addEventListener("change", () => set({ not_null: box.checked ? true : undefined }));
  return h("div", { class: "check" }, box, h("label", { for: id }, "Only items that have a value"));
}

function range(field, condition, set) {
  return h("div", { class: "row tight" }, [["gte", "From", field.minimum], ["lte", "To", field.maximum]].map(([operator, label, bound]) => {
    const id = newId("filter");
    const isText = field.kind.startsWith("text");
    const input = h("input", { id, value: condition[operator] ?? "", autocomplete: "off", ...(isText ? { type: "text" } : { type: "number", step: "any", inputmode: "decimal" }),
      placeholder: bound === undefined || bound === null ? "" : number(bound).replaceAll(",", "") });
    input.addEventListener("input", () => set({ [operator]: input.value === "" || !input.validity.valid ? undefined : isText ? input.value : Number(input.value) }));
    return h("div", {}, h("label", { for: id }, label), input);
  }));
}

function choice(field, condition, set) {
  const id = newId("filter");
  const select = h("select", { id }, [["", "Yes or no"], ["true", "Yes"], ["false", "No"]].map(([value, label]) => h("option", { value }, label)));
  select.value = condition.equals === undefined ? "" : String(condition.equals);
  select.addEventListener("change", () => set({ equals: select.value === "" ? undefined : select.value === "true" }));
  return h("div", {}, h("label", { for: id, class: "spoken" }, `Value of ${labelOf(field.name)}`), select);
}

function texts(field, condition, set) {
  const modeId = newId("filter");
  const mode = h("select", { id: modeId }, h("option", { value: "any_of" }, "is any of"), h("option", { value: "none_of" }, "is none of"));
  if (condition.none_of) mode.value = "none_of";
  let chosen = [...(condition.any_of ?? condition.none_of ?? []), ...(condition.equals === undefined ? [] : [condition.equals])];
  const write = () => set({ equals: undefined, any_of: undefined, none_of: undefined, [mode.value]: chosen.length ? chosen : undefined });
  mode.addEventListener("change", write);
  const toggle = (value, isChosen) => {
    chosen = isChosen ? [...new Set([...chosen, value])] : chosen.filter((other) => other !== value);
    write();
  };
  const values = field.values ?? [];
  return h("div", {}, h("label", { for: modeId, class: "spoken" }, `How ${labelOf(field.name)} is compared`), mode,
    values.length > 0 && choices(field, values, chosen, toggle),
    (values.length === 0 || values.length >= 100 || chosen.some((value) => !values.some((each) => each.value === value)))
      && typed(field, values, chosen, toggle),
    (values.length === 0 || condition.gte !== undefined || condition.lte !== undefined) && range(field, condition, set));
}

function choices(field, values, chosen, toggle) {
  const most = Math.max(...values.map((each) => each.items), 1);
  const chosenFirst = [...values].sort((a, b) => chosen.includes(b.value) - chosen.includes(a.value));
  return h("div", { class: "choices", tabindex: "0", role: "group", "aria-label": `Values of ${labelOf(field.name)}` }, chosenFirst.map(({ value, items }) => {
    const id = newId("filter");
    const box = h("input", { id, type: "checkbox", checked: chosen.includes(value) });
    box.addEventListener("change", () => toggle(value, box.checked));
    return h("div", { class: "check" }, box, h("label", { for: id }, value), bar(items / most, "faint"), h("span", { class: "figure" }, count(items)));
  }));
}

function typed(field, values, chosen, toggle) {
  const id = newId("filter");
  const input = h("input", { id, type: "text", autocomplete: "off" });
  const offered = new Set(values.map((each) => each.value));
  const chips = h("ul", { class: "chips" });
  const others = new Set(chosen.filter((value) => !offered.has(value)));
  const draw = () => fill(chips, [...others].map((value) => h("li", {}, String(value),
    button("×", () => { others.delete(value); toggle(value, false); draw(); input.focus(); }, { class: "icon", "aria-label": `Remove ${value}` }))));
  const add = () => {
    const value = input.value.trim();
    if (!value) return;
    others.add(value);
    input.value = "";
    toggle(value, true);
    draw();
  };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); add(); } });
  draw();
  return h("div", {}, h("label", { for: id }, values.length ? "Another value" : "Value"), h("div", { class: "row tight" }, input, button("Add", add)), chips);
}
