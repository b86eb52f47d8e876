/** Service: the live version, its measurements, and the versions before. */

import { get, KeyError } from "../app/api.js";
import { button, fill, h, sentence } from "../app/dom.js";
import { count, moment, number } from "../app/format.js";
import { pulse } from "../app/pulse.js";
import { adminElsewhere } from "../versions/admin.js";
import { rollBack } from "../versions/swap.js";
import { createOutcomes } from "./outcomes.js";
import { createPlots } from "./plots.js";
import { createSeries } from "./series.js";
import { activationsTable, versionDetails, versionsTable } from "./versions.js";

const EVERY = 10_000;

export function create() {
  const heading = h("h1", { tabindex: "-1" }, "Service");
  const messages = h("div", { class: "messages", id: "messages" });
  const tiles = h("dl", { class: "tiles", id: "tiles" });
  const plots = createPlots();
  const outcomes = createOutcomes();
  const measured = createSeries();
  const status = h("p", { class: "status", id: "status" });
  const [versions, details, log, actions] = [1, 2, 3, 4].map(() => h("div", {}));
  let timer = 0;
  let isShown = false;
  let isBegun = false;

  function showTiles(samples, recent) {
    const last = (values) => values?.at(-1) ?? null;
    const total = Object.values(recent.requests ?? {}).reduce((sum, values) => sum + last(values), 0);
    const circuit = (name) => samples.get("turret_breaker_open")?.get(`circuit="${name}"`)?.value;
    const store = (name) => (circuit(name) === undefined ? "–" : circuit(name) ? "unavailable" : "working");
    const rows = [["Live version", pulse.live ?? "none"], ["Requests per second", number(recent.requests && total)], ["Errors per second", number(last(recent.errors))],
      ["Worker processes", count(samples.get("turret_workers")?.get("")?.value)], ["Reading histories", store("read")], ["Writing histories", store("write")]];
    fill(tiles, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  function showVersions(answer, { activations }) {
    const open = new Set([...details.querySelectorAll("details[open]")].map((each) => each.dataset.version));
    const focused = element.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    fill(versions, versionsTable(answer));
    fill(details, versionDetails(answer));
    for (const each of details.children) each.open = open.has(each.dataset.version);
    fill(log, activations.length ? activationsTable(activations) : sentence("Nothing was activated yet."));
    if (focused) [...versions.querySelectorAll("[aria-label]")].find((each) => each.getAttribute("aria-label") === focused)?.focus();
    fill(actions, adminElsewhere("Activating a version") ?? button("Roll back…", rollBack, { id: "rollback" }));
  }

  async function load() {
    try {
      if (!isBegun) measured.begin(await get("metrics", { history: true }), Date.now() / 1000);
      isBegun = true;
      const [metrics, listed, logged] = await Promise.all([get("metrics", {}, { as: "text" }), get("v1/versions"), get("v1/activations")]);
      const now = Date.now() / 1000;
      const samples = measured.add(metrics, now);
      const recent = measured.series();
      showTiles(samples, recent);
      showVersions(listed, logged);
      plots.show(recent);
      fill(messages);
      status.textContent = `Read ${moment(now)}; again every ${EVERY / 1000} seconds.`;
    } catch (error) {
      if (!(error instanceof KeyError)) fill(messages, sentence(error.message, "warning"));
    }
  }

  async function refresh() {
    isShown = true;
    clearTimeout(timer);
    if (document.visibilityState === "visible" && !pulse.trouble) await Promise.all([load(), outcomes.refresh()]);
    clearTimeout(timer);
    if (isShown) timer = setTimeout(refresh, EVERY);
  }

  const element = h("div", { class: "view service" },
    h("div", { class: "view-head row baseline" }, h("div", {}, heading, h("p", { class: "lead" }, "The measurements of this service in the last hour, and its versions.")), status),
    messages,
    h("div", { class: "stack" }, tiles, h("section", { "aria-label": "Plots" }, h("h2", {}, "Measurements"), plots.element),
      outcomes.element,
      h("section", {}, h("h2", {}, "Versions"), versions, details, h("div", { class: "buttons" }, actions)), h("section", {}, h("h2", {}, "Log"), log)));
  return { element, heading, update: () => {}, refresh, leave: () => { isShown = isBegun = false; clearTimeout(timer); } };
}
