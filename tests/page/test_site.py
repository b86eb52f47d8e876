"""The site of the documents in a real browser: search, dark colours, a narrow screen, and no other host."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.site import build
from tests.page.conftest import View

PAGES = ("index.html", "documents.html", "serving.html", "reference_client.html")
# The step of a picture whose text leaves its box, or null.
TOO_LONG = """() => [...document.querySelectorAll('.step')].find(step => {
  const box = step.querySelector('rect').getBBox();
  return [...step.querySelectorAll('text')].some(text => {
    const { x, y, width, height } = text.getBBox();
    return x + width > box.x + box.width - 4 || y < box.y || y + height > box.y + box.height;
  });
})?.textContent ?? null"""


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a line for each request."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    assert build(folder / "source", folder / "site") == 0
    return folder / "site"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address at which the site is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def view(browser: Any, address: str) -> Iterator[View]:
    """A narrow screen of somebody who prefers dark colours; no error, and no request to another host."""
    context = browser.new_context(color_scheme="dark", viewport={"width": 390, "height": 800})
    view = View(context.new_page(), address)
    yield view
    view.check()
    context.close()


@pytest.mark.process
def test_pages_are_dark_for_those_who_prefer_it_and_fit_a_narrow_screen(view: View) -> None:
    for page in PAGES:
        view.open(page)
        view.page.wait_for_load_state("networkidle")
        assert view.page.evaluate("document.body.dataset.mdColorScheme") == "slate"
        assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.process
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_front_page_shows_its_pictures_in_the_colours_of_the_reader(
    browser: Any, address: str, scheme: str
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 800})
    view = View(context.new_page(), address).open("index.html")
    view.page.wait_for_load_state("networkidle")
    shown = view.page.evaluate("[...document.images].map(image => [image.currentSrc, image.naturalWidth])")
    assert {Path(source).name for source, _ in shown} == {f"overview_{scheme}.svg", f"page_{scheme}.gif"}
    assert all(width > 300 for _, width in shown)
    title = "From a log of events to a service that recommends each user's next items"
    assert view.page.title() == f"{title} - Turret"
    view.check()
    context.close()


@pytest.mark.process
def test_the_texts_of_the_overview_stay_in_their_boxes(view: View) -> None:
    view.open("overview_light.svg")
    assert view.page.locator(".step").count() == 6
    assert view.page.evaluate(TOO_LONG) is None


@pytest.mark.process
def test_the_search_finds_a_call_of_the_reference(view: View) -> None:
    """The index is made with the site, and searched in the browser."""
    view.open("index.html")
    view.page.wait_for_load_state("networkidle")
    view.page.keyboard.press("/")
    view.page.locator("input[aria-label=Search]").fill("roll_back_rules")
    view.page.get_by_text("Client.roll_back_rules").first.click()
    view.page.wait_for_url("**/reference_client.html*")


@pytest.mark.process
def test_every_page_that_llms_txt_lists_is_there_as_markdown(site: Path) -> None:
    lines = (site / "llms.txt").read_text("utf-8").splitlines()
    listed = [line.partition("](")[2].partition(")")[0] for line in lines if line.startswith("- [")]
    assert len(listed) > 40
    full = (site / "llms-full.txt").read_text("utf-8")
    for name in listed:
        assert (site / name).read_text("utf-8").strip() in full
