/** Colours by a field: the choice of the field, and a legend whose groups can be hidden. */

import { get } from "../app/api.js";
import { catalog, labelOf } from "../app/catalog.js";
import { button, fill, h, sentence } from "../app/dom.js";
import { count } from "../app/format.js";
import { latest } from "../app/latest.js";
import { change, state } from "../app/state.js";

const MOST = 10;
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Fields by which points can be coloured, those with shared values first. */
function colourable() {
  const rank = (field) => (field.values?.length ? 0 : field.kind === "boolean" ? 1 : 2);
  return catalog.fields.filter((field) => field.values?.length || ["number", "numbers", "boolean"].includes(field.kind))
    .sort((a, b) => rank(a) - rank(b));
}

/** @param {() => void} onChange called when points have to be painted again */
export function createGroups(onChange) {
  const select = h("select", { id: "colour" });
  const legend = h("div", { class: "groups", role: "group", "aria-label": "Groups; a button hides or shows one" });
  const load = latest((signal, field) => get("v1/map/colours", { field }, { signal }));
  const hidden = new Set();
  let present = null;
  let codes = null;

  select.addEventListener("change", () => change({ colour: select.value || "none" }));

  /** The colour of group `index`; numbers are a ramp, spread over their groups. */
  function nameOf(index) {
    const n = present.groups.length;
    if (!["number", "numbers"].includes(present.kind)) return `--group-${present.groups[index].label === "other" ? 9 : index % MOST}`;
    return `--ramp-${n > 1 ? Math.round((index * (MOST - 1)) / (n - 1)) : 5}`;
  }

  function draw() {
    const entries = present.groups.map((group, index) => [index, group.label, group.items, nameOf(index)]);
    const missing = codes.reduce((total, code) => total + (code === 255), 0);
    if (missing) entries.push([255, "no value", missing, "--group-none"]);
    fill(legend, entries.map(([index, label, items, name]) => {
      const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = `var(${name})`;
      const toggle = button([swatch, h("span", {}, label), h("span", { class: "figure" }, count(items))], () => {
        if (!hidden.delete(index)) hidden.add(index);
        toggle.setAttribute("aria-pressed", String(!hidden.has(index)));
        onChange();
      }, { "aria-pressed": String(!hidden.has(index)) });
      return toggle;
    }));
  }

  /** Colour by the chosen field, else by `telling`, else by the first field. */
  async function update(telling, { force = false } = {}) {
    const fields = colourable();
    const wanted = state.colour ?? telling ?? fields[0]?.name ?? "none";
    fill(select, h("option", { value: "" }, "No field"), fields.map((field) => h("option", { value: field.name }, labelOf(field.name))));
    select.value = fields.some((field) => field.name === wanted) ? wanted : "";
    if (present?.field === wanted && !force) return;
    hidden.clear();
    present = codes = null;
    if (!select.value) {
      load.cancel();
      fill(legend, wanted !== "none" && sentence(`There is no field “${wanted}” to colour by. Choose another one.`, "warning"));
      return void onChange();
    }
    present = { field: wanted, groups: [] };
    try {
      const answer = await load(wanted);
      codes = Uint8Array.from(atob(answer.codes), (character) => character.charCodeAt(0));
      present = answer;
      draw();
    } catch (error) {
      present = null;
      fill(legend, sentence(error.message, "warning"));
    }
    onChange();
  }

  return {
    element: h("section", {}, h("label", { for: "colour", class: "control-name" }, "Colour by"), select, legend),
    update,
    get codes() { return codes; },
    /** The colours by code as #rrggbb; the last colour is that of points without a value. */
    get colours() {
      if (!codes) return [variable("--accent-bar"), variable("--accent-bar")];
      const shown = present.groups.map((_, index) => (hidden.has(index) ? "" : variable(nameOf(index))));
      return [...shown, hidden.has(255) ? "" : variable("--group-none")];
    },
    isShown: (point) => codes === null || !hidden.has(codes[point]),
  };
}
