/**
 * Paint points into a canvas. Many points are written as pixels into a buffer, which needs no GPU and takes a few
 * milliseconds for 100,000; few points are drawn as smooth discs.
 */

const FEW = 4000;

/**
 * @param {HTMLCanvasElement} canvas
 * @returns {(points: object, codes: Uint8Array|null, colours: string[], camera: object, ratio: number) => void}
 *   `colours[code]` is the colour of a group as #rrggbb, or "" where the group is hidden; the last is that of
 *   points without a value.
 */
export function createPainter(canvas) {
  const context = canvas.getContext("2d");
  let image = null;
  let buffer = null;

  function paintPixels({ count, xs, ys }, codes, colours, camera, radius) {
    const { width, height } = canvas;
    if (image?.width !== width || image?.height !== height) {
      image = context.createImageData(width, height);
      buffer = new Uint32Array(image.data.buffer);
    }
    buffer.fill(0);
    const palette = new Uint32Array(256).fill(packed(colours.at(-1)));
    colours.slice(0, -1).forEach((colour, code) => { palette[code] = packed(colour); });
    const offsets = discOf(radius, width);
    const edge = Math.ceil(radius);
    const { scale } = camera;
    const [left, top] = [width / 2 - camera.x * scale, height / 2 - camera.y * scale];
    const [right, bottom, length] = [width - edge, height - edge, offsets.length];
    for (let i = 0; i < count; i += 1) {
      const px = (xs[i] * scale + left) | 0;
      const py = (ys[i] * scale + top) | 0;
      if (px < edge || py < edge || px >= right || py >= bottom) continue;
      const colour = palette[codes === null ? 0 : codes[i]];
      if (colour === 0) continue;
      const at = py * width + px;
      for (let j = 0; j < length; j += 1) buffer[at + offsets[j]] = colour;
    }
    context.putImageData(image, 0, 0);
  }

  function paintDiscs({ count, xs, ys }, codes, colours, camera, radius) {
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.globalAlpha = 0.85;
    const paths = colours.map(() => new Path2D());
    for (let i = 0; i < count; i += 1) {
      const [px, py] = camera.toPixels(xs[i], ys[i]);
      const path = paths[codes === null ? 0 : Math.min(codes[i], colours.length - 1)];
      path.moveTo(px + radius, py);
      path.arc(px, py, radius, 0, 2 * Math.PI);
    }
    colours.forEach((colour, code) => {
      if (!colour) return;
      context.fillStyle = colour;
      context.fill(paths[code]);
    });
  }

  return (points, codes, colours, camera, ratio) => {
    const isFew = points.count <= FEW;
    const smallest = isFew ? 3.2 : points.count <= 30000 ? 1.3 : 0.8;
    const radius = Math.min(6, smallest * camera.zoom ** 0.4) * ratio;
    (isFew ? paintDiscs : paintPixels)(points, codes, colours, camera, radius);
  };
}

/** #rrggbb as the pixel of a little-endian buffer; 0 for no colour. */
function packed(colour) {
  if (!colour) return 0;
  const rgb = Number.parseInt(colour.slice(1), 16);
  return ((255 << 24) | ((rgb & 255) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
}

/** The distances in the buffer from the centre of a disc to its pixels. */
function discOf(radius, width) {
  const [offsets, edge] = [[], Math.floor(radius)];
  if (radius < 1) return Int32Array.from([0, 1, width, width + 1]);
  for (let dy = -edge; dy <= edge; dy += 1) {
    for (let dx = -edge; dx <= edge; dx += 1) if (dx * dx + dy * dy <= radius * radius) offsets.push(dy * width + dx);
  }
  return Int32Array.from(offsets);
}
