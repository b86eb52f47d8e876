/** Keys: kept for this tab only, sent in a header only, asked for in a panel when a call needs one. */

import { button, fill, h } from "./dom.js";

const SLOTS = {
  read: { stored: "turret.key", label: "API key", hint: "The service asks for a key. It is kept until this tab is closed." },
  admin: { stored: "turret.admin-key", label: "Admin key", hint: "This needs a key of the scope admin. It is kept until this tab is closed." },
};
/** Fires `key` after a key was entered. */
export const entered = new EventTarget();

/** The key of a slot; an admin key serves reading too, and an API key may have the scope admin. */
export function keyFor(slot) {
  const [first, second] = slot === "admin" ? ["admin", "read"] : ["read", "admin"];
  return sessionStorage.getItem(SLOTS[first].stored) || sessionStorage.getItem(SLOTS[second].stored);
}

/** Show the panel of a slot, with the message of the service if it refused a key. */
export function askForKey(slot, message = "") {
  const panel = document.getElementById("keys");
  const open = panel.querySelector("form");
  if (open?.dataset.slot === slot) {
    if (message) open.querySelector(".key-message").textContent = message;
    return;
  }
  const { label, hint, stored } = SLOTS[slot];
  const input = h("input", {
    type: "password", id: "key", name: "key", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "key-hint key-message",
  });
  const submit = (event) => {
    event.preventDefault();
    const value = input.value.trim();
    if (!value) return;
    sessionStorage.setItem(stored, value);
    fill(panel);
    entered.dispatchEvent(new Event("key"));
  };
  fill(panel, h("form", { class: "notice key-panel", id: "key-panel", "data-slot": slot, on: { submit }, "aria-label": label },
    h("p", { class: "key-message", id: "key-message", role: "alert" }, message),
    h("label", { for: "key" }, label), input,
    h("button", { type: "submit", class: "primary" }, "Use this key"),
    button("Not now", () => fill(panel)),
    h("p", { class: "hint", id: "key-hint" }, hint)));
  if (!document.activeElement || document.activeElement === document.body) input.focus();
}
