"""The examination of places, estimated from explored items and their outcomes."""

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.data.conftest import prepare_as
from tests.data.test_places import NOON, write_log
from turret.data.answers.examination import examination_of
from turret.data.answers.form import answer_id_of
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.answers import AnswersConfig
from turret.data.synthetic.synthesis import synthesise_answers

SHOP = AnswersConfig(
    users=2_000, items=40, pool=20, events_per_user=2, answers_per_user=8, relevance=0.05, explore=0.5
)
PLACES = 10


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop with about 15,000 outcomes, and its prepared data in the folder `prepared`."""
    folder = tmp_path_factory.mktemp("shop")
    synthesise_answers(SHOP, folder, overwrite=True)
    return folder


def prepared_shop(shop: Path) -> tuple[PreparedData, str]:
    """The prepared data, and the sentences of the preparation."""
    files = [f"before:{shop / 'events.csv'}", f"after:{shop / 'outcomes.csv'}"]
    report = prepare_as(shop / "prepared", source_files=files, answers=shop / "answers")
    return PreparedData.open(report.folder), "\n".join(report.warnings)


def test_the_estimate_is_that_of_the_click_model(shop: Path) -> None:
    """The shop's users look at place k with the probability k^-0.7.

    The last place has 500 outcomes, whose weights vary by a factor of 30: a standard error of .06. The ratio
    of the counts, which takes good places for good items, is off by .4.
    """
    data, sentences = prepared_shop(shop)
    truth = np.arange(1, PLACES + 1) ** -0.7
    assert data.examination is not None
    np.testing.assert_allclose(data.examination, truth, rtol=0.2)
    assert "examination of the places 1 to 10, from 1" in sentences
    assert data.places is not None
    counts = np.bincount(data.places, minlength=PLACES + 1)[1:]
    assert np.abs(counts / counts[0] / truth - 1).max() > 0.4


def test_the_estimate_is_the_ratio_of_mantel_and_haenszel() -> None:
    """By loops over the items; what one place has alone counts nowhere."""
    random = np.random.default_rng(0)
    shown, outcomes = ({} for _ in range(2))
    for item, place in itertools.product("abcd", range(1, 5)):
        if (item, place) != ("d", 1):
            shown[item, place] = random.uniform(500, 900)
            outcomes[item, place] = random.uniform(60, 90)
    rows = [(item, place, outcomes[item, place], 30, weight) for (item, place), weight in shown.items()]
    schema = {
        "item": pl.String,
        "place": pl.UInt16,
        "weight": pl.Float64,
        "count": pl.UInt32,
        "shown": pl.Float64,
    }
    table = pl.DataFrame(rows, schema=schema, orient="row")
    examination = examination_of(
        table.select("item", "place", weight="shown"), table.drop("shown").sort("place", descending=True), 4
    )
    for place in range(1, 5):
        here = there = 0.0
        for item in "abc":
            both = shown[item, place] + shown[item, 1]
            here += outcomes[item, place] * shown[item, 1] / both
            there += outcomes[item, 1] * shown[item, place] / both
        assert examination is not None
        assert examination.relative[place - 1] == pytest.approx(here / there, rel=1e-12)
        assert examination.outcomes[place - 1] == (120 if place > 1 else 90)


def outcomes_at(folder: Path, counts: list[int]) -> tuple[PreparedData, str]:
    """Data of answers that show item 1 at place k, and of `counts[k - 1]` outcomes of it there."""
    answers, rows = [], []
    for place, count in enumerate(counts, start=1):
        for number in range(count):
            answer_id = answer_id_of(NOON, bytes([place, number]))
            items = [str(100 + other) for other in range(place - 1)]
            answers.append((answer_id, [*items, "1"], [1.0] * (place - 1) + [0.5]))
            rows.append((number, 1, NOON + place, answer_id))
    write_log(folder / "answers", answers)
    log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp", "answer_id"], orient="row")
    log.write_parquet(folder / "events.parquet")
    config = PrepareConfig(source=folder / "events.parquet", answers=folder / "answers")
    report = prepare(config, folder / "prepared")
    return PreparedData.open(report.folder), "\n".join(report.warnings)


def test_a_place_with_few_outcomes_has_the_value_of_the_nearest_place(tmp_path: Path) -> None:
    """All answers led to an outcome, so that the places are alike."""
    data, sentences = outcomes_at(tmp_path, [49, 50, 60, 3])
    assert data.examination is not None
    assert data.examination.tolist() == [1.0] * 4
    assert "examination of the places 2 to 3, from 162 outcomes of explored items: 1.00, 1.00" in sentences
    assert "the places 1, 4 have fewer than 50 such outcomes, and the value of the nearest place" in sentences


def test_one_explored_place_makes_no_estimate(tmp_path: Path) -> None:
    data, sentences = outcomes_at(tmp_path, [49, 90])
    assert data.examination is None
    assert "unknown: fewer than two places have 50 outcomes of explored items; log for longer" in sentences
