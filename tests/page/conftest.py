"""The page in a real browser: Playwright drives the Chromium of the system.

The tests wait for conditions of the page, and for no time."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.conftest import contents
from tests.support.service_app import KEY
from tests.support.service_process import Process
from tests.support.tools import require
from turret.tower.bundle.publish import BundleContents, publish
from turret.training.export.item_map import quantised

GENRES = ("Comedy", "Drama", "Science Fiction", "Romance")
_FIRST = ("Amélie", "Star", "Dark", "Silent", "Golden", "Lost", "Étranger", "Winter")
_SECOND = ("Garden", "Wars", "River", "Night", "Letters")
_THIRD = ("", " II", " Returns", " at Sea", " in Łódź")
_TWO_FRAMES = """() => document.fonts.ready.then(
  () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))"""
_REFUSED_LOAD = "Failed to load resource: the server responded with a status of"


def movies(version: str = "v1", count: int = 200, **changes: Any) -> BundleContents:
    """A bundle of invented movies with fields of every kind and a map."""
    made = contents(version, ids=[f"m{number:03d}" for number in range(count)], **changes)
    titles = [f"{first} {second}{third}" for third, second, first in product(_THIRD, _SECOND, _FIRST)]
    fields: dict[str, list[Any]] = {
        "title": titles[:count],
        "genres": [[GENRES[n % 4]] if n % 7 else [GENRES[n % 4], GENRES[(n + 1) % 4]] for n in range(count)],
        "year": [1950 + n % 70 for n in range(count)],
        "country": [("Nederland", "France", "日本")[n % 3] for n in range(count)],
        "subtitled": [n % 2 == 0 for n in range(count)],
    }
    points = quantised(np.asarray(made.item_vectors[:, :2], dtype=np.float64))
    return replace(made, fields=fields, item_map=points)


@pytest.fixture(scope="session")
def published_movies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("movies")
    publish(root, movies())
    publish(root, movies("v2", seed=1))
    return root


@pytest.fixture
def movie_bundles(published_movies: Path, tmp_path: Path) -> Path:
    """A folder with the versions v1, which is live, and v2."""
    return shutil.copytree(published_movies, tmp_path / "movies")


@pytest.fixture(scope="session")
def service(published_movies: Path) -> Iterator[Process]:
    """A service of movies for all tests that change neither its versions nor its items."""
    process = Process(published_movies, store="memory://", admin_key=KEY)
    yield process
    process.close()


# While Playwright runs, its thread has an event loop, and `asyncio.run` of other files' tests refuses.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    require("playwright", "chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


class View:
    """A page of the browser, with all that must not happen in it: errors, and requests to other hosts."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.allowed_statuses: set[int] = set()
        self.allows_lost_connections = False
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(60_000)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        page.on("response", self._on_response)
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def open(self, address: str = "") -> "View":
        """Open an address of the page, such as `#try?k=5`, in a fresh document."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/{address}")
        return self

    def ids(self) -> list[str]:
        rows = self.page.locator("#results > li")
        ids: list[str] = rows.evaluate_all("rows => rows.map(row => row.dataset.id)")
        return ids

    def wait_for(self, condition: str, argument: object = None) -> None:
        self.page.wait_for_function(condition, arg=argument)

    def wait_for_items(self, count: int = 10) -> None:
        """Wait for an answer of so many items."""
        self.wait_for("count => document.querySelectorAll('#results > li').length === count", count)

    def wait_for_ids(self, ids: Sequence[str]) -> None:
        """Wait for an answer of these items."""
        shown = "[...document.querySelectorAll('#results > li')].map(row => row.dataset.id)"
        self.wait_for(f"ids => JSON.stringify({shown}) === ids", json.dumps(ids, separators=(",", ":")))

    def settle(self) -> None:
        """Let the page use the responses that it has, and draw."""
        self.page.evaluate(_TWO_FRAMES)

    def check(self) -> None:
        assert self.errors == []
        assert self.hosts <= {urlsplit(self.url).netloc}

    def _on_response(self, response: Any) -> None:
        if response.status >= 400 and response.status not in self.allowed_statuses:
            self.errors.append(f"{response.status} of {response.url}")

    def _on_console(self, message: Any) -> None:
        if message.type not in ("error", "warning"):
            return
        if message.text.startswith("Canvas2D: Multiple readback"):  # of a test
            return
        if "preloaded using link preload but not used within a few seconds" in message.text:  # a busy machine
            return
        if message.text.startswith(_REFUSED_LOAD):  # `_on_response` knows the address
            return
        if self.allows_lost_connections and "net::ERR_" in message.text:
            return
        self.errors.append(message.text)


OpenView = Callable[..., View]


def give_key(view: View, key: str) -> None:
    """Store an admin key as the page does after its panel, in this tab."""
    view.page.evaluate("key => sessionStorage.setItem('turret.admin-key', key)", key)


@pytest.fixture
def open_view(browser: Any) -> Iterator[OpenView]:
    """Open the page of a service; at the end of the test it is checked."""
    views: list[View] = []
    with ExitStack() as contexts:

        def make(service: Process, address: str = "") -> View:
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            contexts.callback(context.close)
            context.grant_permissions(["clipboard-read", "clipboard-write"])
            views.append(View(context.new_page(), service.urls[0]))
            return views[-1].open(address)

        yield make
        for view in views:
            view.check()
