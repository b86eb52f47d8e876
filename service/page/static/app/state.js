/** The state of the page, in the address: `#try?history=a,b&k=20&filter={...}`. */

export const VIEWS = ["try", "popular", "compare", "map", "service"];
export const DEFAULTS = Object.freeze({
  view: "try", query: null, user: null, history: [], k: 10, filter: {}, boost: [], pin: [], cap: {}, diversity: 0, min_score: null,
  exclude_seen: null, among: "all", version: null, colour: null,
});
const LONGEST = 1000;
/** Fires `state` after each change. */
export const changes = new EventTarget();

/** The present state, and sentences on the parts of the address that were left out. */
export let state = { ...DEFAULTS };
export let problems = [];

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

const READERS = {
  query: (raw) => decode(raw) || undefined,
  user: (raw) => decode(raw) || undefined,
  history: (raw) => raw.split(",").filter(Boolean).map(decode),
  k: (raw) => wholeNumber(decode(raw), 1, 1000),
  filter: (raw) => object(decode(raw)),
  boost: (raw) => list(raw, ({ filter, by }) => isObject(filter) && Object.values(filter).every(isObject) && Number.isFinite(by)),
  pin: (raw) => list(raw, ({ item, position }) => typeof item === "string" && wholeNumber(position, 1, 1000) !== undefined),
  cap: (raw) => {
    const caps = raw.split(",").map((part) => part.split(":"));
    const read = Object.fromEntries(caps.map(([name, n]) => [decode(name), wholeNumber(n, 1, 1000)]));
    return Object.values(read).includes(undefined) ? undefined : read;
  },
  diversity: (raw) => finite(raw, 0, 1),
  min_score: (raw) => finite(raw, -1e30, 1e30),
  exclude_seen: (raw) => ({ true: true, false: false })[raw],
  among: (raw) => (["all", "new", "again"].includes(raw) ? raw : undefined),
  version: (raw) => decode(raw) || undefined,
  colour: (raw) => decode(raw) || undefined,
};

function decode(raw) {
  return decodeURIComponent(raw);
}

function wholeNumber(raw, low, high) {
  const value = Number(raw);
  return raw !== "" && Number.isInteger(value) && value >= low && value <= high ? value : undefined;
}

function finite(raw, low, high) {
  const value = Number(raw);
  return raw !== "" && Number.isFinite(value) && value >= low && value <= high ? value : undefined;
}

function object(raw) {
  const value = JSON.parse(raw);
  return isObject(value) ? value : undefined;
}

function list(raw, isEntry) {
  const value = JSON.parse(decode(raw));
  return Array.isArray(value) && value.every((entry) => isObject(entry) && isEntry(entry)) ? value : undefined;
}

/** Read a hash; what can't be read keeps its default and adds a sentence to `problems`. */
export function parse(hash) {
  const [name, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const read = { ...DEFAULTS };
  const sentences = [];
  if (VIEWS.includes(name)) read.view = name;
  else if (name && name !== "main") sentences.push(`The address names no view “${name}”; this is Try.`);
  for (const part of query.split("&").filter(Boolean)) {
    const [key, raw = ""] = part.split(/=(.*)/s);
    let value;
    try {
      value = Object.hasOwn(READERS, key) ? READERS[key](raw) : undefined;
    } catch {
      value = undefined;
    }
    if (value === undefined) sentences.push(`The address has a “${key}” that this page can't read; it is left out.`);
    else read[key] = value;
  }
  if (read.history.length > LONGEST) {
    sentences.push(`The history of the address has ${read.history.length} items; the newest ${LONGEST} are used.`);
    read.history = read.history.slice(-LONGEST);
  }
  return { read, sentences };
}

/** Write the hash of a state; defaults are left out. */
export function hashOf({ view, ...rest }) {
  const code = encodeURIComponent;
  const parts = [];
  const add = (name, value) => parts.push(`${name}=${value}`);
  if (rest.query !== null) add("query", code(rest.query));
  if (rest.user !== null) add("user", code(rest.user));
  if (rest.history.length) add("history", rest.history.map(code).join(","));
  if (rest.k !== DEFAULTS.k) add("k", rest.k);
  if (Object.keys(rest.filter).length) add("filter", code(JSON.stringify(rest.filter)));
  if (rest.boost.length) add("boost", code(JSON.stringify(rest.boost)));
  if (rest.pin.length) add("pin", code(JSON.stringify(rest.pin)));
  const caps = Object.entries(rest.cap).map(([name, n]) => `${code(name)}:${n}`);
  if (caps.length) add("cap", caps.join(","));
  if (rest.diversity) add("diversity", rest.diversity);
  if (rest.min_score !== null) add("min_score", rest.min_score);
  if (rest.exclude_seen !== null) add("exclude_seen", rest.exclude_seen);
  if (rest.among !== DEFAULTS.among) add("among", rest.among);
  if (rest.version !== null && view === "compare") add("version", code(rest.version));
  if (rest.colour !== null && view === "map") add("colour", code(rest.colour));
  return `#${view}${parts.length ? `?${parts.join("&")}` : ""}`;
}

/** Change parts of the state; the address follows. */
export function change(patch) {
  state = { ...state, ...patch };
  problems = [];
  history.replaceState(null, "", hashOf(state));
  changes.dispatchEvent(new Event("state"));
}

/** Add an item at the end of the history; a stored user's history is replaced by the list. */
export function addToHistory(id) {
  change({ query: null, user: null, history: [...state.history, String(id)] });
}

function readAddress() {
  const { read, sentences } = parse(location.hash);
  state = { ...read, version: read.version ?? (read.view === "compare" ? null : state.version),
    colour: read.colour ?? (read.view === "map" ? null : state.colour) };
  problems = sentences;
  changes.dispatchEvent(new Event("state"));
}

/** Follow the address from now on. */
export function followAddress() {
  addEventListener("hashchange", readAddress);
  readAddress();
}
