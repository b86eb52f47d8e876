"""Catalogs full of markup, and of pictures on other hosts."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.page.conftest import KEY, OpenView, give_key, movies
from tests.support.service_process import Start
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
