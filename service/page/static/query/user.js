/** A stored user as the history: by id, or a random user. */

import { get, inPath } from "../app/api.js";
import { loadFields, lookUp, named, nameOf } from "../app/catalog.js";
import { button, fill, h, sentence } from "../app/dom.js";
import { moment, plural } from "../app/format.js";
import { latest } from "../app/latest.js";
import { pulse } from "../app/pulse.js";
import { change, state } from "../app/state.js";

const NEWEST = 50;

export function createUser() {
  const input = h("input", { id: "user-id", type: "text", autocomplete: "off", spellcheck: "false" });
  const stored = h("div", { id: "stored-history", "aria-live": "polite" });
  const load = latest(async (signal, id) => {
    const [answer] = await Promise.all([get(`v1/users/${inPath(id)}`, {}, { signal }), loadFields()]);
    const events = answer.events.slice(-NEWEST);
    return { ...answer, events, items: await lookUp(events.map((event) => String(event.item_id)), signal) };
  });
  let drawn = null;

  async function pickRandom() {
    try {
      change({ user: String((await get("v1/random-user")).user_id) });
    } catch (error) {
      fill(stored, sentence(error.message, "warning"));
    }
  }

  function show({ total, events, items }) {
    if (!total) return fill(stored, sentence("Nothing is stored of this user, so the answer is popular items."));
    const gone = events.filter((event) => !items.has(String(event.item_id))).length;
    return fill(stored,
      h("div", { class: "row" },
        h("p", { class: "hint" }, `${plural(total, "event")}${total > events.length ? `, the newest ${events.length} shown` : ""}; newest first.`),
        button("Edit as a list", () => change({ user: null, history: events.map((event) => String(event.item_id)) }), { class: "quiet" })),
      gone ? sentence(`${plural(gone, "item")} of this history ${gone === 1 ? "is" : "are"} not in the live version.`, "warning") : null,
      h("ol", { class: "history stored", "aria-label": "Stored history, newest first" }, [...events].reverse().map((event) => {
        const item = items.get(String(event.item_id));
        return h("li", { class: item ? null : "gone" },
          h("div", { class: "name" }, named("span", item ? nameOf(item) : String(event.item_id), { class: "" }), !item && h("small", {}, "not in this version"), item?.withdrawn && h("small", {}, "withdrawn")),
          h("span", { class: "when" }, event.kind ? `${event.kind} · ` : "", moment(event.time)));
      })));
  }

  async function update() {
    const shown = JSON.stringify([pulse.live, state.user]);
    if (shown === drawn) return;
    drawn = shown;
    if (document.activeElement !== input) input.value = state.user ?? "";
    if (state.user === null) {
      load.cancel();
      fill(stored);
      return;
    }
    try {
      show(await load(state.user));
    } catch (error) {
      drawn = null;
      fill(stored, sentence(error.message, "warning"));
    }
  }

  const choose = (event) => {
    event.preventDefault();
    const id = input.value.trim();
    if (id) change({ user: id });
  };
  const element = h("div", { class: "user-part" },
    h("form", { class: "user-form", on: { submit: choose } },
      h("label", { for: "user-id" }, "User id"),
      h("div", { class: "row tight" }, input, h("button", { type: "submit" }, "Show"),
        button("Random user", pickRandom, { id: "random-user" }))),
    stored);
  return { element, update };
}
