/** The part of the plane that is shown: its centre, and pixels per unit. The plane is the square from 0 to 1. */

const CLOSEST = 400;

export function createCamera() {
  const camera = {
    x: 0.5, y: 0.5, scale: 1, width: 1, height: 1, fit: 1,
    /** Take the size of the canvas in pixels; the first size shows everything. */
    resize(width, height) {
      const { zoom } = camera;
      Object.assign(camera, { width, height, fit: Math.min(width, height) * 0.94 });
      camera.scale = camera.fit * zoom;
    },
    get zoom() { return camera.scale / camera.fit; },
    /** Move by pixels. */
    pan(dx, dy) {
      camera.x = clamp(camera.x - dx / camera.scale);
      camera.y = clamp(camera.y - dy / camera.scale);
    },
    /** Zoom by a factor; the point at these pixels stays. */
    zoomAt(factor, px = camera.width / 2, py = camera.height / 2) {
      const [x, y] = camera.toPlane(px, py);
      camera.scale = Math.max(camera.fit * 0.6, Math.min(camera.fit * CLOSEST, camera.scale * factor));
      camera.x = clamp(x - (px - camera.width / 2) / camera.scale);
      camera.y = clamp(y - (py - camera.height / 2) / camera.scale);
    },
    reset() { Object.assign(camera, { x: 0.5, y: 0.5, scale: camera.fit }); },
    toPlane: (px, py) => [camera.x + (px - camera.width / 2) / camera.scale, camera.y + (py - camera.height / 2) / camera.scale],
    toPixels: (x, y) => [(x - camera.x) * camera.scale + camera.width / 2, (y - camera.y) * camera.scale + camera.height / 2],
  };
  return camera;
}

const clamp = (value) => Math.max(0, Math.min(1, value));
