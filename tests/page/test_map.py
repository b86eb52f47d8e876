"""Map: the items in the plane, their colours, and the marks of a history."""

from tests.faults.processes import until
from tests.page.conftest import OpenView, View
from tests.support.service_process import Process

PAINTED = """() => {
  const map = document.getElementById('map');
  const data = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
  let painted = 0;
  for (let at = 3; at < data.length; at += 4) painted += data[at] > 0;
  return painted;
}"""


def opened(open_view: OpenView, service: Process, address: str) -> View:
    view = open_view(service, address)
    view.wait_for("() => Number(document.getElementById('map')?.dataset.frames) > 0")
    view.settle()
    return view


def test_every_item_is_painted_and_coloured_by_a_field(service: Process, open_view: OpenView) -> None:
    view = opened(open_view, service, "#map?history=m001,m009&colour=genres")
    all_items = view.page.evaluate(PAINTED)
    assert all_items > 200
    groups = view.page.get_by_role("group", name="Groups").get_by_role("button")
    assert groups.count() == 4
    for number in range(4):
        groups.nth(number).click()
    view.settle()
    assert view.page.evaluate(PAINTED) == 0
    view.page.locator("#colour").select_option("country")
    view.wait_for("() => location.hash.includes('colour=country')")


def test_the_history_and_the_recommendations_are_marked(service: Process, open_view: OpenView) -> None:
    view = opened(open_view, service, "#map?history=m001,m009&k=4")
    view.wait_for("() => document.querySelectorAll('.map-side ol li').length === 6")


def test_the_stored_history_of_a_user_is_marked(service: Process, open_view: OpenView) -> None:
    events = [{"event_id": str(n), "user_id": "mapped", "item_id": f"m00{n}"} for n in range(3)]
    assert service.client.post("/v1/events", json={"events": events}).status_code == 200
    view = opened(open_view, service, "#map?user=mapped&k=4")
    view.wait_for("() => document.querySelectorAll('.map-side ol li').length === 7")


def test_it_zooms_and_moves_by_keyboard_and_button(service: Process, open_view: OpenView) -> None:
    view = opened(open_view, service, "#map")
    frames = int(view.page.locator("#map").get_attribute("data-frames"))
    view.page.locator("#map").focus()
    for key in ("+", "ArrowLeft", "ArrowUp", "-", "0"):
        view.page.keyboard.press(key)
        view.settle()
    assert int(view.page.locator("#map").get_attribute("data-frames")) >= frames + 5
    view.page.get_by_role("button", name="Zoom in").click()


def first_point(view: View, service: Process) -> tuple[float, float]:
    """Where the map shows its first item, in pixels of the window."""
    box = view.page.locator("#map").bounding_box()
    found = service.client.get("/v1/map/points").content
    x, y = (int.from_bytes(found[at : at + 2], "little") / 65535 for at in (0, 2))
    side = min(box["width"], box["height"]) * 0.94
    return (
        box["x"] + box["width"] / 2 + (x - 0.5) * side,
        box["y"] + box["height"] / 2 + (0.5 - y) * side,
    )


def test_a_point_names_its_item_and_adds_it_to_the_history(service: Process, open_view: OpenView) -> None:
    view = opened(open_view, service, "#map")
    name = view.page.get_by_text("Amélie Garden").first

    def is_named() -> bool:
        # The legend and the side move the map when they are loaded, so each try measures anew.
        view.page.mouse.move(0, 0)
        view.page.mouse.move(*first_point(view, service))
        view.settle()
        return bool(name.is_visible())

    until(is_named, 15)
    view.page.mouse.click(*first_point(view, service))
    view.wait_for("() => location.hash.includes('history=m000')")


def test_a_field_that_is_not_there_is_said(service: Process, open_view: OpenView) -> None:
    view = opened(open_view, service, "#map?colour=nowhere")
    view.page.get_by_text("Choose another one").wait_for()
