/** Whether this page may call /admin; if not, a sentence on where it may. */

import { settings } from "../app/api.js";
import { h, sentence } from "../app/dom.js";

/** Null where the admin calls are here, else the sentence with the link to the same state. */
export function adminElsewhere(what) {
  if (settings.admin_here) return null;
  if (!settings.admin_url) return sentence(`${what} needs the admin calls, which have a port of their own; this address does not have them.`);
  return h("p", { class: "sentence", id: "admin-elsewhere" }, `${what} needs the admin calls, which have a port of their own. Open `,
    h("a", { href: new URL(location.hash, settings.admin_url).href }, "this view there"), ".");
}
