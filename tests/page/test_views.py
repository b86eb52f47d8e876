"""Compare, Map and Service; the views by keyboard, and with a catalog full of markup."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import turret
from tests.page.conftest import OpenView, View, give_key, movies
from tests.support.service_app import KEY
from tests.support.service_process import Process, Start
from turret.data.synthetic.answers import AnswersConfig
from turret.data.synthetic.synthesis import synthesise_answers
from turret.tower.bundle.publish import BundleContents, publish

PAINTED = """() => {
  const map = document.getElementById('map');
  const data = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
  let painted = 0;
  for (let at = 3; at < data.length; at += 4) painted += data[at] > 0;
  return painted;
}"""


def compare(view: View) -> None:
    give_key(view, KEY)
    view.open("#compare?history=m001,m009&version=v2")
    view.wait_for("() => document.querySelectorAll('#overall section').length >= 3")


@pytest.mark.process
def test_a_version_is_activated_and_taken_back(
    movie_bundles: Path, start: Start, open_view: OpenView
) -> None:
    """One that differs too much is activated with force only."""
    service = start(movie_bundles, admin_key=KEY, overlap_minimum=0.9)
    view = open_view(service)
    compare(view)
    view.allowed_statuses = {409}
    view.page.locator("#activate").click()
    dialog = view.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Activate").first.click()
    dialog.get_by_role("button", name="force").wait_for()
    assert "in common" in dialog.inner_text()
    assert service.client.get("/v1/version").json()["version"] == "v1"
    dialog.get_by_role("button", name="force").click()
    view.wait_for("() => document.getElementById('live').textContent.includes('v2')")
    assert service.client.get("/v1/version").json()["version"] == "v2"
    assert "Version v2 is live now" in view.page.locator("#news").inner_text()
    dialog.get_by_role("button", name="Close").click()
    view.page.locator("#rollback").click()
    dialog.get_by_role("button", name="Roll back").click()
    view.wait_for("() => document.getElementById('live').textContent.includes('v1')")
    assert service.client.get("/v1/version").json()["version"] == "v1"


@pytest.mark.process
def test_the_public_port_compares_the_measurements_of_versions(
    movie_bundles: Path, start: Start, open_view: OpenView
) -> None:
    """Answers and activations are on the admin port."""
    view = open_view(start(movie_bundles, admin_key=KEY, admin_port=0), "#compare")
    view.page.locator("#version").select_option("v2")
    view.page.get_by_text("Measured recall of the index").wait_for()
    view.page.get_by_role("table", name="Versions").wait_for()
    assert view.page.locator("#gate").is_visible()
    assert view.page.get_by_text("needs the admin calls").is_visible()
    assert not view.page.locator("#activate, #rollback").filter(visible=True).count()


@pytest.mark.process
def test_every_item_is_painted_and_coloured_by_a_field(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#map?history=m001,m009&colour=genres")
    groups = view.page.get_by_role("group", name="Groups").get_by_role("button")
    groups.nth(3).wait_for()  # points are painted before their groups are known
    view.settle()
    assert view.page.evaluate(PAINTED) > 200
    assert groups.count() == 4
    for number in range(4):
        groups.nth(number).click()
    view.settle()
    assert view.page.evaluate(PAINTED) == 0
    view.page.locator("#colour").select_option("country")
    view.wait_for("() => location.hash.includes('colour=country')")
    view.open("#map?colour=nowhere")
    view.page.get_by_text("Choose another one").wait_for()


@pytest.mark.process
def test_the_views_are_reached_and_left_by_keyboard(service: Process, open_view: OpenView) -> None:
    view = open_view(service)
    view.wait_for_items()
    view.page.keyboard.press("Tab")
    assert view.page.evaluate("document.activeElement.id") == "skip"
    view.page.keyboard.press("Enter")
    assert view.page.evaluate("document.activeElement.tagName") == "H1"
    view.page.get_by_role("link", name="Service", exact=True).focus()
    view.page.keyboard.press("Enter")
    view.wait_for(
        "() => document.activeElement.textContent === 'Service' && document.activeElement.tagName === 'H1'"
    )
    assert view.page.title() == "Service · Turret"
    assert view.page.locator("nav [aria-current=page]").inner_text() == "Service"


# --- A catalog full of markup, and of pictures on other hosts

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


def hostile(version: str) -> BundleContents:
    texts = [MARKUP[n % len(MARKUP)] for n in range(40)]
    fields: dict[str, list[Any]] = {
        "title": [f"{text} {n}" for n, text in enumerate(texts)],
        "<script>window.hit=7</script>": texts,
        "poster": ["https://evil.example/pixel.png"] * 40,
        "tags": [[text, "</option><script>window.hit=8</script>"] for text in texts],
    }
    return replace(movies(version, count=40), fields=fields)


@pytest.mark.process
def test_markup_of_a_catalog_is_text_in_every_view(tmp_path: Path, start: Start, open_view: OpenView) -> None:
    root = tmp_path / "hostile"
    for version in ("v1", "v2"):
        publish(root, hostile(version))
    service = start(root, admin_key=KEY)
    user = "<img src=x onerror=window.hit=9>"
    events = [{"event_id": "1", "user_id": user, "item_id": "m001", "kind": "<b>kind</b>"}]
    assert service.client.post("/v1/events", json={"events": events}).status_code == 200
    view = open_view(service, "#try?history=m001,m002,%3Cscript%3E&k=20")
    view.wait_for_items(20)
    assert "<script>" in view.page.locator("#results").inner_text()
    view.page.locator("#results").get_by_role("button", name="Why").first.click()
    view.page.locator(".nearest li").first.wait_for()
    view.page.get_by_role("combobox", name="Add an item").fill("script")
    view.page.locator(".found .title").first.wait_for()
    view.page.locator("#filter-add").select_option("tags")
    view.page.get_by_label("A stored user").check()
    view.page.locator("#random-user").click()
    view.page.locator("#stored-history li").first.wait_for()
    compare(view)
    view.open("#map?history=m001&colour=tags")
    view.wait_for("() => document.querySelectorAll('.groups button').length > 1")
    view.open("#service")
    view.page.get_by_role("heading", name="Versions", exact=True).wait_for()
    assert view.page.evaluate("window.hit ?? null") is None
    assert view.page.locator("img").count() == 0


KEPT = """kept => import(new URL('../service/series.js', document.querySelector('[type=module]').src))
  .then(({ createSeries }) => {
    const series = createSeries();
    series.begin(kept, 1000);
    return series.series();
  })"""


@pytest.mark.process
def test_the_plots_begin_with_the_hour_that_the_service_kept(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#service")
    view.page.get_by_role("heading", name="Versions", exact=True).wait_for()
    counter = 'turret_requests_total{route="/v1/users/{user_id}",status="200"}'
    kept = {"ages": [60, 30, 0.5], "series": {counter: [None, 30, 89]}}
    recent = view.page.evaluate(KEPT, kept)
    assert recent["times"] == [970, 999.5]
    assert recent["requests"]["/v1/users/{user_id}"] == [1, 2]


@pytest.mark.process
def test_the_outcomes_of_the_log_are_shown_with_their_interval(
    movie_bundles: Path, tmp_path: Path, start: Start, open_view: OpenView
) -> None:
    """With a key, which the page asks for; the log is that of a shop with a better canary."""
    synthesise_answers(AnswersConfig(users=600, items=60, pool=20, places=5), tmp_path / "shop")
    store = f"sqlite:///{tmp_path}/history.sqlite"
    turret.load_histories(tmp_path / "shop" / "outcomes.csv", store)
    log = {
        "answer_log": str(tmp_path / "shop" / "answers"),
        "answer_key_file": str(tmp_path / "visitors.key"),
    }
    (tmp_path / "visitors.key").write_bytes((tmp_path / "shop" / "visitors.key").read_bytes())
    (tmp_path / "visitors.key").chmod(0o600)
    service = start(movie_bundles, admin_key=KEY, store=store, answer_days=36_500, **log)
    view = open_view(service, "#service")
    view.page.locator("#show-outcomes").click()
    view.page.locator("#key").fill(KEY)
    view.page.get_by_role("button", name="Use this key").click()
    view.page.locator("#outcome").wait_for()
    assert "summer beside spring: canary sells" in view.page.locator("#outcome").inner_text()
    table = view.page.get_by_role("region", name="Users of both routes")
    assert re.search(r"\S+ % \[\S+, \S+\]", table.inner_text())
    rows = view.page.get_by_role("region", name="Answers by version and route").locator("tbody tr")
    assert [row.split()[:2] for row in rows.all_inner_texts()] == [["spring", "live"], ["summer", "canary"]]


@pytest.mark.process
def test_outcomes_without_a_log_are_a_sentence(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#service")
    give_key(view, KEY)
    view.allowed_statuses = {409}
    view.page.locator("#show-outcomes").click()
    view.page.get_by_text("this service logs no answers; set TURRET_ANSWER_LOG").wait_for()


EARLIER = """turret_requests_total{route="/v1/recommend",status="200"} 1000.0"""
LATER = """# HELP turret_requests_total Answered requests
turret_requests_total{route="/v1/recommend",status="200"} 1030.0
turret_requests_total{route="/v1/recommend",status="503"} 10.0
turret_request_seconds_bucket{class="2xx",le="0.001",route="/v1/recommend"} 0.0
turret_request_seconds_bucket{class="2xx",le="0.002",route="/v1/recommend"} 2.0
turret_request_seconds_bucket{class="2xx",le="+Inf",route="/v1/recommend"} 2.0
turret_answers_total{source="towers"} 6.0
turret_answers_total{source="popular"} 2.0
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
def test_scrapes_of_the_metrics_become_rates_and_quantiles(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#service")
    shown = view.page.evaluate(SERIES, [EARLIER, LATER, LATER])
    assert shown["times"] == [110, 120]
    assert shown["requests"] == {"/v1/recommend": [4, 0]}
    assert shown["errors"] == [1, 0]
    assert shown["latency"]["/v1/recommend"]["p50"] == [0.0015, None]
    assert shown["fallback"] == [0.25, None]
    assert shown["recall"] == {"10": [0.9, None]}
    view.page.locator("#tiles dd", has_text="working").first.wait_for()
    restarted = view.page.evaluate(SERIES, [LATER, EARLIER])
    assert restarted["requests"]["/v1/recommend"] == [100], "a counter that fell began again"
