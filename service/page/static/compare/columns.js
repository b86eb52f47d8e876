/** The answers of two versions side by side. */

import { detailLine, named, nameOf } from "../app/catalog.js";
import { h, spoken } from "../app/dom.js";
import { percent } from "../app/format.js";

/** @param {{live: object, other: object, overlap: number, moves: {id: any, live_rank: number|null, other_rank: number|null}[]}} answer */
export function columnsOf({ live, other, overlap, moves }) {
  const ranks = new Map(moves.map((move) => [String(move.id), move]));
  const columns = h("div", { class: "columns", id: "columns" }, column(live, "Live", ranks, false), column(other, "Compared", ranks, true));
  const highlight = (event) => {
    const id = event.target.closest?.("li")?.dataset.id;
    for (const row of columns.querySelectorAll("li")) row.classList.toggle("same", row.dataset.id === id);
  };
  columns.addEventListener("mouseover", highlight);
  columns.addEventListener("mouseleave", highlight);
  return [h("p", { class: "status", id: "overlap-here", role: "status" }, `${percent(overlap)} of the items are the same for this history.`), columns];
}

function column(answer, label, ranks, isOther) {
  return h("div", { class: "column" }, h("h3", {}, `${label}: version ${answer.version}`),
    h("ol", {}, answer.items.map((item, position) => h("li", { "data-id": String(item.id) },
      h("span", { class: "rank", "aria-hidden": "true" }, position + 1), named("span", nameOf(item)),
      move(ranks.get(String(item.id)) ?? {}, isOther), detailLine(item, 2)))));
}

function move({ live_rank: before = null, other_rank: after = null }, isOther) {
  if (before === null && isOther) return h("span", { class: "move entered" }, "entered");
  if (after === null && !isOther) return h("span", { class: "move left" }, "left");
  if (!isOther) return h("span", { class: "move" });
  const steps = before - after;
  if (!steps) return h("span", { class: "move" }, h("span", { "aria-hidden": "true" }, "="), spoken("same rank"));
  return h("span", { class: `move ${steps > 0 ? "up" : "down"}` }, h("span", { "aria-hidden": "true" }, `${steps > 0 ? "↑" : "↓"} ${Math.abs(steps)}`),
    spoken(`${steps > 0 ? "up" : "down"} ${Math.abs(steps)}`));
}
