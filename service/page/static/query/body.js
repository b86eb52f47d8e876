/** The body of /v1/recommend for a state. */

/**
 * @param {import("../app/state.js").state} state
 * @param {{explain?: boolean}} options
 */
export function bodyOf(state, { explain = false } = {}) {
  const body = state.user !== null ? { user_id: state.user } : { history: state.history };
  body.k = state.k;
  if (Object.keys(state.filter).length) body.filter = state.filter;
  if (Object.keys(state.cap).length) body.cap = state.cap;
  if (state.diversity) body.diversity = state.diversity;
  if (state.min_score !== null) body.min_score = state.min_score;
  if (state.exclude_seen !== null) body.exclude_seen = state.exclude_seen;
  if (explain) body.explain = true;
  return body;
}
