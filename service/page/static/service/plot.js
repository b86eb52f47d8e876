/** A small plot of several series over time, drawn by uPlot. */

import { fill, h } from "../app/dom.js";

let loading = null;

/** Load the library with its stylesheet, once. */
function loadLibrary() {
  loading ??= new Promise((resolve, reject) => {
    const file = (name) => new URL(`../vendored/${name}`, import.meta.url).href;
    document.head.append(h("link", { rel: "stylesheet", href: file("uplot.min.css") }));
    const script = h("script", { src: file("uplot.min.js") });
    script.addEventListener("load", () => resolve(globalThis.uPlot));
    script.addEventListener("error", () => reject(new Error("The plots could not be loaded.")));
    document.head.append(script);
  });
  return loading;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
/** From 0, or close around the values. */
function rangeOf(low, high, fromZero) {
  if (fromZero) return [Math.min(0, low), high > 0 ? high * 1.1 : 1];
  const margin = Math.max((high - low) * 0.2, 0.02);
  return [low - margin, high + margin];
}
const newest = (values) => values.findLast((value) => value !== null && value !== undefined) ?? null;

/**
 * @param {{title: string, hint?: string, format: (value: number) => string, fromZero?: boolean}} options
 * @returns {{element: HTMLElement, show: (times: number[], series: [string, number[]][]) => void, redraw: () => void}}
 */
export function createPlot({ title, hint = "", format, fromZero = true }) {
  const canvas = h("div", { class: "canvas", role: "img" });
  const legend = h("ul", { class: "legend" });
  const element = h("figure", { class: "plot" }, h("figcaption", {}, title), hint && h("p", { class: "hint" }, hint), legend, canvas);
  let plot = null;
  let drawn = "";
  let present = null;

  function describe(series, position = null) {
    const at = (values) => (position === null ? newest(values) : values[position]);
    fill(legend, series.map(([name, values], index) => {
      const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = `var(--plot-${index % 6})`;
      return h("li", {}, swatch, `${name} `, h("span", { class: "figure" }, format(at(values))));
    }));
  }

  async function show(times, series) {
    present = [times, series];
    canvas.setAttribute("aria-label", `${title}, latest: ${series.map(([name, values]) => `${name} ${format(newest(values))}`).join(", ") || "nothing measured"}`);
    if (!series.length || !times.length) {
      plot?.destroy();
      plot = null;
      drawn = "";
      fill(legend);
      return fill(canvas, h("p", { class: "hint" }, "Nothing was measured yet."));
    }
    describe(series);
    const Plot = await loadLibrary();
    const data = [times, ...series.map(([, values]) => values)];
    const names = series.map(([name]) => name).join("\n");
    if (plot && drawn === names) return plot.setData(data);
    plot?.destroy();
    fill(canvas);
    drawn = names;
    const [ink, line] = [colour("--ink-soft"), colour("--line")];
    const axis = { stroke: ink, font: "11px Inter, sans-serif", grid: { stroke: line, width: 1 }, ticks: { show: false } };
    plot = new Plot({
      width: canvas.clientWidth || 320, height: 150, padding: [8, 4, 0, 0], legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
      scales: { y: { range: (_, low, high) => rangeOf(low ?? 0, high ?? 1, fromZero) } },
      axes: [{ ...axis, space: 60, size: 22, values: (_, splits) => splits.map((t) => new Date(t * 1000).toTimeString().slice(0, 5)) },
        { ...axis, size: 62, space: 32, values: (_, splits) => splits.map(format) }],
      series: [{}, ...series.map(([name], index) => ({ label: name, stroke: colour(`--plot-${index % 6}`), width: 1.5, points: { show: false } }))],
      hooks: { setCursor: [(drawnPlot) => describe(present[1], drawnPlot.cursor.idx ?? null)] },
    }, data, canvas);
    return undefined;
  }

  const redraw = () => {
    if (!present) return;
    drawn = "";
    show(...present);
  };
  return { element, show, redraw };
}
