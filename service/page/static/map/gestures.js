/** Pan and zoom by mouse, touch, wheel and keyboard. */

const STEP = 60;

/**
 * @param {HTMLCanvasElement} canvas
 * @param {object} camera in device pixels
 * @param {{ratio: () => number, onMove: () => void, onHover: (x: number, y: number) => void, onLeave: () => void,
 *   onPick: (x: number, y: number) => void, onPickCentre: () => void}} handlers
 */
export function listen(canvas, camera, { ratio, onMove, onHover, onLeave, onPick, onPickCentre }) {
  const pointers = new Map();
  let travelled = 0;

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) * ratio(), (event.clientY - box.top) * ratio()];
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) travelled = 0;
  });

  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) return onHover(x, y);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const distance = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]);
      camera.zoomAt(distance([x, y]) / Math.max(1, distance(before)), (x + other[0]) / 2, (y + other[1]) / 2);
      camera.pan((x - before[0]) / 2, (y - before[1]) / 2);
    } else camera.pan(x - before[0], y - before[1]);
    travelled += Math.hypot(x - before[0], y - before[1]);
    pointers.set(event.pointerId, [x, y]);
    return onMove();
  });

  const release = (event) => {
    const wasDown = pointers.delete(event.pointerId);
    if (wasDown && event.type === "pointerup" && travelled < 5 * ratio() && !pointers.size) onPick(...place(event));
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", onLeave);

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 30 : 1;
    camera.zoomAt(Math.exp(-event.deltaY * lines * 0.0016), ...place(event));
    onMove();
  }, { passive: false });

  canvas.addEventListener("keydown", (event) => {
    const step = STEP * ratio();
    const action = {
      ArrowLeft: () => camera.pan(step, 0), ArrowRight: () => camera.pan(-step, 0),
      ArrowUp: () => camera.pan(0, step), ArrowDown: () => camera.pan(0, -step),
      "+": () => camera.zoomAt(1.4), "=": () => camera.zoomAt(1.4), "-": () => camera.zoomAt(1 / 1.4),
      0: () => camera.reset(), Enter: onPickCentre,
    }[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
    onMove();
  });
}
