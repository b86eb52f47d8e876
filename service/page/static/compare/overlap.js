/** How much two versions agree over a sample of histories. */

import { h, sentence } from "../app/dom.js";
import { count, percent } from "../app/format.js";

const SOURCES = { users: "stored users", golden: "recorded queries of the live version" };

export function overlapOf({ histories, source, overlap_mean: mean, overlap_histogram: tenths, changed_first: changed }) {
  if (!histories) return sentence("There is no history to compare on.");
  const most = Math.max(...tenths, 1);
  const range = (tenth) => `${tenth * 10} to ${tenth * 10 + 10} %`;
  const words = tenths.map((n, tenth) => `${range(tenth)}: ${n}`).join(", ");
  return h("div", {},
    h("p", {}, "On average ", h("strong", {}, percent(mean)), ` of the items are the same, over ${count(histories)} ${SOURCES[source] ?? source}. For ${percent(changed)} the first item changes.`),
    h("div", { class: "histogram", role: "img", "aria-label": `Histories by the share of equal items. ${words}` }, tenths.map((n, tenth) => {
      const column = h("div", { title: `${range(tenth)}: ${n}` });
      column.style.height = `${(n / most) * 100}%`;
      return column;
    })),
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}, "0 % the same"), h("span", {}, "50 %"), h("span", {}, "100 %")));
}
