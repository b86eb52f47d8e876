"""A catalog of 100,000 items: search, map and recommendations stay usable."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.page.conftest import OpenView, movies
from tests.page.test_try import search
from tests.support.service_process import Process
from turret.tower.bundle.publish import publish

ITEMS = 100_000


@pytest.mark.nightly
def test_a_large_catalog_is_searched_mapped_and_recommended(
    tmp_path: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    root = tmp_path / "large"
    publish(root, movies(count=ITEMS))
    service = start(root)
    view = open_view(service, "#try?history=m000")
    view.wait_for_items()
    assert len(search(view, "amelie garden")) == 12
    assert search(view, "zzzz") == []
    view.open("#map?history=m000&colour=genres")
    view.page.set_default_timeout(60_000)
    view.wait_for("() => Number(document.getElementById('map')?.dataset.frames) > 0")
    assert "100,000 items" in view.page.locator("main").inner_text()
    view.page.locator("#map").focus()
    frames = int(view.page.locator("#map").get_attribute("data-frames"))
    for _ in range(5):
        view.page.keyboard.press("ArrowLeft")
        view.settle()
    assert int(view.page.locator("#map").get_attribute("data-frames")) >= frames + 5
