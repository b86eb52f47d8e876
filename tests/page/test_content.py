"""Catalogs full of markup, addresses that name what is not there, and bundles that lack something."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents
from tests.page.conftest import KEY, OpenView, give_key, movies
from tests.support.service_process import Process, Start
from turret.tower.bundle.publish import BundleContents, publish

MARKUP = (
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 2'>",
    '"><svg onload=window.hit=3>',
    "javascript:window.hit=4",
    "</script><script>window.hit=5</script>",
    "{{7*7}} ${7*7} \u202e right to left",
    "'; window.hit = 6; //",
    "https://evil.example/pixel.png",
)


def hostile(version: str = "v1") -> BundleContents:
    made = movies(version, count=40)
    texts = [MARKUP[n % len(MARKUP)] for n in range(40)]
    fields: dict[str, list[Any]] = {
        "title": [f"{text} {n}" for n, text in enumerate(texts)],
        "<script>window.hit=7</script>": texts,
        "poster": ["https://evil.example/pixel.png"] * 40,
        "tags": [[text, "</option><script>window.hit=8</script>"] for text in texts],
    }
    return replace(made, fields=fields)


@pytest.mark.process
def test_markup_of_a_catalog_is_text_in_every_view(tmp_path: Path, start: Start, open_view: OpenView) -> None:
    root = tmp_path / "hostile"
    publish(root, hostile())
    publish(root, hostile("v2"))
    service = start(root, admin_key=KEY)
    user = "<img src=x onerror=window.hit=9>"
    events = [{"event_id": "1", "user_id": user, "item_id": "m001", "kind": "<b>kind</b>"}]
    assert service.client.post("/v1/events", json={"events": events}).status_code == 200
    view = open_view(service, "#try?history=m001,m002,%3Cscript%3E&k=20")
    view.wait_for_items(20)
    assert any("<script>" in title for title in view.titles())
    view.page.locator("#results").get_by_role("button", name="Why").first.click()
    view.page.locator(".nearest li").first.wait_for()
    view.page.get_by_role("combobox", name="Add an item").fill("script")
    view.page.locator(".found .title").first.wait_for()
    view.page.locator("#filter-add").select_option("tags")
    view.page.get_by_label("A stored user").check()
    view.page.locator("#random-user").click()
    view.page.locator("#stored-history li").first.wait_for()
    give_key(view, "admin", KEY)
    view.open("#compare?history=m001&version=v2")
    view.wait_for("() => document.querySelectorAll('#overall section').length >= 3")
    view.open("#map?history=m001&colour=tags")
    view.wait_for("() => document.querySelectorAll('.groups button').length > 1")
    view.open("#service")
    view.page.get_by_role("heading", name="Versions", exact=True).wait_for()
    assert view.page.evaluate("window.hit ?? null") is None
    assert view.page.locator("img").count() == 0


@pytest.mark.nightly
def test_pictures_are_loaded_from_allowed_origins_alone(
    tmp_path: Path, start: Start, open_view: OpenView
) -> None:
    """No such host is reached from here: what is asserted is which addresses are asked for."""
    root = tmp_path / "pictures"
    made = movies(count=40)
    hosts = ["https://img.example", "https://other.example"]
    posters = [f"{hosts[n % 2]}/{n}.png" for n in range(40)]
    publish(root, replace(made, fields={**made.fields, "poster": posters}))
    service = start(root, page_pictures="https://img.example")
    view = open_view(service, "about:blank")
    asked: list[str] = []

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.abort()

    view.page.context.route(re.compile("^https://"), refuse)
    view.allows_lost_connections = True
    view.open("#try?history=m001,m002&k=20")
    view.wait_for_items(20)
    view.wait_for("() => [...document.images].every(one => one.complete)")
    assert asked
    assert all(url.startswith("https://img.example/") for url in asked)
    view.hosts.discard("img.example")


@pytest.mark.nightly
def test_a_history_with_items_that_are_gone_is_said(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#try?history=m001,gone,m002")
    view.wait_for_items()
    view.page.locator("#history-gone:not([hidden])").wait_for()
    assert (
        "1 item of this history is not in the live version" in view.page.locator("#history-gone").inner_text()
    )
    assert "gone" in view.page.locator("#messages").inner_text()


@pytest.mark.nightly
def test_a_field_may_have_the_name_of_a_property_of_every_object(
    tmp_path: Path, start: Start, open_view: OpenView
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


@pytest.mark.nightly
def test_a_filter_that_has_no_editor_is_applied_and_can_be_removed(
    service: Process, open_view: OpenView
) -> None:
    view = open_view(service, "#try?filter=%7B%22any%22%3A%5B%7B%22year%22%3A%7B%22lte%22%3A1951%7D%7D%5D%7D")
    view.wait_for_items(6)
    view.page.get_by_text("From the address; it can be removed here.").wait_for()
    view.page.get_by_role("button", name="Remove the filter of any").click()
    view.wait_for_items()


@pytest.mark.nightly
def test_a_bundle_without_a_map_is_said_with_the_remedy(
    bundles: Path, start: Start, open_view: OpenView
) -> None:
    view = open_view(start(bundles), "about:blank")
    view.allowed_statuses = {404}
    view.open("#map")
    view.page.get_by_text("export the run again").wait_for()


@pytest.mark.nightly
def test_a_part_of_the_address_that_can_not_be_read_is_said(service: Process, open_view: OpenView) -> None:
    parts = "k=0 k=x filter=[1 filter=7 diversity=2 min_score=x cap=a exclude_seen=maybe what=1 user=%ff"
    view = open_view(service, "about:blank")
    for part in parts.split():
        view.open(f"#try?history=m001&{part}")
        view.wait_for_items()
        view.page.get_by_text(f"“{part.partition('=')[0]}”").first.wait_for()
    view.open("#nothing")
    view.page.get_by_text("“nothing”").first.wait_for()


@pytest.mark.nightly
def test_a_request_that_the_service_refuses_is_said_in_its_words(
    service: Process, open_view: OpenView
) -> None:
    view = open_view(service, "about:blank")
    view.allowed_statuses = {422}
    for part, words in (
        ("filter=%7B%22nowhere%22%3A%7B%22gte%22%3A1%7D%7D", "nowhere"),
        ("cap=nowhere:1", "nowhere"),
        ("filter=%7B%22year%22%3A%7B%22gte%22%3A%22x%22%7D%7D", "year"),
    ):
        view.open(f"#try?history=m001&{part}")
        view.wait_for("() => document.querySelector('#messages .warning')")
        assert words in view.page.locator("#messages").inner_text()
