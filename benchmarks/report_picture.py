"""Pictures of the report of a run for docs/report.md, light and dark, from a run on the synthetic shop.

`python -m benchmarks.report_picture` trains a short run, evaluates it, writes its report, and
takes the pictures in a browser. Needs Playwright and chromium.
"""

import argparse
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, sync_playwright

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise
from turret.training.commands import train_run
from turret.training.pages.commands import report_run
from turret.training.process import set_up_process

DOCS = Path(__file__).parent.parent / "docs"
PICTURES: dict[Literal["light", "dark"], Path] = {
    "light": DOCS / "report.png",
    "dark": DOCS / "report_dark.png",
}
WIDTH, LAST_SECTION = 1040, "training"
SHOP = SyntheticConfig(users=3_000, items=800, events_per_user=25)


def main() -> None:
    """Train, report, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="the program")
    options = parser.parse_args()
    if options.chromium is None:
        raise SystemExit(
            "there is no chromium here; install it (apt-get install chromium), or give --chromium"
        )
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        take(options.chromium, shop_report().resolve())


def shop_report() -> Path:
    """The report of a short run in `var` of the working folder."""
    set_up_process()
    synthesise(SHOP, Path("var/raw"))
    prepare(PrepareConfig(source=Path("var/raw")), Path("var/prepared"))
    data, run = PreparedData.open(Path("var/prepared")), Path("var/run")
    train_run(data.folder, "demo", run, [])
    return report_run(run, None, "test", None, ["all"], None)


def take(chromium: str, report: Path) -> None:
    """Take a picture of the first sections of a report in each colour scheme."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme, path in PICTURES.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme)
            page.goto(report.as_uri())
            page.screenshot(
                path=path, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": _end(page)}
            )
        browser.close()


def _end(page: Page) -> float:
    """The lower end of the last section in the picture."""
    box = page.locator(f"#{LAST_SECTION}").bounding_box()
    if box is None:
        raise RuntimeError(f"the report has no section {LAST_SECTION}")
    return box["y"] + box["height"]


if __name__ == "__main__":
    main()
