"""What happens under an open page: keys that are asked for, a service that stops, another version."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.page.conftest import OpenView, View
from tests.support.ports import held_port
from tests.support.service_app import KEY
from tests.support.service_process import Process
from tests.support.until import until
from turret.service.keys.keys import add_key, new_key, record, remove_key


def enter(view: View, key: str) -> None:
    view.page.locator("#key").fill(key)
    view.page.get_by_role("button", name="Use this key").click()


def until_told(view: View, words: str) -> None:
    view.wait_for("words => document.getElementById('key-message')?.textContent.includes(words)", words)


@pytest.mark.process
def test_a_key_is_asked_for_and_used_and_asked_for_again_when_it_is_revoked(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    """It is never shown, and one without the scope for stored users is told so."""
    file, key, second = movie_bundles.parent / "keys.json", new_key("shop"), new_key("second")
    for made in (key, second):
        add_key(file, record(made.split("_")[1], made, ("read",)))
    service = start(movie_bundles, keys=str(file), admin_key=KEY, store="memory://")

    def is_revoked() -> bool:
        headers = {"Authorization": f"Bearer {key}"}
        return service.client.post("/v1/recommend", json={}, headers=headers).status_code == 401

    view = open_view(service, "#try?history=m001,m002")
    view.allowed_statuses = {401, 403}
    view.page.locator("#key").wait_for()
    enter(view, "not-the-right-key-at-all")
    until_told(view, "wrong, revoked or expired")
    enter(view, key)
    view.wait_for_items()
    view.page.locator("#request > summary").click()
    assert key not in view.page.content()
    assert key not in view.page.evaluate("location.href + JSON.stringify(localStorage)")
    assert "$TURRET_KEY" in view.page.locator("#request").inner_text()
    remove_key(file, "shop")
    until(is_revoked, "the key is revoked")
    view.page.locator("#k").fill("4")
    until_told(view, "revoked")
    enter(view, second)
    view.wait_for_items(4)
    view.page.get_by_label("A stored user").check()
    view.page.locator("#random-user").click()
    until_told(view, "requires the scope write")


@pytest.mark.nightly
def test_a_service_that_stops_and_starts_again_is_said_and_recovered_from(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    port = held_port(open_view)
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
