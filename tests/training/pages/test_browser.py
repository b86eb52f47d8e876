"""The page in a real browser: its policy allows its stylesheet, and it fits the screen."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from turret.data.prepared import PreparedData
from turret.training.markup.document import write_page
from turret.training.pages.run_page import run_page
from turret.training.run import Run

playwright_api = pytest.importorskip(
    "playwright.sync_api", reason="the page is tested with Playwright: pip install playwright"
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    with playwright_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module", params=["evaluated", "hostile"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    run: Run = request.getfixturevalue(request.param)
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(path, run_page(run, PreparedData.open(run.data_folder), "test"))
    return path.as_uri()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 1100), ("light", 360)])
def test_the_page_is_styled_and_asks_for_nothing_else(
    browser: Any, address: str, scheme: Literal["light", "dark"], width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    requests: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("dialog", lambda dialog: messages.append(dialog.message))
    page.goto(address)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("nav a").count() == page.locator("section").count()
    assert requests == [address]
    assert not messages
    page.close()
