/** The call for a state, /v1/recommend or /v1/search, and its body. */

import { labelOf } from "../app/catalog.js";

/** The path of the call. */
export const callOf = (state) => state.query === null ? "v1/recommend" : "v1/search";

/** The same request to two versions: a question is a feature of a request without a history. */
export function comparedOf(state) {
  const { query, ...body } = bodyOf(state);
  return query === undefined ? body : { ...body, history: [], features: { query } };
}

/**
 * @param {import("../app/state.js").state} state
 * @param {{explain?: boolean}} options
 */
export function bodyOf(state, { explain = false } = {}) {
  const body = state.query !== null ? { query: state.query } : state.user !== null ? { user_id: state.user } : { history: state.history };
  body.k = state.k;
  if (Object.keys(state.filter).length) body.filter = state.filter;
  if (Object.keys(state.cap).length) body.cap = state.cap;
  const boost = state.boost.filter(({ filter, by }) => by && Object.values(filter).some((condition) => Object.keys(condition).length));
  if (boost.length) body.boost = boost;
  if (state.pin.length) body.pin = state.pin;
  if (state.diversity) body.diversity = state.diversity;
  if (state.min_score !== null) body.min_score = state.min_score;
  if (state.exclude_seen !== null && state.query === null) body.exclude_seen = state.exclude_seen;
  if (state.among !== "all" && state.query === null) body.among = state.among;
  if (explain) body.explain = true;
  return body;
}

/** The conditions of a state in words, for views without controls; empty without conditions. */
export function conditionsOf(state) {
  const list = (word, names) => names.length > 0 && `${word}${names.length > 1 ? "s" : ""} ${names.map(labelOf).join(", ")}`;
  return [list("filter", Object.keys(state.filter)), list("boost", state.boost.flatMap(({ filter }) => Object.keys(filter))),
    state.pin.length > 0 && `pins ${state.pin.length}`, list("cap", Object.keys(state.cap)),
    state.diversity > 0 && `diversity ${state.diversity}`, state.min_score !== null && `minimum score ${state.min_score}`,
    { new: "new items", again: "used items" }[state.among],
    state.exclude_seen !== null && `used items ${state.exclude_seen ? "left out" : "allowed"}`].filter(Boolean).join("; ");
}
