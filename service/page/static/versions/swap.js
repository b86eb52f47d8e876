/** Activating a version and rolling back, each after a question. */

import { post } from "../app/api.js";
import { button, fill, h, sentence } from "../app/dom.js";
import { beat, pulse } from "../app/pulse.js";
import { gateReport } from "./gate.js";

/** Ask, then make a version live. */
export function activate({ version, gate }) {
  const { show, body } = question(`Activate version ${version}?`, [
    h("p", {}, `It replaces version ${pulse.live} in every process. The checks run first; if one fails, nothing changes.`),
    h("h3", {}, "The last check"), gateReport(gate)]);
  const run = (force) => show(() => post("admin/activate", force ? { version, force } : { version }), {
    done: (answer) => `Version ${answer.version} is live${answer.previous ? `; before, it was ${answer.previous}` : ""}.${late(answer)}`,
    refused: (error) => error.status === 409 && /with force/.test(error.message)
      && button("Activate with force", () => run(true), { id: "force" }),
  });
  body.actions.prepend(button("Activate", () => run(false), { class: "primary", id: "confirm" }));
}

/** Ask, then make the previous version live again. */
export function rollBack() {
  const { live } = pulse;
  const { show, body } = question("Roll back to the previous version?", [
    h("p", {}, `Version ${live} is replaced by the one that was live before it.`)]);
  const run = () => show(() => post("admin/rollback", { version: live }), { done: (answer) => `Version ${answer.version} is live again.${late(answer)}`, refused: () => null });
  body.actions.prepend(button("Roll back", run, { class: "primary", id: "confirm" }));
}

function late({ behind = [], replicas_behind: replicas = [] }) {
  return behind.length || replicas.length ? ` Still loading it: ${[...behind.map((process) => `process ${process}`), ...replicas].join(", ")}.` : "";
}

function question(title, content) {
  const result = h("div", { role: "status", class: "messages" });
  const close = () => dialog.close();
  const actions = h("div", { class: "buttons" }, button("Cancel", close, { id: "cancel" }));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", on: { close: () => dialog.remove() } },
    h("h2", { id: "dialog-title" }, title), content, result, actions);
  document.body.append(dialog);
  dialog.showModal();

  async function show(work, { done, refused }) {
    for (const each of actions.children) each.disabled = true;
    fill(result, sentence("Checking and loading…"));
    let after = null;
    try {
      fill(result, sentence(done(await work())));
    } catch (error) {
      fill(result, sentence(error.message, "warning"));
      if (error.status === 401 || error.status === 403) close();
      after = refused(error);
    }
    fill(actions, after, button("Close", close, { id: "cancel" }));
    actions.firstElementChild.focus();
    await beat();
  }
  return { show, body: { actions } };
}
