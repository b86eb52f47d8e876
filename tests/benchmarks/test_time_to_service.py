import time
from pathlib import Path

import polars as pl
import pytest

from benchmarks.time_to_service import Watch, speak, turret

SMALL = ("training.metric=hr@10", "training.epochs=2", "tower.dimension=8", "tower.user.history_length=8")


def watched(watch: Watch, values: list[float]) -> list[bool]:
    return [watch(epoch + 1, value) for epoch, value in enumerate(values)]


def test_only_a_model_that_validation_selects_is_tested() -> None:
    """The second epoch is worse on validation: the first is still the one that counts."""
    tests = iter([0.1, 0.4])
    watch = Watch(lambda: next(tests), limit=1000.0, target=0.3)
    assert watched(watch, [0.2, 0.1, 0.25]) == [False, False, True]
    assert [(point.test, point.selected) for point in watch.points] == [(0.1, 0.1), (None, 0.1), (0.4, 0.4)]


@pytest.mark.nightly
def test_testing_takes_no_time_of_training() -> None:
    def slow() -> float:
        time.sleep(0.2)
        return 0.1

    watch = Watch(slow, limit=1000.0, target=0.3)
    watched(watch, [0.1, 0.2, 0.3])
    assert watch.points[-1].seconds < 0.2


def test_training_ends_when_its_seconds_are_spent() -> None:
    assert watched(Watch(lambda: 0.1, limit=0.0, target=0.3), [0.1]) == [True]


@pytest.mark.nightly
def test_a_raw_log_ends_in_an_answer(tmp_path: Path) -> None:
    """Twenty users of eight items each out of 30: the service answers with ten of the other 23."""
    rows = [(user, (7 * user + 3 * place) % 30, place) for user in range(20) for place in range(8)]
    pl.DataFrame(rows, schema=["user_id", "item_id", "pos"], orient="row").write_parquet(
        tmp_path / "raw.parquet"
    )
    side = turret(tmp_path / "raw.parquet", tmp_path / "work", limit=60.0, settings=SMALL)
    assert side["answer_items"] == 10
    assert len(side["curve"]) in (1, 2)
    assert 0.0 < side["service_seconds"] < 60.0
    if side["seconds"] is None:
        assert side["to_service_seconds"] is None
    else:
        assert side["to_service_seconds"] > side["seconds"]


@pytest.mark.parametrize(
    ("total", "words"), [(None, "later"), (1234.4, "1,234 s from the raw log to that answer")]
)
def test_people_read_the_whole_way_where_it_was_gone(total: float | None, words: str) -> None:
    side = {
        "prepare_seconds": 1.0,
        "export_seconds": 2.0,
        "service_seconds": 3.0,
        "to_service_seconds": total,
    }
    assert speak(side).endswith(words)
