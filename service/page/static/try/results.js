/** The list of recommended items. */

import { detailLine, named, nameOf, picture } from "../app/catalog.js";
import { bar, button, fill, h, spoken } from "../app/dom.js";
import { score, shares } from "../app/format.js";
import { addToHistory } from "../app/state.js";
import { pinItem, unpinItem } from "../query/pins.js";
import { whyOf } from "./why.js";

const SOURCES = { towers: "towers", popular: "popular", popular_now: "popular now", fresh: "new item" };

/** @param {() => void} onWhy called when an explanation is needed */
export function createResults(onWhy) {
  const list = h("ol", { id: "results", class: "results" });
  const open = new Set();
  let answer = null;

  function toggle(id) {
    if (!open.delete(id)) open.add(id);
    draw();
    if (open.has(id) && !answer.explanation) onWhy();
  }

  function row(item, rank, share, position) {
    const id = String(item.id);
    const [isOpen, panelId, name] = [open.has(id), `why-${position}`, nameOf(item)];
    return h("li", { class: "item", "data-id": id },
      h("span", { class: "rank", "aria-hidden": "true" }, rank),
      picture(item),
      h("div", { class: "item-text" }, named("h3", name), name !== id && h("span", { class: "id" }, id), detailLine(item)),
      h("div", { class: "score" }, bar(share), h("span", { class: "figure" }, spoken("score "), score(item.score)),
        h("span", { class: `source ${item.source}` }, spoken("source "), SOURCES[item.source] ?? item.source),
        item.explored && h("span", { class: "source explored", title: "This place was drawn from candidates, to learn from its outcome" }, "explored")),
      h("div", { class: "item-actions" },
        button("Why", () => toggle(id), { "aria-expanded": String(isOpen), "aria-controls": panelId, "aria-label": `Why ${name}`, "data-focus": `why ${id}`, class: "quiet" }),
        button(item.pinned ? "Unpin" : "Pin", () => (item.pinned ? unpinItem(id) : pinItem(id, rank)),
          { "aria-label": `${item.pinned ? "Unpin" : "Pin"} ${name}`, title: item.pinned ? "Leave it to its score" : "Keep it at this position", "data-focus": `pin ${id}`, class: "quiet" }),
        button("+", () => addToHistory(id), { class: "icon", "aria-label": `Add to the history: ${name}`, title: "Add to the history", "data-focus": `add ${id}` })),
      h("div", { id: panelId, class: "why", hidden: !isOpen }, isOpen && whyOf(item, answer)));
  }

  function draw() {
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    const share = shares(answer.items);
    fill(list, answer.items.map((item, position) => row(item, position + 1, share[position], position)));
    if (focused) [...list.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === focused)?.focus();
  }

  return {
    element: list,
    /** Whether an open part needs the explanation. */
    get needsExplanation() { return open.size > 0; },
    show(next) {
      answer = next;
      const ids = new Set(next.items.map((item) => String(item.id)));
      for (const id of open) if (!ids.has(id)) open.delete(id);
      draw();
    },
    clear() { fill(list); },
  };
}
