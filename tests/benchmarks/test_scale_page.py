"""The page of scales shows each measured part, each limit and each compared part."""

import json
from typing import Any

import pytest

from benchmarks.plan_check import compared
from benchmarks.protocol import RESULTS
from benchmarks.scale_page import NAMES, SHOPS, scale_section
from turret.planning.figures import load_figures


@pytest.fixture
def results() -> list[dict[str, Any]]:
    return [json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES]


def test_every_part_of_the_check_has_a_line_with_its_ratio(results: list[dict[str, Any]]) -> None:
    check = results[-1]
    (bundle,) = (row for row in compared(check, load_figures()) if row.name == "bundle: disk")
    check["measured"]["bundle: disk"] = 7.5 * bundle.planned
    text = scale_section(*results)
    assert " and 7.50:" in text
    assert all(f"| {name} |" in text for name in check["measured"])


def test_a_plan_of_each_shop_is_shown(results: list[dict[str, Any]]) -> None:
    text = scale_section(*results)
    assert all(f"{shop.users:,.0f} users, {shop.items:,.0f} items" in text for shop in SHOPS)
    assert text.count("| preparation |") == 1 + len(SHOPS)
