/** Try: a history, the controls, and the recommendations that follow. */

import { KeyError, post } from "../app/api.js";
import { loadFields, remember } from "../app/catalog.js";
import { fill, h, sentence } from "../app/dom.js";
import { plural } from "../app/format.js";
import { latest } from "../app/latest.js";
import { state } from "../app/state.js";
import { bodyOf, callOf } from "../query/body.js";
import { createPanel } from "../query/panel.js";
import { messagesOf } from "./answer.js";
import { createPlan } from "./plan.js";
import { createRequest } from "./request.js";
import { createResults } from "./results.js";

export function create() {
  const heading = h("h1", { tabindex: "-1" }, "Try");
  const panel = createPanel();
  const messages = h("div", { class: "messages", id: "messages" });
  const status = h("p", { class: "status", id: "status", role: "status" });
  const results = createResults(() => recommend());
  const plan = createPlan(() => recommend());
  const request = createRequest();
  const ask = latest((signal, body) => post(callOf(state), body, { signal }));
  let asked = null;

  async function recommend(fields = loadFields()) {
    const body = bodyOf(state, { explain: results.needsExplanation || plan.needsExplanation });
    asked = JSON.stringify(body);
    if (await panel.settle()) {
      results.clear();
      status.textContent = "";
      fill(messages, sentence("Type a question: this version answers questions in words."));
      return;
    }
    const begun = performance.now();
    try {
      const [answer] = await Promise.all([ask(body), fields]);
      remember(answer.items);
      fill(messages, messagesOf(answer, state));
      results.show(answer);
      plan.show(answer);
      status.textContent = `${plural(answer.items.length, "item")} from version ${answer.version} in ${Math.max(1, Math.round(performance.now() - begun))} ms`;
    } catch (error) {
      asked = null;
      status.textContent = "";
      if (error instanceof KeyError) results.clear();
      fill(messages, sentence(error.field ? `${error.field}: ${error.message}` : error.message, "warning"));
    }
  }

  async function update() {
    panel.update();
    request.update();
    const body = bodyOf(state, { explain: results.needsExplanation || plan.needsExplanation });
    if (JSON.stringify(body) !== asked) await recommend();
  }

  async function refresh() {
    const fields = loadFields();
    fields.then(() => panel.update(), () => {}); // the answer reports a failure
    panel.update();
    request.update();
    await recommend(fields);
  }

  const element = h("div", { class: "view try" },
    h("div", { class: "view-head" }, heading, h("p", { class: "lead" }, "What is recommended for this history or question, and why?")),
    h("div", { class: "split" }, panel.element,
      h("section", { class: "answer", "aria-label": "Recommendations" },
        h("div", { class: "row baseline" }, h("h2", {}, "Recommendations"), status),
        messages, results.element, plan.element, request.element)));
  return { element, heading, update, refresh, leave: () => {} };
}
