/** Search the catalog while typing: a combobox after the ARIA pattern with a list of items. */

import { get } from "../app/api.js";
import { detailLine, loadFields, named, nameOf, remember } from "../app/catalog.js";
import { fill, h, newId } from "../app/dom.js";
import { plural } from "../app/format.js";
import { debounced, latest } from "../app/latest.js";

const MOST = 12;

/**
 * @param {(item: {id: any, fields: object}) => void} onPick
 * @returns {HTMLElement}
 */
export function createSearch(onPick) {
  const listId = newId("found");
  const input = h("input", {
    id: newId("search"), type: "search", role: "combobox", autocomplete: "off", spellcheck: "false",
    placeholder: "Title, other text or id", "aria-autocomplete": "list", "aria-expanded": "false",
    "aria-controls": listId,
  });
  const list = h("ul", { id: listId, class: "found", role: "listbox", "aria-label": "Items found", hidden: true });
  const status = h("p", { class: "spoken", role: "status" });
  const trouble = h("p", { class: "sentence warning", hidden: true });
  let items = [];
  let active = -1;

  const search = latest((signal, query) => get("v1/items", { query, limit: MOST }, { signal }));

  async function find() {
    try {
      await loadFields();
      const answer = await search(input.value.trim());
      remember(answer.items);
      show(answer.items);
    } catch (error) {
      close();
      trouble.textContent = error.message;
      trouble.hidden = false;
    }
  }

  function show(matches) {
    [items, active] = [matches, matches.length && input.value.trim() ? 0 : -1];
    trouble.hidden = true;
    fill(list, matches.map((item, position) => h("li", {
      id: `${listId}-${position}`, role: "option", "aria-selected": "false",
      on: { mousedown: (event) => event.preventDefault(), click: () => pick(position) },
    }, named("span", nameOf(item)), nameOf(item) !== String(item.id) && h("span", { class: "id" }, item.id), detailLine(item, 3))));
    if (!matches.length) fill(list, h("li", { class: "none", role: "option", "aria-disabled": "true", "aria-selected": "false" }, "No item matches."));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    status.textContent = matches.length ? `${plural(matches.length, "item")} found` : "No item matches.";
    mark();
  }

  function mark() {
    [...list.children].forEach((option, position) => option.setAttribute("aria-selected", String(position === active)));
    const option = active < 0 ? null : list.children[active];
    if (option) {
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }

  function close() {
    search.cancel();
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function pick(position) {
    const item = items[position];
    if (!item) return;
    input.value = "";
    close();
    status.textContent = `${nameOf(item)} added`;
    onPick(item);
  }

  function onKey(event) {
    const isOpen = !list.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen) return void find();
      const step = event.key === "ArrowDown" ? 1 : -1;
      active = items.length ? (active + step + items.length) % items.length : -1;
      mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (isOpen) pick(Math.max(active, 0));
    } else if (event.key === "Escape") {
      if (isOpen) event.preventDefault();
      close();
    }
  }

  const soon = debounced(find, 40);
  input.addEventListener("input", () => soon());
  input.addEventListener("focus", () => list.hidden && find());
  input.addEventListener("keydown", onKey);
  input.addEventListener("blur", close);
  return h("div", { class: "search" },
    h("label", { for: input.id }, "Add an item"),
    h("div", { class: "search-box" }, input, list), status, trouble);
}
