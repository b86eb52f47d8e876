"""Catalogs full of markup, and of pictures on other hosts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.page.conftest import OpenView, give_key, movies
from tests.support.service_app import KEY
from tests.support.service_process import Start
from turret.service.keys.keys import add_key, new_key, record
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


EARLIER = """turret_requests_total{route="/v1/recommend",status="200"} 1000.0"""
LATER = """# HELP turret_requests_total Answered requests
turret_requests_total{route="/v1/recommend",status="200"} 1030.0
turret_requests_total{route="/v1/recommend",status="503"} 10.0
turret_request_seconds_bucket{class="2xx",le="0.001",route="/v1/recommend"} 0.0
turret_request_seconds_bucket{class="2xx",le="0.002",route="/v1/recommend"} 2.0
turret_request_seconds_bucket{class="2xx",le="+Inf",route="/v1/recommend"} 2.0
turret_answers_total{source="towers"} 6.0
turret_answers_total{source="popular"} 2.0
turret_empty_answers_total 4.0
turret_recall_at_k_sum{k="10"} 1.8
turret_recall_at_k_count{k="10"} 2.0
"""
SERIES = """scrapes => import(new URL('../service/series.js', document.querySelector('[type=module]').src))
  .then(({ createSeries }) => {
    const series = createSeries();
    scrapes.forEach((text, n) => series.add(text, 100 + 10 * n));
    return series.series();
  })"""


@pytest.mark.process
def test_scrapes_of_the_metrics_become_rates_shares_and_quantiles(service: Any, open_view: OpenView) -> None:
    view = open_view(service, "#service")
    shown = view.page.evaluate(SERIES, [EARLIER, LATER, LATER])
    assert shown["times"] == [110, 120]
    assert shown["requests"] == {"/v1/recommend": [4, 0]}
    assert shown["errors"] == [1, 0]
    assert shown["latency"] == {
        "/v1/recommend": {"p50": [0.0015, None], "p99": [pytest.approx(0.00199), None]}
    }
    assert shown["fallback"] == [0.25, None]
    assert shown["empty"] == [0.5, None]
    assert shown["recall"] == {"10": [0.9, None]}
    view.page.locator("#tiles dd", has_text="working").first.wait_for()
    restarted = view.page.evaluate(SERIES, [LATER, EARLIER])
    assert restarted["requests"]["/v1/recommend"] == [100], "a counter that fell began again"


DESCRIPTION = "A clockmaker's daughter inherits a lighthouse, two geese and a correspondence of forty years"
MAIN = """metrics => import(new URL('../versions/metrics.js', document.querySelector('[type=module]').src))
  .then(({ mainMetrics }) => mainMetrics([{ metrics: { test: { towers: metrics } } }]))"""


@pytest.mark.process
def test_a_phone_shows_the_key_field_long_texts_and_all_conditions(
    tmp_path: Path, start: Start, open_view: OpenView
) -> None:
    """Each was unreadable or invisible at 360 pixels."""
    made = movies(count=40)
    title = "The extraordinarily long and winding title of a movie " * 4
    fields = {"description": [DESCRIPTION] * 40, **made.fields, "title": [title] * 40}
    publish(tmp_path / "films", replace(made, fields=fields))
    key = new_key("shop")
    add_key(tmp_path / "keys.json", record("shop", key, ("read",)))
    service = start(tmp_path / "films", keys=str(tmp_path / "keys.json"))
    filtering = quote(json.dumps({"genres": {"none_of": ["Western"]}}))
    view = open_view(service, f"#try?history=m001&filter={filtering}", viewport={"width": 360, "height": 740})
    view.allowed_statuses = {401}
    box = view.page.locator("#key")
    box.fill("not-the-right-key-at-all")
    assert box.bounding_box()["width"] > 200
    box.press("Enter")
    view.wait_for("() => document.getElementById('key-message')?.textContent.includes('wrong')")
    assert "Bearer" not in view.page.locator("body").inner_text(), "the words are for programs"
    box.fill(key)
    box.press("Enter")
    view.wait_for_items()
    first = view.page.locator("#results > li").first
    names = first.locator(".detail-name").all_inner_texts()
    assert names == ["genres", "year", "country", "subtitled"], "a description comes last, and not at all"
    assert (
        first.locator(".title").evaluate(
            "h3 => h3.clientHeight / parseFloat(getComputedStyle(h3).lineHeight)"
        )
        <= 2.1
    )
    assert view.page.locator("#conditions").inner_text() == "filter genres", "with its editor folded"
    view.page.locator("#controls > summary").click()
    assert view.page.locator("#controls .chips").inner_text().startswith("Western")
    view.page.get_by_role("combobox", name="Add an item").fill("lighthouse")
    view.page.locator(".found .details").first.wait_for()
    assert view.page.evaluate(MAIN, {"hr@10": 0.2, "recall@10": 0.2, "ndcg@100": 0.2, "ndcg@10": 0.1}) == [
        "test ndcg@10",
        "test recall@10",
    ]
