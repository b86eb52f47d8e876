/** The list of the history: its order, and buttons for the keyboard beside dragging. */

import { loadFields, lookUp, named, nameOf } from "../app/catalog.js";
import { button, fill, h } from "../app/dom.js";
import { plural } from "../app/format.js";
import { latest } from "../app/latest.js";
import { pulse } from "../app/pulse.js";
import { addToHistory, change, state } from "../app/state.js";
import { createSearch } from "./search.js";

export function createHistory() {
  const list = h("ol", { class: "history", id: "history", "aria-label": "History, oldest first" });
  const note = h("p", { class: "hint" });
  const gone = h("p", { class: "sentence warning", id: "history-gone", hidden: true });
  const empty = () => {
    change({ history: [] });
    element.querySelector("input").focus(); // the button disappears
  };
  const clear = button("Clear", empty, { class: "quiet", id: "history-clear" });
  const find = latest(async (signal, ids) => {
    await loadFields(); // names the field of titles
    return lookUp(ids, signal);
  });
  let drawn = null;
  let dragged = null;

  function move(from, to) {
    const ids = [...state.history];
    if (to < 0 || to >= ids.length) return;
    ids.splice(to, 0, ...ids.splice(from, 1));
    change({ history: ids });
  }

  function row(id, position, items) {
    const item = items?.get(id);
    const name = item ? nameOf(item) : id;
    const isGone = items !== null && !item;
    const last = state.history.length - 1;
    const action = (label, symbol, onClick, isDisabled) => button(symbol, onClick, {
      class: "icon", "aria-label": `${label}: ${name}`, title: label, disabled: isDisabled,
      "data-focus": `${label} ${id}`,
    });
    return h("li", {
      draggable: "true", class: isGone ? "gone" : null, "data-id": id,
      on: {
        dragstart: (event) => { dragged = position; event.dataTransfer.setData("text/plain", id); },
        dragover: (event) => event.preventDefault(),
        drop: (event) => { event.preventDefault(); if (dragged !== null) move(dragged, position); dragged = null; },
      },
    }, h("div", { class: "name" }, named("span", name, { class: "" }), isGone && h("small", {}, "not in this version"), item?.withdrawn && h("small", {}, "withdrawn")),
    action("Move up", "↑", () => move(position, position - 1), position === 0),
    action("Move down", "↓", () => move(position, position + 1), position === last),
    action("Remove", "×", () => change({ history: state.history.filter((_, other) => other !== position) }), false));
  }

  function draw(items) {
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    fill(list, state.history.map((id, position) => row(id, position, items)));
    const again = focused && [...list.querySelectorAll("button")].find((each) => each.dataset.focus === focused);
    if (again && !again.disabled) again.focus();
    else if (focused) (list.querySelector("button:not(:disabled)") ?? element.querySelector("input")).focus();
    const lost = items === null ? 0 : state.history.filter((id) => !items.has(id)).length;
    gone.hidden = !lost;
    gone.textContent = `${plural(lost, "item")} of this history ${lost === 1 ? "is" : "are"} not in the live version and ${lost === 1 ? "is" : "are"} skipped. Remove ${lost === 1 ? "it" : "them"}, or choose others.`;
    note.textContent = state.history.length
      ? "Oldest first: the last item is the newest." : "No items yet. Without a history, popular items are recommended.";
    clear.hidden = !state.history.length;
  }

  async function update() {
    const shown = JSON.stringify([pulse.live, state.history]);
    if (shown === drawn) return;
    drawn = shown;
    draw(null);
    if (!state.history.length) return find.cancel();
    try {
      draw(await find(state.history));
    } catch (error) {
      drawn = null;
      note.textContent = error.message;
    }
  }

  const element = h("div", { class: "history-part" }, createSearch((item) => addToHistory(item.id)),
    h("div", { class: "row" }, note, clear), list, gone);
  return { element, update };
}
