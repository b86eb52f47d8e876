"""Service: the last hour, the versions and the log."""

from tests.page.conftest import KEY, OpenView, give_key
from tests.support.service_process import Process


def test_the_figures_the_versions_and_the_activations_are_shown(
    service: Process, open_view: OpenView
) -> None:
    view = open_view(service, "#service")
    view.page.get_by_role("heading", name="Versions", exact=True).wait_for()
    text = view.page.locator("main").inner_text()
    for part in (
        "v1",
        "v2",
        "live",
        "Requests per second",
        "Latency",
        "Stages",
        "Live recall",
        "Drift",
        "Worker",
    ):
        assert part in text, part
    rows = view.page.get_by_role("table", name="Activations").locator("tbody tr")
    assert rows.count() >= 1


def test_plots_appear_with_their_latest_values_as_text(service: Process, open_view: OpenView) -> None:
    """The service takes its first step after ten seconds; the view reads again every ten."""
    for _ in range(20):
        service.client.post("/v1/recommend", json={"history": ["m001"]})
    view = open_view(service, "#service")
    view.page.set_default_timeout(40_000)
    view.wait_for("() => document.querySelectorAll('.uplot canvas').length >= 3")
    assert "/v1/recommend" in view.page.locator("main").inner_text()


def test_a_version_is_activated_from_the_table_after_a_question(
    service: Process, open_view: OpenView
) -> None:
    view = open_view(service)
    give_key(view, "admin", KEY)
    view.open("#service")
    view.page.get_by_role("button", name="Activate version v2").click()
    dialog = view.page.get_by_role("dialog")
    dialog.wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    assert service.client.get("/v1/version").json()["version"] == "v1"
