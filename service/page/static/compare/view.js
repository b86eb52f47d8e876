/** Compare: the live version and another one, for the same history. */

import { call, get, KeyError, post } from "../app/api.js";
import { loadFields, remember } from "../app/catalog.js";
import { button, fill, h, sentence } from "../app/dom.js";
import { latest } from "../app/latest.js";
import { pulse } from "../app/pulse.js";
import { change, state } from "../app/state.js";
import { comparedOf } from "../query/body.js";
import { createPanel } from "../query/panel.js";
import { adminElsewhere } from "../versions/admin.js";
import { gateReport } from "../versions/gate.js";
import { activate, rollBack } from "../versions/swap.js";
import { columnsOf } from "./columns.js";
import { overlapOf } from "./overlap.js";
import { factsTable, metricsTable, recallTable } from "./tables.js";

export function create() {
  const heading = h("h1", { tabindex: "-1" }, "Compare");
  const panel = createPanel();
  const chooser = h("select", { id: "version" });
  const messages = h("div", { class: "messages", id: "messages" });
  const answers = h("section", { "aria-label": "Recommendations of both versions" });
  const overall = h("div", { class: "stack", id: "overall" });
  const activator = button("Activate…", () => activate(versions.find((each) => each.version === opened)), { class: "primary", id: "activate" });
  const back = button("Roll back…", rollBack, { id: "rollback" });
  const body = h("div", {});
  let versions = [];
  let opened = null;
  let isShown = false;
  let elsewhere = null; // where answers are compared, if not here; measurements are shown all the same

  const open = latest((signal, version) => post("admin/comparison", { version }, { signal }));
  // Every call names its version: another tab may compare another version meanwhile.
  const ofVersion = (path, version) => `admin/comparison${path}?${new URLSearchParams({ version })}`;
  const recommend = latest((signal, version, request) => post(ofVersion("/recommend", version), request, { signal }));
  const tell = (error) => error instanceof KeyError ? fill(messages) : fill(messages, sentence(error.message, "warning"));

  chooser.addEventListener("change", () => change({ version: chooser.value || null }));

  async function show() {
    const version = state.version;
    panel.update();
    if (version !== opened || version === null) await choose(version);
    if (opened !== null && opened === state.version) await ask();
  }

  /** Open a version, or say why it can't be compared. */
  async function choose(version) {
    await close();
    fill(answers);
    fill(overall);
    chooser.value = version ?? "";
    activator.hidden = true;
    const known = versions.find((each) => each.version === version);
    const others = versions.filter((each) => !each.error && each.version !== pulse.live).map((each) => each.version);
    const remedy = others.length ? ` Choose one of ${others.slice(-10).join(", ")}.` : " Export another one into the folder of bundles.";
    if (version === null) return void fill(messages, sentence(others.length ? "Choose a version to compare with the live one." : `There is no other version.${remedy}`));
    if (!known) return void fill(messages, sentence(`There is no version “${version}”.${remedy}`, "warning"));
    if (version === pulse.live) return void fill(messages, sentence(`Version ${version} is live; compare it with another one.${remedy}`));
    if (known.error) return void fill(messages, sentence(`Version ${version} can’t be read: ${known.error}`, "warning"));
    if (elsewhere) {
      fill(messages);
      return void describe(known);
    }
    fill(messages, sentence(`Opening version ${version} beside the live one…`));
    try {
      await open(version);
      if (!isShown) return;
      opened = version;
      fill(messages);
      activator.hidden = false;
      describe(known);
    } catch (error) {
      tell(error);
    }
  }

  async function ask(isAgain = false) {
    try {
      const answer = await recommend(opened, comparedOf(state));
      remember([...answer.live.items, ...answer.other.items]);
      fill(messages);
      fill(answers, columnsOf(answer));
    } catch (error) {
      if (!isAgain && [404, 409].includes(error.status) && opened !== null) { // closed meanwhile
        await post("admin/comparison", { version: opened }).then(() => ask(true), tell);
      } else tell(error);
    }
  }

  function describe(other) {
    const live = versions.find((each) => each.version === pulse.live) ?? { version: pulse.live };
    const overlap = h("div", {}, sentence("Comparing on a sample of histories…"));
    fill(overall,
      !elsewhere && h("section", {}, h("h2", {}, "Overlap"), overlap),
      h("section", { class: "two" }, metricsTable(live, other), h("div", { class: "stack" }, recallTable(live, other), factsTable(live, other))),
      h("section", { id: "gate" }, h("h2", {}, "Gate"), gateReport(other.gate)));
    if (!elsewhere) get(ofVersion("/overlap", other.version)).then((answer) => fill(overlap, overlapOf(answer)), (error) => fill(overlap, sentence(error.message, "warning")));
  }

  addEventListener("pagehide", () => opened !== null && call(ofVersion("", opened), { method: "DELETE", keepalive: true }).catch(() => {}));

  async function close() {
    open.cancel();
    recommend.cancel();
    if (opened === null) return;
    const version = opened;
    opened = null;
    await call(ofVersion("", version), { method: "DELETE" }).catch(() => {});
  }

  async function refresh() {
    isShown = true;
    elsewhere = adminElsewhere("Comparing the answers of two versions");
    back.hidden = Boolean(elsewhere);
    fill(body, toolbar, elsewhere ? h("div", { class: "stack" }, elsewhere, messages, overall) : split);
    try {
      const [answer] = await Promise.all([get("v1/versions"), loadFields()]);
      versions = answer.versions;
    } catch (error) {
      return void tell(error);
    }
    fill(chooser, h("option", { value: "" }, "Choose a version…"), versions.filter((each) => each.version !== pulse.live).map((each) =>
      h("option", { value: each.version, disabled: Boolean(each.error) }, each.error ? `${each.version} (can’t be read)` : each.version)));
    panel.update();
    await close();
    await show();
  }

  const toolbar = h("div", { class: "toolbar" }, h("div", {}, h("label", { for: "version" }, "Compare the live version with"), chooser), activator, back);
  const split = h("div", { class: "split" }, panel.element, h("div", { class: "stack" }, h("div", {}, messages, answers), overall));
  const element = h("div", { class: "view compare" },
    h("div", { class: "view-head" }, heading, h("p", { class: "lead" }, "What changes if another version goes live? Opening one never touches live traffic.")), body);
  const leave = () => { isShown = false; close(); };
  return { element, heading, update: show, refresh, leave };
}
