/** Calls of the service. Errors are sentences: `error.message` is shown as it is. */

import { askForKey, forgetKey, keyFor } from "./keys.js";

/** An answer with an error status. */
export class RefusedError extends Error {
  constructor(status, { field = "", message = "", value } = {}) {
    super(message || `The service answered with status ${status}.`);
    Object.assign(this, { status, field, value });
  }
}
/** A key is missing or was refused; the panel for it is open, and has the reason. */
export class KeyError extends RefusedError {
  constructor(status) { super(status, { message: "This needs a key." }); }
}
/** No answer at all. */
export class OfflineError extends Error {}

/** Fires `offline` when a call gets no answer. */
export const failures = new EventTarget();
export const settings = { pictures: [], admin_here: false, admin_url: null, keys_required: false, half_lives: [], release: "" };

/** Load settings.json. */
export async function loadSettings() {
  Object.assign(settings, await get("page/settings.json", {}, { open: true }));
}

/** GET with a `query` of names and values; a list repeats its name. */
export function get(path, query = {}, options = {}) {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).filter((each) => each !== null && each !== undefined)
      .map((each) => [name, each]));
  const search = new URLSearchParams(pairs).toString();
  return call(search ? `${path}?${search}` : path, options);
}

/** POST a JSON body. */
export function post(path, body, options = {}) {
  return call(path, { ...options, method: "POST", body });
}

/**
 * Call the service.
 * @param {string} path relative to the page
 * @param {{method?: string, body?: any, signal?: AbortSignal, as?: "json" | "text" | "arrayBuffer", open?: boolean, keepalive?: boolean}} options
 *   `as`: the form of the answer; `open`: the call needs no key; `keepalive`: the call outlives the page
 */
export async function call(path, { method = "GET", body, signal, as = "json", open = false, keepalive = false } = {}) {
  const slot = path.startsWith("admin/") ? "admin" : "read";
  const key = open ? null : keyFor(slot);
  const needsKey = !open && (settings.keys_required || slot === "admin");
  if (needsKey && !key) {
    askForKey(slot);
    throw new KeyError(401);
  }
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, keepalive, body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer",
    });
    if (response.ok) return await response[as]();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    failures.dispatchEvent(new Event("offline"));
    throw new OfflineError("The service doesn't answer.");
  }
  const detail = (await response.json().catch(() => ({}))).error;
  if (response.status === 401 || response.status === 403) {
    if (response.status === 401 && key) forgetKey(key);
    const reason = detail?.message.split(";")[0] ?? "the service refused the key"; // the rest says how curl sends a key
    askForKey(slot, key ? `${reason[0].toUpperCase()}${reason.slice(1)}. Enter another one.` : "");
    throw new KeyError(response.status);
  }
  throw new RefusedError(response.status, detail);
}

/** An id in a path. */
export const inPath = (id) => encodeURIComponent(String(id));
