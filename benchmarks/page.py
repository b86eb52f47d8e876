"""How fast the page is in a real browser, on a service of 100,000 items.

`python -m benchmarks.page --json` measures, in Chromium on the machine of the service:

- `first_paint_ms`: the first contentful paint of a browser that has never seen the page, median and worst;
- `assets_kb`: all files of the page as nginx sends them, compressed, in 1,000 bytes;
- `search_p99_ms`: a search of the catalog as the page sends it during typing, from the call to the parsed
  answer;
- `recommend_to_paint_ms`: from a click that adds an item to the history until the frame with the next
  recommendations is painted;
- `map_fps`: frames a second while the map of all items is dragged, and zoomed in tenfold
  (`map_zoomed_fps`). The browser draws at most 60.
"""

import gzip
import random
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize

from benchmarks.harness import Options, run
from benchmarks.page_pictures import chromium
from benchmarks.processes import running_service
from benchmarks.serving_shop import served_shop
from turret.data.prepared import PreparedData
from turret.service.http.routes.page import STATIC

ITEMS, QUICK_ITEMS = 100_000, 5_000
LOADS, SEARCHES, CLICKS, MAP_SECONDS = 20, 1_000, 50, 5
VIEWPORT = ViewportSize(width=1280, height=900)

_FIRST_PAINT = """async () => {
  for (;;) {
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    if (paint) return paint.startTime;
    await new Promise(requestAnimationFrame);
  }
}"""
_SEARCHES = """async queries => {
  const times = [];
  for (const query of queries) {
    const begun = performance.now();
    const answer = await fetch(`v1/items?query=${encodeURIComponent(query)}&limit=12`, {cache: 'no-store'});
    await answer.json();
    times.push(performance.now() - begun);
  }
  return times;
}"""
# The first frame after the change is the one that is painted; its callback runs before, the next one after.
_CLICK = """async () => {
  const results = document.getElementById('results');
  const changed = new Promise(done => new MutationObserver((_, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
  }).observe(results, {childList: true}));
  const begun = performance.now();
  results.querySelector('.item-actions .icon').click();
  return await changed - begun;
}"""
_DRAG = """async seconds => {
  const map = document.getElementById('map');
  const box = map.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const send = (type, dx, dy) => map.dispatchEvent(new PointerEvent(type, {
    pointerId: 1, button: 0, buttons: 1, clientX: x + dx, clientY: y + dy, bubbles: true}));
  map.setPointerCapture = () => {};
  send('pointerdown', 0, 0);
  const [first, begun] = [Number(map.dataset.frames), performance.now()];
  let now = begun;
  while (now - begun < 1000 * seconds) {
    now = await new Promise(requestAnimationFrame);
    const angle = (now - begun) / 400;
    send('pointermove', 150 * Math.sin(angle), 150 * Math.cos(angle));
  }
  const drawn = Number(map.dataset.frames) - first;
  send('pointercancel', 0, 0);
  return 1000 * drawn / (now - begun);
}"""


def measure(options: Options) -> dict[str, Any]:
    """All figures, on one service."""
    shop = served_shop(QUICK_ITEMS if options.quick else ITEMS)
    prepared = PreparedData.open(shop.bundles.parent / "prepared")
    titles = [str(title) for title in prepared.fields["title"]]
    with running_service(shop.bundles) as service, chromium() as browser:
        paints = sorted(_first_paint(browser, service.url) for _ in range(5 if options.quick else LOADS))
        page = browser.new_page(viewport=VIEWPORT)
        page.goto(f"{service.url}/#try?history=i000001,i000002")
        page.wait_for_selector("#results > li")
        searches = sorted(_search(page, titles, 100 if options.quick else SEARCHES))
        clicks = sorted(_click(page) for _ in range(5 if options.quick else CLICKS))
        frames = _map_fps(browser, service.url, 1 if options.quick else MAP_SECONDS)
    files = [path.read_bytes() for path in STATIC.rglob("*") if path.is_file() and path.suffix != ".md"]
    return {
        "items": shop.items,
        "first_paint_ms": median(paints),
        "first_paint_worst_ms": paints[-1],
        "assets_kb": sum(min(len(one), len(gzip.compress(one))) for one in files) / 1e3,
        "search_p50_ms": median(searches),
        "search_p99_ms": searches[int(len(searches) * 0.99)],
        "recommend_to_paint_ms": median(clicks),
        "recommend_to_paint_p90_ms": clicks[int(len(clicks) * 0.9)],
        **frames,
    }


def _first_paint(browser: Browser, url: str) -> float:
    context = browser.new_context(viewport=VIEWPORT)  # without a cache
    page = context.new_page()
    page.goto(f"{url}/")
    painted: float = page.evaluate(_FIRST_PAINT)
    context.close()
    return painted


def _search(page: Page, titles: list[str], count: int) -> list[float]:
    """Search for beginnings of words of titles, after a first search that reads the texts."""
    drawn = random.Random(0)
    words = [drawn.choice(drawn.choice(titles).split()) for _ in range(count)]
    queries = [word[: drawn.randint(1, len(word))] for word in words]
    page.evaluate(_SEARCHES, ["the"])
    times: list[float] = page.evaluate(_SEARCHES, queries)
    return times


def _click(page: Page) -> float:
    took: float = page.evaluate(_CLICK)
    page.wait_for_timeout(100)
    return took


def _map_fps(browser: Browser, url: str, seconds: int) -> dict[str, float]:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{url}/#map?colour=genres")
    page.wait_for_function("() => Number(document.getElementById('map')?.dataset.frames) > 0")
    page.wait_for_timeout(1000)
    whole = page.evaluate(_DRAG, seconds)
    for _ in range(5):
        page.get_by_role("button", name="Zoom in").click()
    return {"map_fps": whole, "map_zoomed_fps": page.evaluate(_DRAG, seconds)}


if __name__ == "__main__":
    run(measure, needs_data=False)
