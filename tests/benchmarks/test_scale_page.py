"""The page of scales shows each measured part, each limit and each compared part."""

import json
from typing import Any

import pytest

from benchmarks.protocol import RESULTS
from benchmarks.scale_page import NAMES, SHOPS, scale_section


@pytest.fixture
def results() -> list[dict[str, Any]]:
    return [json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES]


def test_every_part_of_the_check_has_a_line_with_its_ratio(results: list[dict[str, Any]]) -> None:
    check = results[-1]
    check["rows"]["bundle: disk"] = {"planned": 2e9, "measured": 3e9, "ratio": 1.5}
    check["greatest_ratio"] = 1.5
    text = scale_section(*results)
    assert "| bundle: disk | 2.0 GB | 3.0 GB | 1.50 |" in text
    assert " and 1.50:" in text
    assert all(f"| {name} |" in text for name in check["rows"])


def test_a_plan_of_each_shop_is_shown(results: list[dict[str, Any]]) -> None:
    text = scale_section(*results)
    assert all(f"{shop.users:,.0f} users, {shop.items:,.0f} items" in text for shop in SHOPS)
    assert text.count("| preparation |") == 1 + len(SHOPS)
