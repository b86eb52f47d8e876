"""Pictures of the page for README and docs/page.md, and of a run's report for docs/report.md.

`python -m benchmarks.page_pictures --data ../shared/data` trains two models on MovieLens (ml-latest-small)
and one on the synthetic shop, whose catalog it also publishes without fields, starts services, writes the
report of the shop's run, and takes the pictures in Chromium. About five minutes; `--work DIR` keeps the
models for another run.
"""

import argparse
import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from benchmarks.harness import DATA
from benchmarks.load import Load, run_load
from benchmarks.processes import Running, post, running_service, turret
from turret.data.prepared import PreparedData

DOCS = Path(__file__).parent.parent / "docs"
WORK = Path("var/benchmarks/page_pictures")
WIDTH = 1280
# Titles of MovieLens: a history that most people can judge.
HISTORY = (
    "Toy Story (1995)",
    "Babe (1995)",
    "Princess Bride, The (1987)",
    "Star Wars: Episode IV - A New Hope (1977)",
)
USERS = 200


# The condition that a view waits for.
RESULTS = "() => document.querySelectorAll('#results > li').length > 5"
COMPARED = "() => document.querySelectorAll('#overall table').length > 1"
MAPPED = "() => Number(document.getElementById('map')?.dataset.frames) > 2"
PLOTS = "() => document.querySelectorAll('.uplot canvas').length > 4"


class Picture(NamedTuple):
    """A view: the file, its address, the colour scheme, the height, and the condition that it waits for."""

    name: str
    address: str
    scheme: Literal["light", "dark"]
    height: int
    ready: str


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the Chromium of the system without a window. Raises SystemExit without one."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise SystemExit("there is no chromium here; install it (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def main() -> None:
    """Train, serve, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help=f"the folder of the data sets ({DATA})")
    parser.add_argument("--work", type=Path, default=WORK, help=f"where models are kept ({WORK})")
    options = parser.parse_args()
    movies = movies_bundles(options.work, options.data)
    shop = _trained_shop(options.work / "shop", has_items=True)
    bare = _trained_shop(options.work / "bare", has_items=False)
    history = ",".join(quote(item, safe="") for item in _ids(options.work / "movies" / "prepared"))
    tried, compared = f"#try?history={history}&k=8", f"#compare?history={history}&version=second"
    pictures = {
        movies: (
            Picture("page_try_light", tried, "light", 1000, RESULTS),
            Picture("page_try_dark", tried, "dark", 1000, RESULTS),
            Picture("page_compare_light", compared, "light", 1250, COMPARED),
            Picture("page_map_dark", f"#map?history={history}&colour=genres", "dark", 1000, MAPPED),
        ),
        bare: (Picture("page_bare_light", "#try?history=i0007,i0042", "light", 900, RESULTS),),
        shop: (Picture("page_service_dark", "#service", "dark", 1250, PLOTS),),
    }
    with chromium() as browser:
        for bundles, chosen in pictures.items():
            with running_service(bundles) as service:
                for picture in chosen:
                    _take(browser, service, picture)
        _take_report(browser, options.work / "shop" / "run")


def _take(browser: Browser, service: Running, picture: Picture) -> None:
    viewport = ViewportSize(width=WIDTH, height=picture.height)
    context = browser.new_context(viewport=viewport, color_scheme=picture.scheme)
    page = context.new_page()
    page.goto(service.admin)
    page.evaluate("key => sessionStorage.setItem('turret.admin-key', key)", service.key)
    page.goto("about:blank")
    page.goto(f"{service.admin}/{picture.address}")
    if picture.ready == PLOTS:
        _use(service)  # the plots begin with the page
    page.wait_for_function(picture.ready, timeout=60_000)
    if picture.name.startswith("page_try"):
        _open_why(page)
    page.wait_for_timeout(1_500)
    page.screenshot(path=DOCS / f"{picture.name}.png")
    context.close()


def _take_report(browser: Browser, run: Path) -> None:
    """The first sections of a run's report, up to that on training, in each colour scheme."""
    turret("report", "run", run, "--baselines", "all")
    schemes: dict[Literal["light", "dark"], str] = {"light": "report.png", "dark": "report_dark.png"}
    for scheme, name in schemes.items():
        page = browser.new_page(viewport={"width": 1040, "height": 900}, color_scheme=scheme)
        page.goto((run / "report.html").resolve().as_uri())
        box = page.locator("#training").bounding_box()
        assert box is not None
        page.screenshot(
            path=DOCS / name,
            full_page=True,
            clip={"x": 0, "y": 0, "width": 1040, "height": box["y"] + box["height"]},
        )


def _open_why(page: Page) -> None:
    page.locator("#results").get_by_role("button", name="Why").first.click()
    page.locator(".nearest li").first.wait_for()
    page.mouse.move(0, 0)


def _use(service: Running) -> None:
    """Store events and request recommendations for a minute, so that the plots have something to show."""
    drawn = random.Random(0)
    listed = json.loads(post(service.url, "/v1/items?limit=100", "", method="GET"))
    items = [item["id"] for item in listed["items"]]
    for user in range(USERS):
        events = [
            {"event_id": str(number), "user_id": f"u{user}", "item_id": item}
            for number, item in enumerate(drawn.sample(items, 12))
        ]
        post(service.url, "/v1/events", json.dumps({"events": events}))
    users = (f"u{drawn.randrange(int(1.1 * USERS))}" for _ in range(1000))
    bodies = tuple(json.dumps({"user_id": user, "k": 10}) for user in users)
    run_load(Load(service.url, "/v1/recommend", bodies, seconds=70, rate=60))


def movies_bundles(work: Path, data: Path) -> Path:
    """Two versions of MovieLens (ml-latest-small): the second one is trained for longer."""
    folder = work / "movies"
    bundles = folder / "bundles"
    if not (bundles / "second").exists():
        turret("data", "prepare", data / "ml-latest-small", "--to", folder / "prepared", "--overwrite")
        for version, epochs in (("first", 6), ("second", 10)):
            run = folder / f"run-{version}"
            values = (f"training.epochs={epochs}", "tower.item.features=['genres']")
            settings = ("-e", "full_softmax", "--set", values[0], "--set", values[1], "--overwrite")
            turret("train", "--data", folder / "prepared", "--run", run, *settings)
            turret("evaluate", run)
            turret("export", run, "--bundles", bundles, "--version", version)
    return bundles


def _trained_shop(folder: Path, has_items: bool) -> Path:
    """The bundles of the synthetic shop, with the file of its items or without."""
    bundles = folder / "bundles"
    if not (bundles / "current").exists():
        turret("data", "synth", folder / "raw", "--users", 1500, "--items", 1200, "--overwrite")
        source = folder / "raw" if has_items else folder / "raw" / "events.csv"
        turret("data", "prepare", source, "--to", folder / "prepared", "--overwrite")
        turret("train", "--data", folder / "prepared", "--run", folder / "run", "-e", "demo", "--overwrite")
        turret("evaluate", folder / "run")
        turret("export", folder / "run", "--bundles", bundles, "--version", "first")
    return bundles


def _ids(prepared: Path) -> list[str]:
    """The ids of the movies of HISTORY."""
    data = PreparedData.open(prepared)
    rows = {str(title): row for row, title in enumerate(data.fields["title"])}
    return [str(data.item_ids.id(rows[title])) for title in HISTORY if title in rows]


if __name__ == "__main__":
    main()
