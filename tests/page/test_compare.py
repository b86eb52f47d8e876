"""Compare: two versions side by side, the overlap, and the buttons that change the live version."""

from collections.abc import Callable
from pathlib import Path

from tests.page.conftest import KEY, OpenView, View, give_key, movies
from tests.support.ports import free_port
from tests.support.service_process import Process
from turret.tower.bundle.publish import publish

HEADERS = {"Authorization": f"Bearer {KEY}"}


def compared(view: View, version: str) -> View:
    give_key(view, "admin", KEY)
    view.open(f"#compare?history=m001,m009&version={version}")
    view.wait_for("() => document.querySelectorAll('#overall section').length >= 3")
    return view


def test_two_versions_answer_the_same_history(service: Process, open_view: OpenView) -> None:
    view = compared(open_view(service), "v2")
    body = {"history": ["m001", "m009"], "k": 10}
    answer = service.client.post("/admin/comparison/recommend", json=body, headers=HEADERS).json()
    shown = view.page.get_by_role("region", name="Recommendations of both versions")
    titles = [item["fields"]["title"] for side in ("live", "other") for item in answer[side]["items"]]
    rows = "document.querySelectorAll('[aria-label=\"Recommendations of both versions\"] li')"
    view.wait_for(
        f"count => {rows}.length === count",
        len(titles),
    )
    assert shown.locator("li .title").all_inner_texts() == titles
    entered = sum(move["live_rank"] is None for move in answer["moves"])
    assert shown.get_by_text("entered", exact=True).count() == entered
    assert "same" in view.page.locator("#overall").inner_text()
    view.page.get_by_role("link", name="Try", exact=True).click()
    view.wait_for_items()
    assert service.client.get("/admin/comparison", headers=HEADERS).json()["version"] is None


def test_two_tabs_compare_two_versions_at_the_same_time(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    publish(movie_bundles, movies("v3", seed=2))
    service = start(movie_bundles, admin_key=KEY)
    first = compared(open_view(service), "v2")
    second = compared(open_view(service), "v3")
    first.page.locator("#k").fill("4")
    first.wait_for("() => document.querySelectorAll('#columns li').length === 8")
    assert "Compared: version v2" in first.page.locator("#columns").inner_text()
    first.page.get_by_role("link", name="Try", exact=True).click()
    first.wait_for_items(4)
    second.page.locator("#k").fill("3")
    second.wait_for("() => document.querySelectorAll('#columns li').length === 6")
    assert "Compared: version v3" in second.page.locator("#columns").inner_text()


def test_a_version_is_activated_and_taken_back(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    service = start(movie_bundles, admin_key=KEY)
    view = compared(open_view(service), "v2")
    view.page.locator("#activate").click()
    view.page.get_by_role("dialog").get_by_role("button", name="Activate").click()
    view.wait_for("() => document.getElementById('live').textContent.includes('v2')")
    assert service.client.get("/v1/version").json()["version"] == "v2"
    assert "Version v2 is live now" in view.page.locator("#news").inner_text()
    view.page.get_by_role("dialog").get_by_role("button", name="Close").click()
    view.page.locator("#rollback").click()
    view.page.get_by_role("dialog").get_by_role("button", name="Go back").click()
    view.wait_for("() => document.getElementById('live').textContent.includes('v1')")
    assert service.client.get("/v1/version").json()["version"] == "v1"


def test_a_version_that_differs_too_much_is_activated_with_force_only(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    service = start(movie_bundles, admin_key=KEY, overlap_minimum=0.9)
    view = compared(open_view(service), "v2")
    view.allowed_statuses = {409}
    view.page.locator("#activate").click()
    dialog = view.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Activate").first.click()
    dialog.get_by_role("button", name="force").wait_for()
    assert "in common" in dialog.inner_text()
    assert service.client.get("/v1/version").json()["version"] == "v1"
    dialog.get_by_role("button", name="force").click()
    view.wait_for("() => document.getElementById('live').textContent.includes('v2')")


def test_an_unknown_version_in_the_address_is_said_with_those_that_exist(
    service: Process, open_view: OpenView
) -> None:
    view = open_view(service)
    give_key(view, "admin", KEY)
    view.open("#compare?version=v9")
    view.wait_for("() => document.getElementById('messages')?.textContent.includes('There is no version')")
    assert "v2" in view.page.locator("#messages").inner_text()


def test_the_live_version_is_not_compared_with_itself(service: Process, open_view: OpenView) -> None:
    view = open_view(service)
    give_key(view, "admin", KEY)
    view.open("#compare?version=v1")
    view.wait_for("() => document.getElementById('messages')?.textContent.includes('is live')")


def test_where_admin_calls_have_their_own_port_the_page_leads_there(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    service = start(movie_bundles, admin_key=KEY, admin_port=free_port())
    view = open_view(service, "#compare?history=m001&version=v2")
    link = view.page.locator("main a").first
    link.wait_for()
    url, _, state = link.get_attribute("href").partition("/#")
    there = open_view(url, f"#{state}")
    there.page.locator("#key").fill(KEY)
    there.page.get_by_role("button", name="Use this key").click()
    there.wait_for("() => document.querySelectorAll('#overall section').length >= 3")
