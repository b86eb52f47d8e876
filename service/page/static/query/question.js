/** A question in words in place of a history, for versions that answer queries. */

import { get } from "../app/api.js";
import { h } from "../app/dom.js";
import { pulse } from "../app/pulse.js";
import { change, state } from "../app/state.js";

/** Whether the live version answers questions; asked once a version. */
export const answersQuestions = (() => {
  let version = null;
  let answer = Promise.resolve(false);
  return () => {
    if (pulse.live !== version) {
      version = pulse.live;
      answer = get("v1/version").then((live) => live.reads_queries === true, () => false);
    }
    return answer;
  };
})();

export function createQuestion() {
  const input = h("input", { id: "question", type: "search", maxlength: "2000", autocomplete: "off", required: true });
  const ask = (event) => {
    event.preventDefault();
    const query = input.value.trim();
    if (query) change({ query, user: null, history: [] });
  };
  const element = h("div", { class: "user-part" },
    h("form", { class: "user-form", on: { submit: ask } },
      h("label", { for: "question" }, "Question"),
      h("div", { class: "row tight" }, input, h("button", { type: "submit" }, "Search"))));
  const update = () => {
    if (document.activeElement !== input) input.value = state.query ?? "";
  };
  return { element, update };
}
