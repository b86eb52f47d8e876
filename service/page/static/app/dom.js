/** Elements. All text goes in as text nodes; no value is ever parsed as HTML. */

const PROPERTIES = new Set(["checked", "disabled", "hidden", "indeterminate", "multiple", "selected", "value"]);
const REFUSED = /^(on|style$|srcdoc$|innerhtml$)/i;

/**
 * Make an element.
 * @param {string} tag
 * @param {Object<string, any>} [attributes] `on` maps events to listeners; null, undefined and false are left out.
 * @param {...(Node|string|number|null|undefined|false|Array)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (PROPERTIES.has(name)) {
      element[name] = value;
    } else if (value !== null && value !== undefined && value !== false) {
      if (REFUSED.test(name)) throw new Error(`attribute ${name} is refused`);
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...nodes(children));
  return element;
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** A button that is no submit button. */
export function button(label, onClick, attributes = {}) {
  return h("button", { type: "button", on: { click: onClick }, ...attributes }, label);
}

/** Text for screen readers only. */
export function spoken(text) {
  return h("span", { class: "spoken" }, text);
}

/** A bar of a `share` of 0 to 1; the number beside it says the same, so the bar is hidden from screen readers. */
export function bar(share, kind = "") {
  const inner = h("span", { class: "bar-value" });
  inner.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return h("span", { class: `bar ${kind}`.trim(), "aria-hidden": "true" }, inner);
}

let count = 0;
/** A new id for `for` and `aria-controls`. */
export function newId(prefix) {
  count += 1;
  return `${prefix}-${count}`;
}

/** A table of `rows` of cells below `headings`; the first cell of a row is its heading. `isNamed`: a heading above says the caption. */
export function table(caption, headings, rows, { isNamed = false, ...attributes } = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", attributes,
      h("caption", { class: isNamed && "spoken" }, caption),
      h("thead", {}, h("tr", {}, headings.map((heading) => h("th", { scope: "col" }, heading)))),
      h("tbody", {}, rows.map(([first, ...cells]) =>
        h("tr", {}, h("th", { scope: "row" }, first), cells.map((cell) => h("td", {}, cell)))))));
}

/** The sentence of a failure, for the place where an answer would be. */
export function sentence(text, kind = "") {
  return h("p", { class: `sentence ${kind}`.trim() }, text);
}
