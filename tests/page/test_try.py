"""Try: search, a history, the controls, the answers; keys that are asked for, and a service that stops."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote_plus

import polars as pl
import pytest

import turret
from tests.page.conftest import OpenView, View, movies
from tests.support.ports import held_port
from tests.support.repeats import events_of, shop
from tests.support.service_app import KEY
from tests.support.service_process import Process, Start
from tests.support.until import until
from turret.data.configuration import DisplaySettings
from turret.service.keys.keys import add_key, new_key, record, remove_key
from turret.tower.bundle.publish import publish


def search(view: View, text: str) -> list[str]:
    """Type into the search, and return the titles that it lists."""
    field = view.page.get_by_role("combobox", name="Add an item")
    with view.page.expect_response(lambda answer: f"v1/items?query={quote_plus(text)}&" in answer.url):
        field.fill(text)
    view.settle()
    titles: list[str] = view.page.locator(".found .title").all_inner_texts()
    return titles


def recommended(service: Process, **body: object) -> list[str]:
    answer = service.client.post("/v1/recommend", json=body)
    return [item["id"] for item in answer.json()["items"]]


@pytest.mark.process
def test_an_item_is_found_while_typing_and_added_by_keyboard(service: Process, open_view: OpenView) -> None:
    view = open_view(service)
    view.wait_for_items()
    assert view.ids() == [f"m{number:03d}" for number in range(10)]
    assert "these are popular items" in view.page.locator("#messages").inner_text()
    assert all(title.startswith("Amélie") for title in search(view, "amelie"))
    assert all("Łódź" in title for title in search(view, "LODZ"))
    search(view, "star wars")
    view.page.keyboard.press("ArrowDown")
    view.page.keyboard.press("Enter")
    view.wait_for("() => document.querySelectorAll('#history > li').length === 1")
    added = view.page.locator("#history > li").get_attribute("data-id")
    assert view.page.locator("#history .name").inner_text().startswith("Star Wars")
    view.wait_for("() => document.querySelector('#results .source.towers')")
    assert view.ids() == recommended(service, history=[added], k=10)


@pytest.mark.process
def test_fields_are_shown_as_the_preparation_names_them(
    tmp_path: Path, start: Start, open_view: OpenView
) -> None:
    """The title, the fields in their order, their labels and units; also where a filter is made."""
    made = movies()
    fields = {**made.fields, "title": ["Titel"] * 200, "other": made.fields["title"], "price": [12.5] * 200}
    show = ["price:Price:EUR", "year:Year", "genres"]
    display = DisplaySettings.model_validate({"title": "other", "show": show})
    publish(tmp_path / "shown", replace(made, fields=fields, display=display))
    view = open_view(start(tmp_path / "shown", store="memory://"))
    view.wait_for_items()
    first = view.page.locator("#results > li").first
    assert first.locator("h3").inner_text() == "Amélie Garden"
    details = first.locator(".detail").all_inner_texts()
    assert details == ["Price €12.50", "Year 1950", "genres Comedy, Drama"]
    view.page.locator("#filter-add").select_option("price")
    assert view.page.locator("legend", has_text="Price (EUR)").count() == 1


@pytest.mark.process
def test_every_control_changes_the_answer(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#try?history=m001,m002")
    view.wait_for_items()
    view.page.locator("#k").fill("4")
    view.wait_for_items(4)
    assert view.ids() == recommended(service, history=["m001", "m002"], k=4)
    view.page.locator("#exclude-seen").select_option("false")
    view.wait_for(
        "() => [...document.querySelectorAll('#results > li')].some(row => row.dataset.id === 'm001')"
    )
    again = recommended(service, history=["m001", "m002"], exclude_seen=False, among="again")
    assert sorted(again) == ["m001", "m002"]
    view.page.locator("#among").select_option("again")
    view.wait_for_ids(again)
    assert view.page.url.endswith("&exclude_seen=false&among=again")
    view.page.locator("#among").select_option("new")
    view.wait_for_ids(recommended(service, history=["m001", "m002"], k=4))
    view.page.locator("#among").select_option("all")
    view.page.locator("#diversity").fill("0.8")
    expected = recommended(service, history=["m001", "m002"], k=4, exclude_seen=False, diversity=0.8)
    view.wait_for_ids(expected)
    view.page.locator("#min-score").fill("1.9")
    view.wait_for("() => document.querySelectorAll('#results > li').length < 4")


@pytest.mark.process
def test_boosts_and_pins_are_tried_where_answers_are_shown(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#try?history=m001,m002&k=5")
    view.wait_for_items(5)
    view.page.locator("#boost-add").select_option("year")
    boost = view.page.get_by_role("group", name="Boosts")
    boost.get_by_label("To", exact=True).fill("1960")
    boost.get_by_label("Add to the score").fill("9")
    boosted = [{"filter": {"year": {"lte": 1960}}, "by": 9}]
    view.wait_for_ids(recommended(service, history=["m001", "m002"], k=5, boost=boosted))
    view.page.locator("#results > li").nth(3).get_by_role("button", name="Pin", exact=False).first.click()
    pinned = view.ids()[3]
    pins = view.page.get_by_role("group", name="Pins")
    pins.get_by_label("Position").fill("1")
    pins.get_by_label("Position").press("Enter")
    pin = [{"item": pinned, "position": 1}]
    expected = recommended(service, history=["m001", "m002"], k=5, boost=boosted, pin=pin)
    assert expected[0] == pinned
    view.wait_for_ids(expected)
    view.page.get_by_role("button", name="Why", exact=False).nth(1).click()
    view.wait_for(
        "() => document.querySelector('.why:not([hidden])')?.textContent.includes('the request +9')"
    )


@pytest.mark.process
def test_drawn_places_are_marked(movie_bundles: Path, start: Start, open_view: OpenView) -> None:
    service = start(movie_bundles, admin_key=KEY)
    explore = {"places": [2, 4], "share": 1.0}
    key = {"Authorization": f"Bearer {KEY}"}
    answer = service.client.post("/admin/routes", json={"explore": explore}, headers=key)
    assert answer.status_code == 200, answer.text
    view = open_view(service, "#try?history=m001,m009")
    view.wait_for_items()
    rows = view.page.locator("#results > li")
    marked = rows.evaluate_all("rows => rows.map(row => row.querySelector('.explored') !== null)")
    assert not marked[0]
    assert any(marked[1:4])
    assert not any(marked[4:])


@pytest.mark.process
def test_what_is_popular_now_is_listed(service: Process, open_view: OpenView) -> None:
    events = [
        {"event_id": f"{n}", "user_id": f"u{n}", "item_id": f"m{40 + n % 3 // 2:03d}"} for n in range(9)
    ]
    assert service.client.post("/v1/events", json={"events": events}).status_code == 200
    view = open_view(service, "#popular")

    def shown() -> list[str | None]:
        view.page.get_by_role("button", name="Count again").click()
        view.settle()
        return [row.get_attribute("data-id") for row in view.page.locator("#popular > li").all()]

    until(lambda: shown() == ["m040", "m041"], "the events are counted")
    view.page.get_by_label("What rises").check()
    until(lambda: shown() == ["m040"], "one of them has the events that make a trend")


@pytest.mark.process
def test_a_stranger_is_shown_that_the_answer_is_popular_now(
    movie_bundles: Path, start: Start, open_view: OpenView
) -> None:
    service = start(movie_bundles, store="memory://")
    events = [
        {"event_id": f"{n}", "user_id": f"u{n}", "item_id": f"m{40 + n % 3 // 2:03d}"} for n in range(150)
    ]
    assert service.client.post("/v1/events", json={"events": events}).status_code == 200
    until(lambda: recommended(service, history=[], k=2) == ["m040", "m041"], "the events are counted")
    view = open_view(service, "#try?k=2")
    view.wait_for_ids(["m040", "m041"])
    assert "these are popular now" in view.page.locator("#messages").inner_text()
    assert view.page.locator("#results .source", has_text="popular now").count() == 2


@pytest.mark.nightly
def test_the_copied_requests_have_the_same_answer(service: Process, open_view: OpenView) -> None:
    view = open_view(service, "#try?history=m001,m009&k=3")
    view.wait_for_items(3)
    view.page.locator("#request > summary").click()
    view.page.get_by_role("button", name="Copy the request for curl").click()
    view.wait_for("async () => (await navigator.clipboard.readText()).startsWith('curl')")
    curl = view.page.evaluate("navigator.clipboard.readText()")
    done = subprocess.run(["bash", "-c", f"{curl} -s"], capture_output=True, text=True, check=True)
    assert [item["id"] for item in json.loads(done.stdout)["items"]] == view.ids()
    python = view.page.locator("#request-python").inner_text()
    done = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == view.ids()


@pytest.mark.process
def test_a_question_is_asked_and_its_shared_words_are_shown(
    tmp_path: Path, start: Start, open_view: OpenView
) -> None:
    """A version that answers questions opens with the field for one."""
    words = {1: "parcel", 2: "card"}
    rows = [{"query": f"{word} number {n}", "item": item} for item, word in words.items() for n in range(20)]
    items = pl.DataFrame({"item": [1, 2], "title": ["track a parcel", "pay by card"]})
    texts = {"item_features.text": ["title"]}
    data = turret.prepare(
        None, tmp_path / "prepared", queries=pl.DataFrame(rows), items=items, settings=texts
    )
    run = turret.train(data, tmp_path / "run", experiment="questions", settings={"training.epochs": 1})
    run.export(tmp_path / "answers", "v1")
    view = open_view(start(tmp_path / "answers"))
    field = view.page.get_by_label("Question", exact=True)
    field.fill("where is my parcel")
    field.press("Enter")
    view.wait_for_items(2)
    assert view.ids()[0] == "1"
    assert "#try?query=where%20is%20my%20parcel" in view.page.url
    view.page.get_by_role("button", name="Why").first.click()
    view.wait_for("() => document.body.innerText.includes('Words: parcel.')")
    assert "v1/search" in (view.page.locator("#request-curl").text_content() or "")


@pytest.mark.process
def test_why_shows_what_an_item_gains_by_its_own_past(
    tmp_path: Path, start: Start, open_view: OpenView
) -> None:
    """As a bar with its facts, and as a part of the score. The item itself has no second bar."""
    publish(tmp_path, shop())
    service = start(tmp_path)
    stored = service.client.post("/v1/events", json={"events": events_of(7, time.time())})
    assert stored.status_code == 200
    asked = {"user_id": 7, "k": 20, "explain": True, "among": "again"}
    explained = service.client.post("/v1/recommend", json=asked).json()["explanation"]["items"]
    gain = next(one["score_parts"]["repeat"] for one in explained if one["id"] == 101)
    view = open_view(service, "#try?user=7&k=20&among=again")
    view.wait_for_ids([str(one["id"]) for one in explained])
    why = view.page.locator("#results > li[data-id='101']")
    why.get_by_role("button", name="Why").click()
    past = "purchase 3 times, every 20 days, last 19 days ago"
    why.locator(".bars li", has_text=f"Its own past: {past}").wait_for()
    bars = why.locator("section", has_text="From the history").locator(".bars li")
    figures = bars.locator(".figure").all_inner_texts()
    assert float(figures[0]) == pytest.approx(gain, rel=0.01)
    assert 101 not in bars.evaluate_all("rows => rows.map(row => +row.dataset.id)")
    assert f"Own past\n{past}" in why.locator("dl.pairs").inner_text()


# --- Under an open page


def enter(view: View, key: str) -> None:
    view.page.locator("#key").fill(key)
    view.page.get_by_role("button", name="Use this key").click()


def until_told(view: View, words: str) -> None:
    view.wait_for("words => document.getElementById('key-message')?.textContent.includes(words)", words)


@pytest.mark.process
def test_a_key_is_asked_for_and_used_and_asked_for_again_when_it_is_revoked(
    movie_bundles: Path, start: Start, open_view: OpenView
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
    movie_bundles: Path, start: Start, open_view: OpenView
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
