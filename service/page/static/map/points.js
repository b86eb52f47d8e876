/** The points of the map, and the search of the nearest point. */

import { get } from "../app/api.js";

const CELLS = 128;

/** Load the points of the live version; `xs` and `ys` are from 0 to 1. */
export async function loadPoints() {
  const about = await get("v1/map");
  const raw = new DataView(await get("v1/map/points", {}, { as: "arrayBuffer" }));
  const n = Math.floor(raw.byteLength / 4);
  const [xs, ys] = [new Float32Array(n), new Float32Array(n)];
  for (let i = 0; i < n; i += 1) {
    xs[i] = raw.getUint16(4 * i, true) / 65535;
    ys[i] = 1 - raw.getUint16(4 * i + 2, true) / 65535;
  }
  return { ...about, count: n, xs, ys, nearest: nearestIn(xs, ys) };
}

/** Index points by the cells of a grid; the result finds the nearest within a radius, or -1. */
function nearestIn(xs, ys) {
  const cell = (value) => Math.max(0, Math.min(CELLS - 1, Math.floor(value * CELLS)));
  const starts = new Uint32Array(CELLS * CELLS + 1);
  for (let i = 0; i < xs.length; i += 1) starts[cell(ys[i]) * CELLS + cell(xs[i]) + 1] += 1;
  for (let c = 0; c < CELLS * CELLS; c += 1) starts[c + 1] += starts[c];
  const next = starts.slice();
  const order = new Uint32Array(xs.length);
  for (let i = 0; i < xs.length; i += 1) order[next[cell(ys[i]) * CELLS + cell(xs[i])]++] = i;
  return (x, y, radius, isShown) => {
    let [best, least] = [-1, radius * radius];
    for (let row = cell(y - radius); row <= cell(y + radius); row += 1) {
      for (let column = cell(x - radius); column <= cell(x + radius); column += 1) {
        const c = row * CELLS + column;
        for (let at = starts[c]; at < starts[c + 1]; at += 1) {
          const i = order[at];
          const distance = (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
          if (distance <= least && isShown(i)) [best, least] = [i, distance];
        }
      }
    }
    return best;
  };
}
