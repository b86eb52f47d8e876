"""axe-core finds no violation of its rules in any view, in light and dark, wide and narrow."""

from typing import Any

import pytest

from tests.page.axe import axe_script
from tests.page.conftest import OpenView, View, give_key
from tests.support.service_app import KEY
from tests.support.service_process import Process

ADDRESSES = {
    "try": "#try?history=m001,m009,gone&filter=%7B%22year%22%3A%7B%22gte%22%3A1960%7D%7D&cap=country:9",
    "compare": "#compare?history=m001,m009&version=v2",
    "map": "#map?history=m001,m009&colour=genres",
    "service": "#service",
}
READY = {
    "try": "() => document.querySelectorAll('#results > li').length > 1",
    "compare": "() => document.querySelectorAll('#overall table').length > 1",
    "map": "() => Number(document.getElementById('map')?.dataset.frames) > 0",
    "service": "() => document.querySelectorAll('table').length > 1",
}


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe_script(tmp_path_factory.mktemp("axe"))


def violations(view: View, axe: str) -> list[tuple[str, list[Any]]]:
    """The rules that are broken, each with the elements and the reasons."""
    view.page.evaluate(axe)
    found = view.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        (rule["id"], [(node["target"], node["failureSummary"]) for node in rule["nodes"]])
        for rule in found["violations"]
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ADDRESSES)
def test_no_rule_is_broken(service: Process, open_view: OpenView, axe: str, name: str, scheme: str) -> None:
    view = open_view(service, color_scheme=scheme, reduced_motion="reduce")
    give_key(view, "admin", KEY)
    view.open(ADDRESSES[name])
    view.wait_for(READY[name])
    if name == "try":
        for part in ("#plan > summary", "#request > summary"):
            view.page.locator(part).click()
        view.page.locator("#results").get_by_role("button", name="Why").first.click()
        view.page.locator(".nearest li").first.wait_for()
    view.settle()
    assert violations(view, axe) == []
    view.page.set_viewport_size({"width": 390, "height": 800})
    view.settle()
    assert violations(view, axe) == []
    assert view.page.evaluate("document.documentElement.scrollWidth") <= 390
