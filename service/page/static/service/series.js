/** Series of the service's metrics, from successive scrapes of /metrics: at most the last hour. */

const SECONDS = 3600;
const LINE = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-z]+)="((?:[^"\\]|\\.)*)"/g;

/** Parse the Prometheus text format: the samples of each name, with their labels. */
export function parse(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = LINE.exec(line) ?? [];
    if (name === undefined) continue;
    const pairs = [...labels.matchAll(LABEL)].map(([, label, content]) => [label, content.replace(/\\(.)/g, "$1")]);
    if (!samples.has(name)) samples.set(name, new Map());
    samples.get(name).set(labels, { labels: Object.fromEntries(pairs), value: Number(value) });
  }
  return samples;
}

const listed = (samples, name) => [...(samples.get(name)?.entries() ?? [])];
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** The increase of each series of a counter, added up by a label; a counter that fell began again. */
function increases(before, now, name, label, isCounted = () => true) {
  const sums = {};
  for (const [key, { labels, value }] of listed(now, name)) {
    if (!isCounted(labels)) continue;
    const increase = value - (before.get(name)?.get(key)?.value ?? 0);
    sums[labels[label]] = (sums[labels[label]] ?? 0) + (increase < 0 ? value : increase);
  }
  return sums;
}

const total = (...counter) => sum(Object.values(increases(...counter)));

/** A quantile of a histogram's increases by upper bound, linear within a bucket, as Prometheus' histogram_quantile. */
function quantile(cumulative, share) {
  const buckets = Object.entries(cumulative).map(([bound, count]) => [bound === "+Inf" ? Infinity : Number(bound), count])
    .sort(([a], [b]) => a - b);
  const wanted = share * (buckets.at(-1)?.[1] ?? 0);
  if (!wanted) return null;
  let [lower, below] = [0, 0];
  for (const [upper, count] of buckets) {
    if (count >= wanted && count > below) return upper === Infinity ? lower : lower + ((upper - lower) * (wanted - below)) / (count - below);
    [lower, below] = [upper, count];
  }
  return lower;
}

function quantiles(before, now, name, label, isCounted = () => true) {
  const values = new Set(listed(now, name).map(([, { labels }]) => labels[label]));
  return Object.fromEntries([...values].map((value) => {
    const counts = increases(before, now, name, "le", (labels) => labels[label] === value && isCounted(labels));
    return [value, { p50: quantile(counts, 0.5), p99: quantile(counts, 0.99) }];
  }));
}

/** The mean of the values that a summary observed, by a label. */
function means(before, now, name, label) {
  const sums = increases(before, now, `${name}_sum`, label);
  const counts = increases(before, now, `${name}_count`, label);
  return Object.fromEntries(Object.entries(counts).map(([value, count]) => [value, count ? sums[value] / count : null]));
}

const gauges = (now, name, label) => Object.fromEntries(listed(now, name).map(([, { labels, value }]) => [labels[label], value]));
const rates = (counts, seconds) => Object.fromEntries(Object.entries(counts).map(([name, value]) => [name, value / seconds]));

/** The measurements between two scrapes. */
function stepOf(before, now, seconds) {
  const of = (name, ...rest) => [before, now, name, ...rest];
  const answers = increases(...of("turret_answers_total", "source"));
  const count = sum(Object.values(answers));
  const share = (part) => (count ? part / count : null);
  return {
    requests: rates(increases(...of("turret_requests_total", "route")), seconds),
    errors: total(...of("turret_requests_total", "status", ({ status }) => status.startsWith("5"))) / seconds,
    latency: quantiles(...of("turret_request_seconds_bucket", "route", (labels) => labels.class === "2xx")),
    stages: quantiles(...of("turret_stage_seconds_bucket", "stage")),
    fallback: share(answers.popular ?? 0),
    empty: share(total(...of("turret_empty_answers_total", ""))),
    degraded: share(total(...of("turret_degraded_total", "part"))),
    recall: means(...of("turret_recall_at_k", "k")),
    drift: gauges(now, "turret_drift", "of"),
  };
}

/** Turn objects, one a step, into an object of the same shape with lists; null where a step has no value. */
function transposed(values) {
  if (!values.some((value) => value !== null && typeof value === "object")) return values.map((value) => value ?? null);
  const names = new Set(values.flatMap((value) => Object.keys(value ?? {})));
  return Object.fromEntries([...names].map((name) => [name, transposed(values.map((value) => value?.[name]))]));
}

/** Collect scrapes; `times` are in seconds, and each series has a value for each of them. */
export function createSeries() {
  const steps = [];
  let last = null;
  function add(text, time) {
    const samples = parse(text);
    if (last && time > last.time) steps.push({ time, ...stepOf(last.samples, samples, time - last.time) });
    while (steps[0]?.time <= time - SECONDS) steps.shift();
    last = { samples, time };
    return samples;
  }
  return {
    add,
    /** Begin anew with the scrapes that the service kept. */
    begin({ ages, series }, now) {
      steps.length = 0;
      last = null;
      const rows = Object.entries(series);
      ages.forEach((age, n) => add(rows.filter(([, values]) => values[n] !== null).map(([key, values]) => `${key} ${values[n]}`).join("\n"), now - age));
    },
    series: () => {
      const { time: times = [], ...series } = transposed(steps);
      return { times, ...series };
    },
  };
}
