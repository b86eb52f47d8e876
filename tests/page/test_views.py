"""Compare and Map: two versions side by side, and the items in the plane; and views by keyboard."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.page.conftest import OpenView, View, give_key
from tests.support.service_app import KEY
from tests.support.service_process import Process

PAINTED = """() => {
  const map = document.getElementById('map');
  const data = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
  let painted = 0;
  for (let at = 3; at < data.length; at += 4) painted += data[at] > 0;
  return painted;
}"""


def compared(view: View, version: str) -> View:
    give_key(view, "admin", KEY)
    view.open(f"#compare?history=m001,m009&version={version}")
    view.wait_for("() => document.querySelectorAll('#overall section').length >= 3")
    return view


@pytest.mark.process
def test_a_version_is_activated_and_taken_back(
    movie_bundles: Path, start: Callable[..., Process], open_view: OpenView
) -> None:
    """One that differs too much is activated with force only."""
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
    assert service.client.get("/v1/version").json()["version"] == "v2"
    assert "Version v2 is live now" in view.page.locator("#news").inner_text()
    dialog.get_by_role("button", name="Close").click()
    view.page.locator("#rollback").click()
    dialog.get_by_role("button", name="Roll back").click()
    view.wait_for("() => document.getElementById('live').textContent.includes('v1')")
    assert service.client.get("/v1/version").json()["version"] == "v1"


def map_of(open_view: OpenView, service: Process, address: str) -> View:
    view = open_view(service, address)
    view.wait_for("() => Number(document.getElementById('map')?.dataset.frames) > 0")
    view.settle()
    return view


@pytest.mark.process
def test_every_item_is_painted_and_coloured_by_a_field(service: Process, open_view: OpenView) -> None:
    view = map_of(open_view, service, "#map?history=m001,m009&colour=genres")
    assert view.page.evaluate(PAINTED) > 200
    groups = view.page.get_by_role("group", name="Groups").get_by_role("button")
    assert groups.count() == 4
    for number in range(4):
        groups.nth(number).click()
    view.settle()
    assert view.page.evaluate(PAINTED) == 0
    view.page.locator("#colour").select_option("country")
    view.wait_for("() => location.hash.includes('colour=country')")
    view = map_of(open_view, service, "#map?colour=nowhere")
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
