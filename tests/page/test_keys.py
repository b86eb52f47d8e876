"""A service with keys: the page asks for one, says when it is refused, and never shows it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.page.conftest import KEY, OpenView, View
from tests.support.service_process import Process
from turret.service.keys.key_file import add_key, remove_key
from turret.service.keys.keys import Scope, new_key, record


@pytest.fixture
def make_key(tmp_path: Path) -> Callable[[str, tuple[Scope, ...]], str]:
    def make(name: str, scopes: tuple[Scope, ...]) -> str:
        key = new_key(name)
        add_key(tmp_path / "keys.json", record(name, key, scopes))
        time.sleep(1.1)  # a service reads its keys again once a second
        return key

    return make


@pytest.fixture
def closed(
    movie_bundles: Path, tmp_path: Path, start: Callable[..., Process], make_key: Callable[..., str]
) -> Process:
    make_key("first", ("read",))
    return start(movie_bundles, keys=str(tmp_path / "keys.json"), admin_key=KEY, store="memory://")


def enter(view: View, key: str) -> None:
    view.page.locator("#key").fill(key)
    view.page.get_by_role("button", name="Use this key").click()


def test_a_key_is_asked_for_and_used(
    closed: Process, open_view: OpenView, make_key: Callable[..., str]
) -> None:
    key = make_key("shop", ("read",))
    view = open_view(closed, "#try?history=m001,m002")
    view.allowed_statuses = {401, 403}
    view.page.locator("#key").wait_for()
    enter(view, "not-the-right-key-at-all")
    view.wait_for(
        "() => document.getElementById('key-message')?.textContent.includes('wrong, revoked or expired')"
    )
    view.wait_for("() => true")
    enter(view, key)
    view.wait_for_items()
    view.page.locator("#request > summary").click()
    assert key not in view.page.content()
    assert key not in view.page.evaluate("location.href + JSON.stringify(localStorage)")
    assert "$TURRET_KEY" in view.page.locator("#request").inner_text()


def test_a_key_without_the_scope_for_stored_users_is_told_so(
    closed: Process, open_view: OpenView, make_key: Callable[..., str]
) -> None:
    view = open_view(closed)
    view.allowed_statuses = {401, 403}
    enter(view, make_key("reader", ("read",)))
    view.wait_for_items()
    view.page.get_by_label("A stored user").check()
    view.page.locator("#random-user").click()
    view.wait_for(
        "() => document.getElementById('key-message')?.textContent.includes('requires the scope write')"
    )


def test_a_key_that_is_revoked_while_the_page_is_open_is_asked_for_again(
    closed: Process, open_view: OpenView, make_key: Callable[..., str], tmp_path: Path
) -> None:
    view = open_view(closed)
    view.allowed_statuses = {401, 403}
    second = make_key("second", ("read",))
    enter(view, make_key("temporary", ("read",)))
    view.wait_for_items()
    remove_key(tmp_path / "keys.json", "temporary")
    view.page.wait_for_timeout(2500)  # the service reads its keys again every second or two
    view.page.locator("#k").fill("4")
    view.wait_for("() => document.getElementById('key-message')?.textContent.includes('revoked')")
    enter(view, second)
    view.wait_for_items(4)
