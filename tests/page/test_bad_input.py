"""Addresses that name what is not there, and bundles of earlier releases."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import contents
from tests.page.conftest import OpenView
from tests.support.service_process import Process
from turret.tower.bundle.publish import publish


def test_a_history_with_items_that_are_gone_is_said(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#try?history=m001,gone,m002")
    view.wait_for_items()
    view.page.locator("#history-gone:not([hidden])").wait_for()
    assert (
        "1 item of this history is not in the live version" in view.page.locator("#history-gone").inner_text()
    )
    assert "gone" in view.page.locator("#messages").inner_text()


def test_a_number_of_items_that_can_not_be_used_is_said(service: Process, open_view: OpenView) -> None:
    view = open_view(service)
    view.wait_for_items()
    view.page.locator("#k").fill("0")
    view.page.get_by_text("The answer keeps the last number.").wait_for()
    assert len(view.ids()) == 10
    view.page.locator("#k").fill("3")
    view.wait_for_items(3)
    assert view.page.get_by_text("The answer keeps the last number.").count() == 0


def test_a_history_that_is_too_long_keeps_its_newest_items_and_says_so(
    service: Process, open_view: OpenView
) -> None:
    history = [f"m{number % 150:03d}" for number in range(1001)]
    view = open_view(service, f"#try?history={','.join(history)}")
    view.wait_for_items()
    assert "1001 items" in view.page.locator("#address").inner_text()
    assert view.history() == history[1:]


def test_the_names_of_items_with_long_ids_are_found(
    tmp_path: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    ids = [f"{'é' * 400}{number}" for number in range(20)]
    made = contents(ids=ids)
    publish(tmp_path, replace(made, fields={"title": [f"Title {number}" for number in range(20)]}))
    view = open_view(start(tmp_path), f"#try?history={','.join(ids)}")
    view.page.get_by_text("Title 19").first.wait_for()
    assert view.page.locator("#history .gone").count() == 0


def test_a_field_may_have_the_name_of_a_property_of_every_object(
    tmp_path: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    made = contents()
    count = len(made.item_vectors)
    texts = [("a", "b")[n % 2] for n in range(count)]
    publish(tmp_path, replace(made, fields={"__proto__": texts, "constructor": texts}))
    view = open_view(start(tmp_path))
    view.page.locator("#results > li").first.wait_for()
    for name in ("__proto__", "constructor"):
        view.page.locator("#filter-add").select_option(name)
        view.page.get_by_role("group", name=f"Values of {name}").get_by_label("a", exact=True).check()
    assert "__proto__%22%3A%7B%22any_of" in view.page.url
    assert "constructor%22%3A%7B%22any_of" in view.page.url


def test_a_filter_that_has_no_editor_is_applied_and_can_be_removed(
    service: Process, open_view: OpenView
) -> None:
    view = open_view(service, "#try?filter=%7B%22any%22%3A%5B%7B%22year%22%3A%7B%22lte%22%3A1951%7D%7D%5D%7D")
    view.wait_for_items(6)
    view.page.get_by_text("From the address; it can be removed here.").wait_for()
    view.page.get_by_role("button", name="Remove the filter of any").click()
    view.wait_for_items()


def test_a_withdrawn_item_of_a_history_still_counts(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    service = start(movie_bundles, store="memory://")
    assert service.client.delete("/v1/items/m001").status_code == 200
    view = open_view(service, "#try?history=m001")
    view.page.locator("#history").get_by_text("withdrawn").wait_for()
    assert view.page.locator("#history-gone").is_hidden()


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
