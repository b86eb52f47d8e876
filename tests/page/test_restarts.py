"""A service that stops, restarts and changes its version under the page; one without a bundle."""

from collections.abc import Callable
from pathlib import Path

from tests.page.conftest import KEY, OpenView, movies
from tests.support.ports import free_port
from tests.support.service_process import Process
from turret.tower.bundle.publish import publish

HEADERS = {"Authorization": f"Bearer {KEY}"}


def test_a_service_that_stops_and_starts_again_is_said_and_recovered_from(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    port = free_port()
    service = start(movie_bundles, admin_key=KEY, port=port)
    view = open_view(service, "#try?history=m001,m002")
    view.wait_for_items()
    view.allows_lost_connections = True
    service.stop()
    view.page.locator("#k").fill("5")
    view.page.locator("#outage:not([hidden])").wait_for()
    assert "doesn't answer" in view.page.locator("#outage").inner_text()
    start(movie_bundles, admin_key=KEY, port=port)
    view.page.locator("#outage").wait_for(state="hidden")
    view.wait_for_items(5)


def test_another_version_that_goes_live_is_said_and_shown(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    service = start(movie_bundles, admin_key=KEY)
    view = open_view(service, "#try?history=m001,m002")
    view.wait_for_items()
    before = view.ids()
    assert service.client.post("/admin/activate", json={"version": "v2"}, headers=HEADERS).status_code == 200
    view.page.locator("#news:not([hidden])").wait_for()
    assert "Version v2 is live now; before, it was v1." in view.page.locator("#news").inner_text()
    body = {"history": ["m001", "m002"], "k": 10}
    after = [item["id"] for item in service.client.post("/v1/recommend", json=body).json()["items"]]
    view.wait_for_ids(after)
    assert after != before


def test_a_service_without_a_bundle_is_said_until_there_is_one(
    tmp_path: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    root = tmp_path / "empty"
    service = start(root, wait=True)
    view = open_view(service, "about:blank")
    view.allowed_statuses = {503}
    view.open()
    view.page.get_by_text("no version is live yet").first.wait_for()
    publish(root, movies())
    view.wait_for_items()


def test_a_view_that_can_not_be_loaded_is_said(service: Process, open_view: OpenView) -> None:
    view = open_view(service)
    view.wait_for_items()
    view.allows_lost_connections = True
    view.page.route("**/map/view.js", lambda route: route.abort())
    view.page.get_by_role("link", name="Map", exact=True).click()
    view.page.get_by_text("This view could not be loaded. Reload the page").wait_for()
    view.page.get_by_role("link", name="Try", exact=True).click()
    view.wait_for_items()
