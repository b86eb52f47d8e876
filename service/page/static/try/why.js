/** Why an item is recommended: the history items that raise its score, the score's parts, its nearest items. */

import { get, inPath } from "../app/api.js";
import { isLong, lookUp, nameOf, nameOfId, remember } from "../app/catalog.js";
import { bar, fill, h, sentence } from "../app/dom.js";
import { number, plural, score, shares, signed } from "../app/format.js";
import { addToHistory } from "../app/state.js";

const PARTS = {
  inner_product: ["Inner product", "of the vectors of the history and the item"],
  temperature: ["Temperature", "the score is the inner product divided by it"],
  item_bias: ["Item bias", "its part of the inner product"],
  boosts: ["Boosts", "what rules and the request add"],
  towers: ["Towers", "the score without its own past"],
  repeat: ["Own past", "what its own uses in the history add"],
};
const nearest = new Map();

/** The panel of an item; without an explanation yet, it says so. */
export function whyOf(item, answer) {
  const explained = answer.explanation?.items?.find((each) => String(each.id) === String(item.id));
  return [
    isLong(nameOf(item)) && h("p", { class: "whole" }, nameOf(item)),
    explained?.interest && interest(explained.interest),
    explained?.matched
      ? h("section", {}, h("h4", {}, "Shared with the question"), matched(explained))
      : h("section", {}, h("h4", {}, "From the history"), pulls(explained, answer)),
    h("section", {}, h("h4", {}, "Score"), parts(explained, item)),
    h("section", {}, h("h4", {}, "Nearest items"), nearestOf(item, answer.version)),
  ];
}

function pulls(explained, answer) {
  if (!answer.explanation) return sentence("Loading…");
  if (!explained) return sentence("Popular items don't depend on the history.");
  const gain = explained.score_parts.repeat ?? 0;
  const others = explained.pulled_by.filter(({ id }) => gain <= 0 || String(id) !== String(explained.id));
  const name = `Its own past: ${past(explained.uses ?? {})}`;
  const rows = [...(gain > 0 ? [{ name, change: gain }] : []), ...others];
  if (!rows.length) return sentence("No single item raises the score: the history has one known item, or none of its items helps.");
  const most = Math.max(...rows.map(({ change }) => change));
  const list = h("ul", { class: "bars" }, rows.map(({ id, name, change }) => h("li", { "data-id": name ? null : String(id) },
    h("span", { class: name ? "own-past" : "bar-name" }, name ?? nameOfId(id)), bar(change / most), h("span", { class: "figure" }, signed(change)))));
  lookUp(others.map(({ id }) => String(id))).then(() => {
    for (const row of list.querySelectorAll("[data-id]")) row.firstChild.textContent = nameOfId(row.dataset.id);
  }, () => {});
  const hint = "How much lower the score is without each of these items";
  return [h("p", { class: "hint" }, gain > 0 ? `${hint}, and what the item's own uses add.` : `${hint}.`), list];
}

/** The interest of the user that the item is for, by the nearest items of the history. */
function interest(nearby) {
  const line = sentence("");
  const write = () => { line.textContent = `For the interest in ${nearby.map((id) => nameOfId(String(id))).join(", ")}.`; };
  write();
  lookUp(nearby.map(String)).then(write, () => {});
  return line;
}

/** "purchase 3 times, every 20 days, last 19 days ago": the kinds by their names, and other uses. */
function past({ times = 0, kinds = {}, every_days: every, last_days_ago: last }) {
  const named = Object.entries(kinds);
  const others = times - named.reduce((sum, [, n]) => sum + n, 0);
  const counts = [...named, ...(others ? [["used", others]] : [])].map(([kind, n]) => `${kind} ${n === 1 ? "once" : `${n} times`}`);
  return [...counts, every > 0 && `every ${days(every)}`, last !== null && `last ${days(last)} ago`].filter(Boolean).join(", ");
}

function days(value) {
  const [unit, size] = [["day", 1], ["hour", 1 / 24]].find(([, least]) => value >= least) ?? ["minute", 1 / 1440];
  return plural(Math.max(1, Math.round(value / size)), unit);
}

/** The shared words; without shared words, the shared trigrams. */
function matched({ matched: grams }) {
  const words = grams.filter((gram) => gram.startsWith("=")).map((gram) => gram.slice(1));
  if (words.length) return sentence(`Words: ${words.join(", ")}.`);
  return sentence(grams.length ? `No word; parts of words: ${grams.join(", ")}.` : "No word, and no part of one.");
}

function parts(explained, item) {
  const rows = Object.entries(explained?.score_parts ?? {}).filter(([name]) => PARTS[name]);
  return h("dl", { class: "pairs" },
    h("div", {}, h("dt", {}, "Score"), h("dd", {}, score(item.score))),
    rows.map(([name, value]) => h("div", {}, h("dt", {}, PARTS[name][0], h("small", {}, noteOf(name, explained))), h("dd", {}, number(value)))),
    explained?.score_parts.without_sign && h("div", {}, h("dt", {}, "Sign"), h("dd", {}, "left out")));
}

/** What a part of the score is; of boosts, the rules that they are of. */
function noteOf(name, { uses, boosts = [] }) {
  if (name === "repeat" && uses) return past(uses);
  if (name === "boosts") return boosts.map(({ rule, by }) => `${rule ?? "the request"} ${signed(by)}`).join(", ");
  return PARTS[name][1];
}

function nearestOf(item, version) {
  const place = h("div", { class: "nearest" }, sentence("Loading…"));
  const key = `${version} ${item.id}`;
  if (!nearest.has(key)) nearest.set(key, get(`v1/items/${inPath(item.id)}/similar`, { k: 5 }));
  nearest.get(key).then(({ items }) => {
    remember(items);
    const share = shares(items);
    fill(place, items.length ? h("ul", { class: "bars" }, items.map((each, position) => h("li", {},
      h("button", { type: "button", class: "link bar-name", title: "Add to the history", on: { click: () => addToHistory(each.id) } }, nameOf(each)),
      bar(share[position]), h("span", { class: "figure" }, score(each.score))))) : sentence("It has no neighbours."));
  }, (error) => {
    nearest.delete(key);
    fill(place, sentence(error.message, "warning"));
  });
  return place;
}
