/** The panel of Try and Compare: whose history, or which question, and the controls. */

import { h } from "../app/dom.js";
import { change, state } from "../app/state.js";
import { conditionsOf } from "./body.js";
import { createControls } from "./controls.js";
import { createHistory } from "./history.js";
import { answersQuestions, createQuestion } from "./question.js";
import { createUser } from "./user.js";

export function createPanel() {
  const [list, user, question, controls] = [createHistory(), createUser(), createQuestion(), createControls()];
  let isUserAsked = false;
  let isQuestion = false;
  const radio = (value, label) => {
    const input = h("input", { type: "radio", name: "source", id: `source-${value}`, value });
    input.addEventListener("change", () => {
      isUserAsked = value === "user";
      isQuestion = value === "question";
      if ((!isUserAsked && state.user !== null) || (!isQuestion && state.query !== null)) change({ user: null, query: null });
      else place();
    });
    return h("div", { class: "segment" }, input, h("label", { for: input.id }, label));
  };
  const segments = h("div", { class: "segments", role: "radiogroup", "aria-label": "Whose history" }, radio("list", "A list of items"), radio("user", "A stored user"), radio("question", "A question"));

  function place() {
    const isAsked = isQuestion || state.query !== null;
    const isUser = !isAsked && (isUserAsked || state.user !== null);
    segments.querySelector("#source-question").checked = isAsked;
    segments.querySelector("#source-user").checked = isUser;
    segments.querySelector("#source-list").checked = !isAsked && !isUser;
    list.element.hidden = isAsked || isUser;
    user.element.hidden = !isUser;
    question.element.hidden = !isAsked;
  }

  const conditions = h("span", { class: "hint", id: "conditions" });
  let shownUser = null;
  function update() {
    if (state.user === null && shownUser !== null) isUserAsked = false;
    shownUser = state.user;
    place();
    if (state.user === null) list.update();
    user.update();
    question.update();
    controls.update();
    conditions.textContent = conditionsOf(state);
  }

  const element = h("div", { class: "panel" },
    h("section", { class: "card", "aria-label": "History" }, h("h2", {}, "History"), segments, list.element, user.element, question.element),
    h("details", { class: "card", id: "controls", open: !matchMedia("(max-width: 60rem)").matches }, h("summary", {}, h("h2", {}, "Controls"), conditions), controls.element));
  /** Wait until it is known whether the live version answers questions; such a version begins with a question. */
  async function settle() {
    const isOfQuestions = await answersQuestions();
    if (isOfQuestions !== isQuestion && state.user === null && !state.history.length && state.query === null) {
      isQuestion = isOfQuestions;
      place();
    }
    return isQuestion && state.query === null;
  }
  return { element, update, settle };
}
