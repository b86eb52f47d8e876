"""The commands of docs/outcomes.md, one after the other."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.test_pages import Page

pytestmark = pytest.mark.nightly


def test_the_page_leads_from_a_canary_to_a_decision(tmp_path: Path) -> None:
    further = {
        "turret train": "--set training.batch_size=1024 --set tower.dimension=32",
        "turret outcomes": "--json",
    }
    page = Page("outcomes.md", tmp_path, further)
    page.turret("data", "synth")
    truth = json.loads((tmp_path / "var" / "shop" / "truth.json").read_text("utf-8"))
    assert "are new in" in page.turret("history", "load")
    assert "are new in" in page.turret("history", "load")
    compared = json.loads(page.turret("outcomes"))["comparison"]
    assert compared["low"] < truth["lift"]["purchases"] < compared["high"]
    assert compared["decided"]
    assert compared["sentence"].endswith("enough to decide")
    page.turret("data", "prepare")
    page.turret("train")
    page.turret("export")
    value = json.loads(page.turret("outcomes", "--of"))
    assert value["version"] == "autumn"
    assert value["effective_size"] > 1_000
    assert 0 < value["doubly_robust"]["low"] < value["doubly_robust"]["high"] < 1
    assert [place["support"] for place in value["places"]] == pytest.approx([1.0] * 5, abs=0.25)
    assert "examination of the places 1 to 5, from" in page.turret("data", "prepare")
    assert "the run is in" in page.turret("train")
    assert page.is_over()
