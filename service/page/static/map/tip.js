/** The name of the point under the pointer or at the centre. */

import { get } from "../app/api.js";
import { detailLine, named, nameOf, remember } from "../app/catalog.js";
import { fill, h } from "../app/dom.js";
import { debounced, latest } from "../app/latest.js";

export function createTip() {
  const element = h("div", { class: "map-tip", hidden: true, "aria-hidden": "true" });
  const status = h("p", { class: "spoken", role: "status" });
  const items = new Map();
  const load = latest((signal, point) => get("v1/map/items", { point }, { signal }));
  let wanted = -1;

  /** The item of a point; null if it can't be loaded. */
  async function itemOf(point) {
    if (items.has(point)) return items.get(point);
    const answer = await load(point);
    remember(answer.items);
    const item = answer.items[0] ?? null;
    items.set(point, item);
    return item;
  }

  const look = async (point, place, isSpoken) => {
    const item = await itemOf(point).catch(() => null);
    if (item === null || point !== wanted) return;
    fill(element, named("strong", nameOf(item), { class: "" }), detailLine(item, 3));
    element.hidden = false;
    const [x, y] = place();
    const frame = element.parentElement;
    const left = Math.max(4, Math.min(x + 14, frame.clientWidth - element.offsetWidth - 4));
    const top = y + element.offsetHeight + 22 > frame.clientHeight ? y - element.offsetHeight - 10 : y + 14;
    element.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(4, top))}px)`;
    if (isSpoken) status.textContent = `${nameOf(item)}. Enter adds it to the history.`;
  };
  const soon = debounced(look, 40);

  return {
    element, status, itemOf,
    /** Show the item of a point at `place()` in CSS pixels; -1 hides the tip. */
    show(point, place, isSpoken = false) {
      if (point === wanted && !element.hidden && point >= 0) return;
      wanted = point;
      element.hidden = true;
      if (point >= 0) (items.has(point) ? look : soon)(point, place, isSpoken);
      else if (isSpoken) status.textContent = "No point here.";
    },
    forget() { items.clear(); wanted = -1; element.hidden = true; },
  };
}
