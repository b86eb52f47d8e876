from dataclasses import replace
from pathlib import Path

import pytest

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.verdict.repeats import repeat_share, repeats

REPORT = {"relevant_used_before": 2, "relevant_items": 9}


@pytest.fixture
def distinct(tmp_path: Path) -> PreparedData:
    """Users that have each item once."""
    rows = [f"{user},{item}" for user in "abc" for item in "pqrs"]
    (tmp_path / "events.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    config = {"source": tmp_path / "events.csv", "columns": {"in_file_order": True}}
    prepare(PrepareConfig.model_validate(config), tmp_path / "prepared")
    return PreparedData.open(tmp_path / "prepared")


def test_the_share_of_repeats_counts_later_events_of_an_item(
    handmade: PreparedData, distinct: PreparedData
) -> None:
    """Of a's seven events two repeat p and q; of all 18 events that is a ninth."""
    for data, share in ((handmade, 2 / 18), (distinct, 0)):
        assert repeat_share(data) == pytest.approx(share)
        older = replace(data, manifest=data.manifest.model_copy(update={"repeat_share": None}))
        assert repeat_share(older) == pytest.approx(share)


def test_many_repeats_that_are_masked_are_told(handmade: PreparedData, distinct: PreparedData) -> None:
    found = repeats({**REPORT, "exclude_seen": True}, handmade)
    assert found is not None
    assert found.kind == "repeats"
    assert found.sentence.startswith("11% of the events repeat an item of their user")
    assert "2 of 9 targets can't be hit" in found.sentence
    assert repeats({**REPORT, "exclude_seen": True}, distinct) is None


def test_no_repeats_and_no_mask_is_told(handmade: PreparedData, distinct: PreparedData) -> None:
    found = repeats({**REPORT, "exclude_seen": False}, distinct)
    assert found is not None
    assert found.sentence.startswith("Only 0.0% of the events repeat an item of their user")
    assert "set it to true" in found.sentence
    assert repeats({**REPORT, "exclude_seen": False}, handmade) is None
