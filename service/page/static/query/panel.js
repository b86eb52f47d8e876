/** The panel of Try and Compare: whose history, and the controls. */

import { h } from "../app/dom.js";
import { change, state } from "../app/state.js";
import { conditionsOf } from "./body.js";
import { createControls } from "./controls.js";
import { createHistory } from "./history.js";
import { createUser } from "./user.js";

export function createPanel() {
  const [list, user, controls] = [createHistory(), createUser(), createControls()];
  let isUserAsked = false;
  const radio = (value, label) => {
    const input = h("input", { type: "radio", name: "source", id: `source-${value}`, value });
    input.addEventListener("change", () => {
      isUserAsked = value === "user";
      if (!isUserAsked && state.user !== null) change({ user: null });
      else place();
    });
    return h("div", { class: "segment" }, input, h("label", { for: input.id }, label));
  };
  const segments = h("div", { class: "segments", role: "radiogroup", "aria-label": "Whose history" }, radio("list", "A list of items"), radio("user", "A stored user"));

  function place() {
    const isUser = isUserAsked || state.user !== null;
    segments.querySelector("#source-user").checked = isUser;
    segments.querySelector("#source-list").checked = !isUser;
    list.element.hidden = isUser;
    user.element.hidden = !isUser;
  }

  const conditions = h("span", { class: "hint", id: "conditions" });
  let shownUser = null;
  function update() {
    if (state.user === null && shownUser !== null) isUserAsked = false;
    shownUser = state.user;
    place();
    if (state.user === null) list.update();
    user.update();
    controls.update();
    conditions.textContent = conditionsOf(state);
  }

  const element = h("div", { class: "panel" },
    h("section", { class: "card", "aria-label": "History" }, h("h2", {}, "History"), segments, list.element, user.element),
    h("details", { class: "card", id: "controls", open: !matchMedia("(max-width: 60rem)").matches }, h("summary", {}, h("h2", {}, "Controls"), conditions), controls.element));
  return { element, update };
}
