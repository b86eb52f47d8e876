/** The catalog as the live version has it: its fields, the names and pictures of items. */

import { get, settings } from "./api.js";
import { h } from "./dom.js";
import { inUnit, text } from "./format.js";

let loading = null;
/** The answer of /v1/fields; an answer without fields before that has arrived. */
export let catalog = { version: null, title: null, picture: null, show: [], fields: [] };
const known = new Map();
const LONGEST_ADDRESS = 8000; // the service refuses a head of more than 16 kB

/** Load the fields, once a live version. */
export function loadFields() {
  loading ??= get("v1/fields").then((answer) => (catalog = answer), (error) => {
    loading = null;
    throw error;
  });
  return loading;
}

/** Forget everything: another version is live. */
export function forgetCatalog() {
  loading = null;
  known.clear();
}

/** Remember items of an answer, so that their names need no further call. */
export function remember(items) {
  if (known.size > 20000) known.clear();
  for (const item of items) known.set(String(item.id), item);
}

/** Split ids into parts of at most 50 whose addresses the service takes. */
export function* inAddresses(ids) {
  let [part, length] = [[], 0];
  for (const id of ids) {
    const more = new URLSearchParams({ id }).toString().length + 1;
    if (part.length === 50 || length + more > LONGEST_ADDRESS) {
      yield part;
      [part, length] = [[], 0];
    }
    part.push(id);
    length += more;
  }
  if (part.length) yield part;
}

/** Look items up by id; resolves to a Map of the known items. */
export async function lookUp(ids, signal) {
  const missing = [...new Set(ids)].filter((id) => !known.has(id));
  for (const part of inAddresses(missing)) remember((await get("v1/items", { id: part, limit: 50 }, { signal })).items);
  return new Map(ids.filter((id) => known.has(id)).map((id) => [id, known.get(id)]));
}

/** The name of an item: its title field, else its id. */
export function nameOf(item) {
  const value = catalog.title === null ? null : item.fields?.[catalog.title];
  return value === null || value === undefined || value === "" ? String(item.id) : text(value, 200);
}

/** The name of an item by its id; the id while the item is unknown. */
export function nameOfId(id) {
  return nameOf(known.get(String(id)) ?? { id });
}

/** Whether a name takes more than a line. */
export const isLong = (name) => name.length > 60;

/** An element with a name; a long name is shown in two lines, and in full under the pointer. */
export function named(tag, name, { class: kind = "title", ...attributes } = {}) {
  return h(tag, { class: isLong(name) ? `${kind} long` : kind, title: isLong(name) && name, ...attributes }, name);
}

const fieldOf = (name) => catalog.fields.find((field) => field.name === name);

/** The name of a field for people: its label, else the name of its column. */
export const labelOf = (name) => fieldOf(name)?.label ?? name;

/** The fields of an item that the catalog names for people; without such names a few fields, short ones first. */
function details(item, most) {
  const isSentence = ([, value]) => value.length > 40;
  const named = catalog.show.map((name) => [name, item.fields?.[name]]);
  const parts = (named.length ? named : Object.entries(item.fields ?? {}))
    .filter(([name, value]) => name !== catalog.title && name !== catalog.picture && !isEmpty(value))
    .map(([name, value]) => [labelOf(name), inUnit(value, fieldOf(name)?.unit, 80)]);
  return named.length ? parts : parts.sort((a, b) => isSentence(a) - isSentence(b)).slice(0, most);
}

const isEmpty = (value) => value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length);

/** A line of details. */
export function detailLine(item, most = 4) {
  const parts = details(item, most);
  return h("span", { class: "details" }, parts.map(([name, value]) =>
    h("span", { class: "detail" }, h("span", { class: "detail-name" }, name), " ", value)));
}

const failed = new Set();

/** The picture of an item; null where no picture can be shown in this catalog, an empty frame where this item has none. */
export function picture(item) {
  if (catalog.picture === null || !settings.pictures.length) return null;
  const address = item.fields?.[catalog.picture];
  const frame = () => h("span", { class: "picture" });
  if (typeof address !== "string" || failed.has(address) || !isAllowed(address)) return frame();
  const image = h("img", {
    class: "picture", src: address, alt: `Picture of ${nameOf(item)}`, loading: "lazy", decoding: "async",
    referrerpolicy: "no-referrer", width: 48, height: 64,
  });
  image.addEventListener("error", () => {
    failed.add(address);
    image.replaceWith(frame());
  });
  return image;
}

function isAllowed(address) {
  try {
    const url = new URL(address);
    return /^https?:$/.test(url.protocol) && settings.pictures.includes(url.origin);
  } catch {
    return false;
  }
}
