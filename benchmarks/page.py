"""How fast the page is in a real browser, on a service of 100,000 items: `python -m benchmarks.page --json`.

- `first_paint_ms`: the first contentful paint of a browser that has never seen the page, the median;
- `assets_kb`: all files of the page as a proxy sends them, compressed, in 1,000 bytes;
- `search_p99_ms`: a search of the catalog as the page sends it during typing, from the call to the parsed
  answer.
"""

import gzip
import random
from statistics import median
from typing import Any

from playwright.sync_api import Browser, ViewportSize

from benchmarks.harness import Options, run
from benchmarks.page_pictures import chromium
from benchmarks.processes import running_service
from benchmarks.serving_shop import served_shop
from turret.data.prepared import PreparedData
from turret.service.http.routes.page import STATIC

ITEMS, QUICK_ITEMS = 100_000, 5_000
LOADS, SEARCHES = 20, 1_000
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


def measure(options: Options) -> dict[str, Any]:
    """Measure all figures on one service."""
    shop = served_shop(QUICK_ITEMS if options.quick else ITEMS)
    titles = [str(title) for title in PreparedData.open(shop.bundles.parent / "prepared").fields["title"]]
    with running_service(shop.bundles) as service, chromium() as browser:
        paints = [_first_paint(browser, service.url) for _ in range(5 if options.quick else LOADS)]
        searches = sorted(_search(browser, service.url, titles, 100 if options.quick else SEARCHES))
    files = [path.read_bytes() for path in STATIC.rglob("*") if path.is_file() and path.suffix != ".md"]
    return {
        "items": shop.items,
        "first_paint_ms": median(paints),
        "first_paint_worst_ms": max(paints),
        "assets_kb": sum(min(len(file), len(gzip.compress(file))) for file in files) / 1e3,
        "search_p50_ms": median(searches),
        "search_p99_ms": searches[int(len(searches) * 0.99)],
    }


def _first_paint(browser: Browser, url: str) -> float:
    context = browser.new_context(viewport=VIEWPORT)  # without a cache
    page = context.new_page()
    page.goto(f"{url}/")
    painted: float = page.evaluate(_FIRST_PAINT)
    context.close()
    return painted


def _search(browser: Browser, url: str, titles: list[str], count: int) -> list[float]:
    """Search for beginnings of words of titles, after a first search that reads the texts."""
    drawn = random.Random(0)
    words = [drawn.choice(drawn.choice(titles).split()) for _ in range(count)]
    queries = [word[: drawn.randint(1, len(word))] for word in words]
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{url}/")
    page.evaluate(_SEARCHES, ["the"])
    times: list[float] = page.evaluate(_SEARCHES, queries)
    return times


if __name__ == "__main__":
    run(measure, needs_data=False)
