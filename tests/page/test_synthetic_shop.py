"""The synthetic shop from its events to the page: what is shown is what a trained model answers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.page.conftest import KEY, OpenView, give_key
from tests.support.service_process import Process
from tests.support.shops import small_shop
from turret.training.commands import train_run
from turret.training.export.export import export
from turret.training.run import Run


@pytest.mark.nightly
def test_a_trained_shop_is_tried_mapped_and_shown(
    tmp_path: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    data = small_shop(tmp_path, 200, 300)
    for version in ("first", "second"):
        train_run(data.folder, "demo", tmp_path / version, ["training.epochs=1"])
        export(Run.read(tmp_path / version), data, tmp_path / "models", version)
    service = start(tmp_path / "models", admin_key=KEY)
    history = [str(item) for item in data.item_ids.ids(data.history(0, "end"))][-5:]
    events = [{"event_id": str(n), "user_id": "me", "item_id": item} for n, item in enumerate(history)]
    assert service.client.post("/v1/events", json={"events": events}).status_code == 200
    view = open_view(service, "#try?user=me")
    view.wait_for_items()
    answer = service.client.post("/v1/recommend", json={"user_id": "me", "k": 10}).json()
    assert view.titles() == [item["fields"]["title"] for item in answer["items"]]
    view.open("#map?user=me&colour=genres")
    view.wait_for("() => Number(document.getElementById('map')?.dataset.frames) > 0")
    give_key(view, "admin", KEY)
    view.open("#compare?user=me&version=second")
    view.wait_for("() => document.querySelectorAll('#overall table').length > 1")
