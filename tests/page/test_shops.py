"""A trained shop and a large catalog: what is shown is what the service answers."""

import shutil
from pathlib import Path

import pytest

from tests.page.conftest import KEY, OpenView, give_key, movies
from tests.page.test_try import search
from tests.support.service_process import Start
from tests.support.trained import trained_shop
from turret.tower.bundle.publish import publish

pytestmark = pytest.mark.nightly


def test_a_trained_shop_is_tried_mapped_and_shown(tmp_path: Path, start: Start, open_view: OpenView) -> None:
    shop = trained_shop()
    service = start(shutil.copytree(shop.bundles, tmp_path / "models"), admin_key=KEY)
    history = [str(item) for item in shop.data.item_ids.ids(shop.data.history(0, "end"))][-5:]
    events = [{"event_id": str(n), "user_id": "me", "item_id": item} for n, item in enumerate(history)]
    assert service.client.post("/v1/events", json={"events": events}).status_code == 200
    view = open_view(service, "#try?user=me")
    view.wait_for_items()
    answer = service.client.post("/v1/recommend", json={"user_id": "me", "k": 10}).json()
    assert view.titles() == [item["fields"]["title"] for item in answer["items"]]
    view.open("#map?user=me&colour=genres")
    view.wait_for("() => Number(document.getElementById('map')?.dataset.frames) > 0")
    give_key(view, "admin", KEY)
    view.open("#compare?user=me&version=features")
    view.wait_for("() => document.querySelectorAll('#overall table').length > 1")


def test_a_large_catalog_is_searched_mapped_and_recommended(
    tmp_path: Path, start: Start, open_view: OpenView
) -> None:
    root = tmp_path / "large"
    publish(root, movies(count=100_000))
    view = open_view(start(root), "#try?history=m000")
    view.wait_for_items()
    assert len(search(view, "amelie garden")) == 12
    assert search(view, "zzzz") == []
    view.open("#map?history=m000&colour=genres")
    view.wait_for("() => Number(document.getElementById('map')?.dataset.frames) > 0")
    assert "100,000 items" in view.page.locator("main").inner_text()
    view.page.locator("#map").focus()
    frames = int(view.page.locator("#map").get_attribute("data-frames"))
    for key in ("+", "ArrowLeft", "ArrowUp", "-", "0"):
        view.page.keyboard.press(key)
        view.settle()
    assert int(view.page.locator("#map").get_attribute("data-frames")) >= frames + 5
