"""Addresses that name what is not there, and bundles of earlier releases."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.page.conftest import OpenView
from tests.service_process import Process


def test_a_history_with_items_that_are_gone_is_said(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#try?history=m001,gone,m002")
    view.wait_for_items()
    view.page.locator("#history-gone:not([hidden])").wait_for()
    assert (
        "1 item of this history is not in the live version" in view.page.locator("#history-gone").inner_text()
    )
    assert "gone" in view.page.locator("#messages").inner_text()


def test_a_bundle_without_a_map_is_said_with_the_remedy(
    bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    view = open_view(start(bundles), "about:blank")
    view.allowed_statuses = {404}
    view.open("#map")
    view.page.get_by_text("export the run again").wait_for()


@pytest.mark.parametrize(
    "part",
    [
        "k=0",
        "k=x",
        "filter=[1",
        "filter=7",
        "diversity=2",
        "min_score=x",
        "cap=a",
        "exclude_seen=maybe",
        "what=1",
        "user=%ff",
    ],
)
def test_a_part_of_the_address_that_can_not_be_read_is_said(
    service: Process, open_view: OpenView, part: str
) -> None:
    view = open_view(service, f"#try?history=m001&{part}")
    view.wait_for_items()
    name = part.partition("=")[0]
    view.page.get_by_text(f"“{name}”").first.wait_for()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("filter=%7B%22nowhere%22%3A%7B%22gte%22%3A1%7D%7D", "nowhere"),
        ("cap=nowhere:1", "nowhere"),
        ("filter=%7B%22year%22%3A%7B%22gte%22%3A%22x%22%7D%7D", "year"),
    ],
)
def test_a_request_that_the_service_refuses_is_said_in_its_words(
    service: Process, open_view: OpenView, part: str, words: str
) -> None:
    view = open_view(service, "about:blank")
    view.allowed_statuses = {422}
    view.open(f"#try?history=m001&{part}")
    view.wait_for("() => document.querySelector('#messages .warning')")
    assert words in view.page.locator("#messages").inner_text()


def test_an_unknown_view_is_said(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#nothing")
    view.page.get_by_text("“nothing”").first.wait_for()
