/** The outcomes of the logged answers: the routes beside each other, and whether the canary sells more. */

import { get, KeyError } from "../app/api.js";
import { button, fill, h, sentence, table } from "../app/dom.js";
import { count, moment, percent, signed } from "../app/format.js";
import { entered } from "../app/keys.js";
import { adminElsewhere } from "../versions/admin.js";

const EVERY = 60_000;

/** The kinds of events that a version is trained to predict; without kinds, all events count. */
const targets = ({ kinds }) => Object.keys(kinds ?? {}).filter((name) => kinds[name].role === "target");

function interval({ lift, low, high }) {
  if (lift === null || lift === undefined) return "–";
  const [middle, least, most] = [lift, low, high].map((share) => signed(share * 100));
  return `${middle} % [${least}, ${most}]`;
}

/** The tables and the sentence of an answer. */
function shown(answer) {
  const { comparison, versions, warnings } = answer;
  const places = (row) => row.by_place.slice(0, 3).map((place) => percent(place.share)).join(", ") || "–";
  const hasRevenue = versions.some((row) => row.revenue !== null && row.revenue !== undefined);
  const headings = ["version", "route", "answers", "users", "with an outcome", "places 1, 2, 3", ...(hasRevenue ? ["revenue"] : [])];
  const compared = (route) => comparison[route];
  return [
    comparison
      ? h("p", { class: "sentence", id: "outcome" }, `${comparison.canary.version} beside ${comparison.live.version}: ${comparison.sentence}.`)
      : sentence("No canary has answered beside the newest live version; a canary makes a comparison."),
    warnings.map((warning) => sentence(warning, "warning")),
    table("Answers by version and route", headings, versions.map((row) => [row.version, row.route, count(row.answers), count(row.users),
      percent(row.with_outcome), places(row), ...(hasRevenue ? [count(row.revenue)] : [])])),
    comparison && table("Users of both routes", ["route", "version", "users", "with an outcome", "value a user", "difference"],
      ["live", "canary"].map((route) => [route, compared(route).version, count(compared(route).users), count(compared(route).users_with_outcome),
        compared(route).value_a_user.toFixed(4), route === "canary" ? interval(comparison) : ""])),
    h("p", { class: "status" }, `Counted ${moment(answer.time)}, for ${answer.kinds.length ? `events of the kind ${answer.kinds.join(", ")}` : "all events"} at most ${answer.within} after an answer.`),
  ];
}

export function createOutcomes() {
  const body = h("div", { id: "outcomes" });
  let [isWanted, lacksKey, next] = [false, false, 0];

  async function load() {
    next = Date.now() + EVERY;
    try {
      const version = await get("v1/version");
      fill(body, shown(await get("admin/outcomes", { kind: targets(version) })));
    } catch (error) {
      lacksKey = error instanceof KeyError;
      isWanted = !lacksKey;
      fill(body, lacksKey ? choice() : sentence(error.message));
    }
  }

  function show() {
    [isWanted, lacksKey] = [true, false];
    fill(body, sentence("Counting the outcomes of the logged answers…"));
    return load();
  }

  const choice = () => adminElsewhere("Outcomes") ?? button("Show outcomes", show, { id: "show-outcomes" });
  entered.addEventListener("key", () => { if (lacksKey) show(); });
  fill(body, choice());
  return {
    element: h("section", {}, h("h2", {}, "Outcomes"), body),
    /** Read them again, if somebody wants them and the last ones are a minute old. */
    async refresh() {
      if (!isWanted) fill(body, choice());
      else if (Date.now() >= next) await load();
    },
  };
}
