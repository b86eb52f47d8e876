/** Start: settings and live version first, then the view that the address names. */

import { loadSettings, settings } from "./api.js";
import { forgetCatalog } from "./catalog.js";
import { button, fill, h, sentence } from "./dom.js";
import { entered } from "./keys.js";
import { beat, pulse } from "./pulse.js";
import { changes, followAddress, hashOf, parse, problems, state } from "./state.js";

const MODULES = {
  try: () => import("../try/view.js"),
  popular: () => import("../popular/view.js"),
  compare: () => import("../compare/view.js"),
  map: () => import("../map/view.js"),
  service: () => import("../service/view.js"),
};
const TITLES = { try: "Try", popular: "Popular", compare: "Compare", map: "Map", service: "Service" };
const main = document.getElementById("main");
const views = {};
let shown = null;

/** Show the view of the state; a view has `element`, `heading`, `update()`, `refresh()` and `leave()`. */
async function route({ isFirst = false } = {}) {
  for (const link of document.querySelectorAll("[data-view]")) {
    link.setAttribute("href", hashOf({ ...state, view: link.dataset.view }));
    if (link.closest("nav") && link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[state.view]} · Turret`;
  const address = document.getElementById("address");
  address.hidden = !problems.length;
  fill(address, problems.map((problem) => sentence(problem, "warning")));
  if (shown === state.view) {
    views[shown]?.update();
    return;
  }
  views[shown]?.leave();
  const name = (shown = state.view);
  try {
    views[name] ??= (await MODULES[name]()).create();
  } catch { // the service is gone, or of another release
    if (shown === name) {
      shown = null;
      fill(main, h("h1", {}, TITLES[name]), sentence("This view could not be loaded. Reload the page once the service answers.", "warning"));
    }
    return;
  }
  if (shown !== name) return;
  fill(main, views[name].element);
  if (!isFirst) views[name].heading.focus();
  views[name].refresh();
}

function refresh() {
  if (pulse.live !== null) views[shown]?.refresh();
}

function tellTrouble() {
  const outage = document.getElementById("outage");
  outage.hidden = !pulse.trouble;
  if (!pulse.trouble) return fill(outage);
  return fill(outage, h("span", {}, pulse.trouble), " ", button("Try again now", () => beat()));
}

function tellLive({ before }) {
  fill(document.getElementById("live"), "Live version ", h("strong", {}, pulse.live));
  forgetCatalog();
  if (before === null) return;
  const news = document.getElementById("news");
  news.hidden = false;
  fill(news, h("span", {}, `Version ${pulse.live} is live now; before, it was ${before}.`), " ",
    button("Close", () => { news.hidden = true; }));
  refresh();
}

async function start() {
  for (const link of document.querySelectorAll("a[data-view]")) link.draggable = false;
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    (views[shown]?.heading ?? main).focus();
  });
  pulse.addEventListener("trouble", tellTrouble);
  pulse.addEventListener("back", async () => {
    tellTrouble();
    if (!settings.release) await loadSettings().catch(() => {});
    await begin();
    refresh();
  });
  pulse.addEventListener("live", tellLive);
  entered.addEventListener("key", () => { forgetCatalog(); refresh(); });
  MODULES[parse(location.hash).read.view]().catch(() => {}); // loads beside the first calls
  await Promise.all([loadSettings().catch(() => {}), beat()]);
  await begin();
}

let hasBegun = false;
async function begin() {
  if (settings.release) document.getElementById("release").textContent = `Turret ${settings.release}`;
  if (hasBegun) return;
  if (pulse.live === null) {
    fill(main, h("h1", {}, "Turret"), sentence(pulse.trouble ?? "No version is live yet."),
      h("p", { class: "hint" }, "The page appears by itself as soon as the service has a live version."));
    return;
  }
  hasBegun = true;
  followAddress();
  await route({ isFirst: true });
  changes.addEventListener("state", () => route());
}

start();
