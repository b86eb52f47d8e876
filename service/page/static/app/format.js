/** Numbers, times and values as text. */

const compact = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, useGrouping: true });
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A number with four significant digits. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return Math.abs(value) >= 1000 ? whole.format(value) : compact.format(value);
}

const four = new Intl.NumberFormat("en", { minimumSignificantDigits: 4, maximumSignificantDigits: 4 });

/** A score: four significant digits, or a whole number as it is. */
export function score(value) {
  return Number.isInteger(value) || Math.abs(value) >= 1000 ? whole.format(value) : four.format(value);
}

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

/** "1 item", "2 items". */
export const plural = (n, one, many = `${one}s`) => `${whole.format(n)} ${n === 1 ? one : many}`;

export const percent = (share) =>
  (share === null || share === undefined ? "–" : `${three.format(share * 100)} %`);

/** A difference with its sign. */
export function signed(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${number(Math.abs(value))}`;
}

/** Seconds in the unit that suits them. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1e-3) return `${compact.format(seconds * 1e6)} µs`;
  return seconds < 1 ? `${compact.format(seconds * 1e3)} ms` : `${compact.format(seconds)} s`;
}

/** ISO 8601 or seconds as date and time of this machine. */
export function moment(value) {
  const date = typeof value === "number" ? new Date(value * 1000) : new Date(value || NaN);
  if (Number.isNaN(date.getTime())) return value ? String(value) : "–";
  return date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** The value of a field as one line. */
export function text(value, limit = 120) {
  const shown = Array.isArray(value) ? value.map((each) => text(each, limit)).join(", ")
    : value === null || value === undefined ? "–"
      : typeof value === "object" ? JSON.stringify(value)
        : typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
  return shorten(shown, limit);
}

/** A value with its unit: 12.5 in EUR is €12.50, and in kg 12.5 kg. */
export function inUnit(value, unit, limit) {
  if (!unit) return text(value, limit);
  if (typeof value === "number" && Intl.supportedValuesOf("currency").includes(unit)) {
    return new Intl.NumberFormat("en", { style: "currency", currency: unit }).format(value);
  }
  return `${text(value, limit)}\u00a0${unit}`;
}

/** At most `limit` characters, cut behind a word if that keeps more than half of them. */
function shorten(text, limit) {
  if (text.length <= limit) return text;
  const cut = [...text].slice(0, limit - 1).join("");
  const end = cut.search(/\s\S*$/);
  return `${(end > limit / 2 ? cut.slice(0, end) : cut).replace(/[\s,;:.–-]+$/, "")}…`;
}

/** The share of the bar of each score: from the lowest (or 0) to the highest. */
export function shares(items) {
  const scores = items.map((item) => item.score);
  const [low, high] = [Math.min(0, ...scores), Math.max(...scores, 0)];
  return scores.map((score) => (high > low ? Math.max(0.01, (score - low) / (high - low)) : 0));
}
