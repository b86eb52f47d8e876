/** The history and the recommendations, marked on a canvas above the points and listed beside it. */

import { get, inPath, post } from "../app/api.js";
import { named, nameOf, remember } from "../app/catalog.js";
import { fill, h, sentence } from "../app/dom.js";
import { plural } from "../app/format.js";
import { latest } from "../app/latest.js";
import { state } from "../app/state.js";
import { bodyOf, callOf, conditionsOf } from "../query/body.js";

const MOST = 50;

/** The ids of the history, oldest first: from the list, or from the stored events. */
async function historyIds(signal) {
  if (state.user === null) return state.history;
  const { events } = await get(`v1/users/${inPath(state.user)}`, {}, { signal });
  return events.map((event) => String(event.item_id));
}

/** @param {HTMLCanvasElement} canvas @param {() => void} onChange */
export function createMarks(canvas, onChange) {
  const list = h("div", { class: "stack", id: "marked" });
  let marks = [];
  const load = latest(async (signal) => {
    const answer = await post(callOf(state), bodyOf(state), { signal });
    remember(answer.items);
    const answered = answer.items.slice(0, MOST).map((item) => String(item.id));
    const whole = await historyIds(signal);
    const history = whole.slice(-MOST);
    const ids = [...new Set([...history, ...answered])].slice(0, 100);
    const { items } = ids.length ? await get("v1/map/items", { id: ids }, { signal }) : { items: [] };
    const known = new Map(items.map((item) => [String(item.id), item]));
    const first = whole.length - history.length + 1;
    return [...history.map((id, position) => ({ kind: "history", label: first + position, item: known.get(id) ?? { id, point: null } })),
      ...answered.map((id, position) => ({ kind: "answer", label: position + 1, item: known.get(id) ?? answer.items[position] }))];
  });

  function listOf(kind, title, none) {
    const rows = marks.filter((mark) => mark.kind === kind);
    const placeless = rows.filter((mark) => mark.item.point === null || mark.item.point === undefined).length;
    return h("section", {}, h("h2", {}, title),
      rows.length ? h("ol", { class: "marked", tabindex: "0", "aria-label": title }, rows.map((mark) => h("li", {},
        h("span", { class: `mark ${kind}-mark` }, mark.label), named("span", nameOf(mark.item), { class: "" })))) : sentence(none),
      kind === "answer" && conditionsOf(state) ? h("p", { class: "hint" }, `With ${conditionsOf(state)}; Try has the controls.`) : null,
      placeless ? h("p", { class: "hint" }, `${plural(placeless, "item")} without a point: new, or not in this version.`) : null);
  }

  async function update() {
    try {
      marks = await load();
    } catch (error) {
      marks = [];
      return void fill(list, sentence(error.message, "warning"));
    }
    fill(list, listOf("history", "History", state.user === null ? "Empty. A click on a point adds its item." : "Nothing is stored of this user."),
      listOf("answer", "Recommendations", "None."));
    onChange();
  }

  function paint(points, camera, ratio, { isCentred }) {
    const context = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.font = `650 ${11 * ratio}px Inter, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 2 * ratio;
    for (const { kind, label, item } of [...marks].reverse()) {
      if (item.point === null || item.point === undefined || item.point >= points.count) continue;
      const [x, y] = camera.toPixels(points.xs[item.point], points.ys[item.point]);
      const radius = 9 * ratio;
      context.beginPath();
      if (kind === "history") context.roundRect(x - radius, y - radius, 2 * radius, 2 * radius, 3 * ratio);
      else context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fillStyle = colour(kind === "history" ? "--mark-history" : "--mark-answer");
      context.strokeStyle = colour("--surface");
      context.fill();
      context.stroke();
      context.fillStyle = colour("--surface");
      context.fillText(String(label), x, y + 0.5 * ratio);
    }
    if (isCentred) {
      context.strokeStyle = colour("--ink");
      context.lineWidth = ratio;
      context.beginPath();
      context.arc(camera.width / 2, camera.height / 2, 12 * ratio, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  return { element: list, update, paint };
}
