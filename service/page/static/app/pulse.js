/** Whether the service answers, and which version is live: one small call every few seconds while the page is visible. */

import { failures, get, OfflineError } from "./api.js";

const CALM = 5000;
const WORRIED = 1500;

/** `live`: the live version or null; `trouble`: a sentence or null. Fires `live`, `back` and `trouble`. */
export const pulse = Object.assign(new EventTarget(), { live: null, trouble: null });
let timer = 0;
let running = null;

/** Ask now; resolves when the answer is known. */
export function beat() {
  running ??= ask().finally(() => {
    running = null;
    clearTimeout(timer);
    timer = setTimeout(() => document.visibilityState === "visible" && beat(), pulse.trouble ? WORRIED : CALM);
  });
  return running;
}

async function ask() {
  try {
    const { version } = await get("readyz", {}, { open: true });
    const [before, wasTroubled] = [pulse.live, pulse.trouble];
    Object.assign(pulse, { live: version, trouble: null });
    if (wasTroubled) pulse.dispatchEvent(new Event("back"));
    if (before !== version) pulse.dispatchEvent(Object.assign(new Event("live"), { before }));
  } catch (error) {
    const trouble = error instanceof OfflineError ? "The service doesn't answer; trying again." : error.message;
    if (trouble !== pulse.trouble) {
      pulse.trouble = trouble;
      pulse.dispatchEvent(new Event("trouble"));
    }
  }
}

document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && pulse.live && beat());
failures.addEventListener("offline", () => running ?? (pulse.trouble || beat()));
