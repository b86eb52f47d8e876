/** The plots of the last hour's measurements. */

import { h } from "../app/dom.js";
import { duration, number, percent } from "../app/format.js";
import { createPlot } from "./plot.js";

const hasValues = ([, values]) => Array.isArray(values) && values.some((value) => value !== null && value !== undefined);
const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);
const pairs = (object) => Object.entries(object ?? {}).filter(hasValues);
const busiest = (requests, most) => pairs(requests).sort(([, a], [, b]) => sum(b) - sum(a)).slice(0, most);

const PLOTS = [
  { title: "Requests per second", hint: "by route", format: number, series: (recent) => busiest(recent.requests, 5) },
  { title: "Latency", format: duration, hint: "of the route", series: (recent, route) =>
    ["p50", "p99"].map((quantile) => [quantile, recent.latency?.[route]?.[quantile]]).filter(hasValues) },
  { title: "Stages", hint: "p50 of each part of a recommendation", format: duration, series: (recent) =>
    Object.entries(recent.stages ?? {}).map(([stage, { p50 }]) => [stage, p50]).filter(hasValues) },
  { title: "Fallback, empty, degraded", hint: "share of answers: popular items, no item, a part unavailable", format: percent, series: (recent) =>
    ["fallback", "empty", "degraded"].map((name) => [name, recent[name]]).filter(hasValues) },
  { title: "Errors per second", hint: "answers with status 5xx", format: number, series: (recent) => [["errors", recent.errors]].filter(hasValues) },
  { title: "Live recall", hint: "share of the true best items that the index finds, sampled", format: percent, fromZero: false, series: (recent) =>
    pairs(recent.recall).map(([k, values]) => [`best ${k}`, values]) },
  { title: "Drift", hint: "distance of the answers from those at the activation", format: number, series: (recent) => pairs(recent.drift) },
];

export function createPlots() {
  const route = h("select", { id: "route", "aria-label": "Route of the latency" });
  const plots = PLOTS.map((spec) => ({ ...spec, ...createPlot(spec) }));
  plots[1].element.querySelector(".hint").append(" ", route);
  let present = null;

  function show(recent) {
    present = recent;
    const routes = busiest(recent.requests, 50).map(([name]) => name);
    const chosen = [route.value, "/v1/recommend", routes[0]].find((name) => routes.includes(name)) ?? "";
    route.replaceChildren(...routes.map((name) => h("option", { value: name }, name)));
    route.value = chosen;
    route.hidden = !routes.length;
    for (const plot of plots) plot.show(recent.times, plot.series(recent, chosen));
  }

  route.addEventListener("change", () => present && show(present));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach((plot) => plot.redraw()));
  let timer = 0;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => plots.forEach((plot) => plot.element.isConnected && plot.redraw()), 150);
  });
  return { element: h("div", { class: "plots", id: "plots" }, plots.map((plot) => plot.element)), show };
}
