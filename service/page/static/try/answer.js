/** The messages of an answer as sentences. */

import { sentence } from "../app/dom.js";
import { plural, text } from "../app/format.js";

const DEGRADED = {
  history: "The stored history could not be read, so the answer does not use it.",
  items: "Recent changes of items could not be read; the answer uses the last known ones.",
  rules: "The version can't apply a default rule, so the answer goes without it.",
  engine: "The vector engine doesn't answer; the items were found without it.",
};

/** The sentences about an answer to `state`. */
export function messagesOf(answer, state) {
  const messages = (answer.degraded ?? []).map((part) => sentence(DEGRADED[part] ?? `Unavailable: ${part}.`, "warning"));
  const unknown = answer.unknown_items ?? [];
  if (unknown.length) {
    messages.push(sentence(`${plural(unknown.length, "item")} of the history or of pins ${unknown.length === 1 ? "is" : "are"} not in version ${answer.version} and ${unknown.length === 1 ? "was" : "were"} skipped: ${text(unknown.slice(0, 10))}${unknown.length > 10 ? ", …" : ""}.`, "warning"));
  }
  if (answer.items.length && answer.items.every((item) => item.source === "popular")) {
    messages.push(sentence("No known history: these are popular items. Their scores are counts of training events."));
  }
  if (answer.items.length && answer.items.every((item) => item.source === "popular_now")) {
    messages.push(sentence("No known history: these are popular now. Their scores are counts of stored events that decay."));
  }
  if (!answer.items.length && state.among === "again") messages.push(sentence("No used item is left: the history has none, or they may not come again, or the conditions leave none."));
  else if (!answer.items.length) messages.push(sentence(state.query !== null ? "No item is found: no word is known, or the filter, the minimum score or the excluded items leave none." : "No item is left: the filter, the minimum score or the excluded items leave none. Relax one of them."));
  else if (answer.exhausted) messages.push(sentence(`Only ${plural(answer.items.length, "item")} fulfilled the conditions; ${state.k} were asked for.`));
  return messages;
}
