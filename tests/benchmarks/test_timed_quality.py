from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks.next_items import HOUR
from benchmarks.retraining import Retrainer
from benchmarks.timed_quality import answered, asked_in, averaged, baselines, by_period, compared, quicker
from benchmarks.timed_sets import METRICS, TIMED, TimedSet

BEGIN = TIMED["globo"].begins
SMALL = ("training.epochs=1", "tower.dimension=8", "tower.user.hidden=[8]", "training.batch_size=64")


@pytest.fixture
def log() -> pl.DataFrame:
    """Thirty sessions of four clicks, three an hour, of which the last nine are in the test."""
    rows = []
    for session in range(30):
        items = [session % 7, 7 + session % 5, 12 + session % 9, 21 + session % 3]
        begin = BEGIN + (session // 3 - 7) * HOUR
        rows += [(session, item, begin + place * 1000) for place, item in enumerate(items)]
    return pl.DataFrame(rows, schema=["session_id", "item_id", "timestamp_ms"], orient="row")


@pytest.fixture
def chosen() -> TimedSet:
    globo = TIMED["globo"]
    recipe = replace(globo.recipe, experiment="youtubednn", base=SMALL, update=(), every=2)
    return replace(globo, periods=3, recipe=recipe, features=())


def test_everybody_is_asked_the_same_in_every_period(log: pl.DataFrame, chosen: TimedSet) -> None:
    """Three sessions an hour of which three clicks each are asked for; baselines answer all of them."""
    asked = asked_in(chosen, log)
    assert [len(one.targets) for _, one in asked] == [9, 9, 9]
    for periods in baselines(chosen, log).values():
        assert [len(period[METRICS[0]]) for period in periods] == [9, 9, 9]


def test_a_baseline_is_made_of_the_events_before_its_period(log: pl.DataFrame, chosen: TimedSet) -> None:
    """An hour more for each of the three periods, and none of the questions."""
    latest: list[int] = []
    name, made = next(iter(chosen.baselines.items()))

    def make(before: pl.DataFrame) -> Any:
        latest.append(before["timestamp_ms"].to_list()[-1])
        return made(before)

    baselines(replace(chosen, baselines={name: make}), log)
    starts = [start for start, _ in asked_in(chosen, log)]
    assert [start - HOUR <= last < start for start, last in zip(starts, latest, strict=True)] == [True] * 3


@pytest.mark.nightly
def test_the_model_goes_on_after_so_many_periods(log: pl.DataFrame, chosen: TimedSet, tmp_path: Path) -> None:
    """Every second one: of three periods, before the third alone."""
    found, spent = answered(chosen, Retrainer(log, tmp_path, "youtubednn"), [])
    assert [len(period[METRICS[0]]) for period in found] == [9, 9, 9]
    assert spent["updates"] == 1
    assert spent["seconds"] == pytest.approx(spent["first_seconds"] + spent["update_seconds"])


def gained(*values: float) -> dict[str, list[float]]:
    return {metric: list(values) for metric in METRICS}


def test_a_model_is_above_only_if_every_interval_is() -> None:
    ours = [gained(*[1.0, 0.5] * 50)]
    worse, same = [gained(*[0.0] * 100)], [gained(*[1.0, 0.5] * 50)]
    sessions = list(range(100))
    found = compared(ours, {"worse": worse}, sessions)
    assert found["above"]
    assert found["baselines"]["worse"]["recall@20"]["difference"] == 0.75
    assert not compared(ours, {"worse": worse, "same": same}, sessions)["above"]


def test_seeds_are_averaged_question_by_question() -> None:
    assert averaged([[gained(1.0, 0.0)], [gained(0.0, 0.0)]]) == [gained(0.5, 0.0)]


def test_a_period_in_which_nothing_is_asked_is_left_out(log: pl.DataFrame, chosen: TimedSet) -> None:
    longer = replace(chosen, periods=5)
    asked = asked_in(longer, log)
    ours: list[Any] = [gained(*[0.5] * len(one.targets)) for _, one in asked]
    rows = by_period(asked, ours, {"other": ours})
    assert [row["begins"][11:13] for row in rows] == ["03", "04", "05"]
    assert rows[0]["recall@20"] == {"Turret": 0.5, "other": 0.5}


def test_a_quick_run_still_updates(chosen: TimedSet) -> None:
    quick = quicker(chosen)
    assert (quick.periods, quick.recipe.every) == (3, 1)
    assert quick.recipe.base[-1] == "training.epochs=1"
    assert quicker(replace(chosen, recipe=replace(chosen.recipe, every=0))).recipe.every == 0
