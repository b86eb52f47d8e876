/** Popular: the items with the most events of late, and those that rise. */

import { post, settings } from "../app/api.js";
import { detailLine, loadFields, named, nameOf, picture, remember } from "../app/catalog.js";
import { bar, button, fill, h, sentence, spoken } from "../app/dom.js";
import { plural, score, shares } from "../app/format.js";
import { latest } from "../app/latest.js";
import { addToHistory, change } from "../app/state.js";

export function create() {
  const heading = h("h1", { tabindex: "-1" }, "Popular");
  const halfLife = h("select", { id: "half-life" }, settings.half_lives.map((name) => h("option", { value: name }, name)));
  const trend = h("input", { id: "trend", type: "checkbox" });
  const status = h("p", { class: "status", role: "status" });
  const messages = h("div", { class: "messages" });
  const list = h("ol", { id: "popular", class: "results" });
  const ask = latest((signal, body) => post("v1/popular", body, { signal }));

  function row(item, place, share) {
    const name = nameOf(item);
    return h("li", { class: "item", "data-id": String(item.id) },
      h("span", { class: "rank", "aria-hidden": "true" }, place + 1), picture(item),
      h("div", { class: "item-text" }, named("h3", name), detailLine(item)),
      h("div", { class: "score" }, bar(share), h("span", { class: "figure" }, spoken(trend.checked ? "rise " : "events "), score(item.score))),
      h("div", { class: "item-actions" }, button("+", () => { addToHistory(item.id); change({ view: "try" }); },
        { class: "icon", "aria-label": `Try it as the history: ${name}`, title: "Try it as the history" })));
  }

  async function refresh() {
    if (!settings.half_lives.length) return fill(messages, sentence("This service counts no events: TURRET_POPULAR names no half-life."));
    try {
      const [answer] = await Promise.all([ask({ half_life: halfLife.value, trend: trend.checked, k: 20 }), loadFields()]);
      remember(answer.items);
      const share = shares(answer.items);
      fill(list, answer.items.map((item, place) => row(item, place, share[place])));
      fill(messages, !answer.items.length && sentence(trend.checked ? "Nothing rises: no item has enough events of late." : "No event has been stored of late."));
      status.textContent = plural(answer.items.length, "item");
    } catch (error) {
      fill(list);
      status.textContent = "";
      fill(messages, sentence(error.message, "warning"));
    }
    return null;
  }

  for (const input of [halfLife, trend]) input.addEventListener("change", refresh);
  const element = h("div", { class: "view" },
    h("div", { class: "view-head" }, heading, h("p", { class: "lead" }, "Which items have the most events of late, and which rise?")),
    h("div", { class: "row baseline" }, h("label", { for: "half-life" }, "Half-life"), halfLife,
      h("div", { class: "check" }, trend, h("label", { for: "trend" }, "What rises")), button("Count again", refresh), status),
    messages, list);
  return { element, heading, update: () => {}, refresh, leave: () => ask.cancel() };
}
