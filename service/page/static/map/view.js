/** Map: the item vectors in the plane. */

import { KeyError } from "../app/api.js";
import { loadFields, nameOf } from "../app/catalog.js";
import { button, fill, h, sentence } from "../app/dom.js";
import { plural } from "../app/format.js";
import { pulse } from "../app/pulse.js";
import { addToHistory, hashOf, state } from "../app/state.js";
import { createCamera } from "./camera.js";
import { listen } from "./gestures.js";
import { createGroups } from "./groups.js";
import { createMarks } from "./marks.js";
import { createPainter } from "./painter.js";
import { loadPoints } from "./points.js";
import { createTip } from "./tip.js";


export function create() {
  const heading = h("h1", { tabindex: "-1" }, "Map");
  const lead = h("p", { class: "lead" }, "Items whose vectors are alike lie close together.");
  const canvas = h("canvas", { class: "points", id: "map", tabindex: "0", role: "application", "aria-label": "Map of the items", "aria-describedby": "map-keys", "data-frames": "0" });
  const overlay = h("canvas", { class: "marks", "aria-hidden": "true" });
  const messages = h("div", { class: "messages", id: "messages" });
  const body = h("div", {});
  const camera = createCamera();
  const paint = createPainter(canvas);
  const groups = createGroups(() => repaint());
  const marks = createMarks(overlay, () => repaint());
  const tip = createTip();
  const counter = (globalThis.turretMap = { frames: 0 });
  let points = null;
  let loadedFor = null;
  let asked = "";
  let colours = null;
  let frame = 0;

  const ratio = () => Math.min(2, globalThis.devicePixelRatio || 1);
  const isCentred = () => canvas.matches(":focus-visible");
  const nearest = (x, y, pixels) => (points ? points.nearest(...camera.toPlane(x, y), (pixels * ratio()) / camera.scale, groups.isShown) : -1);

  function draw() {
    frame = 0;
    if (!points || !canvas.width) return;
    paint(points, groups.codes, (colours ??= groups.colours), camera, ratio());
    marks.paint(points, camera, ratio(), { isCentred: isCentred() });
    counter.frames += 1;
    canvas.dataset.frames = String(counter.frames);
  }
  const move = () => { frame ||= requestAnimationFrame(draw); };
  const repaint = () => { colours = null; move(); };

  function tellCentre() {
    if (!isCentred()) return;
    tip.show(nearest(camera.width / 2, camera.height / 2, 40), () => [camera.width / 2 / ratio(), camera.height / 2 / ratio()], true);
  }
  async function add(point) {
    const item = point < 0 ? null : await tip.itemOf(point).catch(() => null);
    if (!item) return;
    addToHistory(item.id);
    tip.status.textContent = `${nameOf(item)} added to the history.`;
  }
  const zoom = (factor) => { if (factor) camera.zoomAt(factor); else camera.reset(); move(); };

  listen(canvas, camera, {
    ratio,
    onMove: () => { move(); if (isCentred()) tellCentre(); else tip.show(-1); },
    onHover: (x, y) => tip.show(nearest(x, y, 12), () => [x / ratio(), y / ratio()]),
    onLeave: () => tip.show(-1),
    onPick: (x, y) => add(nearest(x, y, 12)),
    onPickCentre: () => add(nearest(camera.width / 2, camera.height / 2, 40)),
  });
  canvas.addEventListener("focus", () => { move(); tellCentre(); });
  canvas.addEventListener("blur", () => { move(); tip.show(-1); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

  const holder = h("div", { class: "map-frame" }, canvas, overlay, tip.element,
    h("div", { class: "map-buttons" }, button("+", () => zoom(1.6), { "aria-label": "Zoom in" }), button("−", () => zoom(1 / 1.6), { "aria-label": "Zoom out" }), button("⤢", () => zoom(0), { "aria-label": "Show everything" })));
  new ResizeObserver(() => {
    if (!holder.clientWidth) return;
    for (const each of [canvas, overlay]) Object.assign(each, { width: Math.round(holder.clientWidth * ratio()), height: Math.round(holder.clientHeight * ratio()) });
    camera.resize(canvas.width, canvas.height);
    draw();
  }).observe(holder);

  async function mark() {
    const now = hashOf({ ...state, view: "try" });
    if (now === asked) return;
    asked = now;
    await marks.update();
  }

  async function update() {
    if (!points) return;
    await Promise.all([groups.update(points.colour), mark()]);
  }

  async function refresh() {
    try {
      await loadFields();
      if (loadedFor !== pulse.live) {
        fill(messages, sentence("Loading the points…"));
        points = null;
        tip.forget();
        points = await loadPoints();
        loadedFor = pulse.live;
        asked = "";
        lead.textContent = `Items whose vectors are alike lie close together: ${plural(points.count, "item")} of version ${points.version}, laid out by t-SNE.`;
        fill(messages);
        fill(body, split);
        await Promise.all([groups.update(points.colour, { force: true }), mark()]);
      } else await update();
    } catch (error) {
      loadedFor = null;
      fill(body);
      fill(messages, !(error instanceof KeyError) && sentence(error.message, "warning"));
    }
  }

  const keys = h("p", { class: "hint", id: "map-keys" }, "Drag or arrow keys move the map; the wheel, + and − zoom; 0 shows everything. A click, or Enter for the point at the centre, adds an item to the history.");
  const split = h("div", { class: "map-split" }, h("div", {}, holder, keys, tip.status),
    h("div", { class: "map-side" }, groups.element, marks.element));
  const element = h("div", { class: "view map" }, h("div", { class: "view-head" }, heading, lead), messages, body);
  return { element, heading, update, refresh, leave: () => tip.show(-1) };
}
