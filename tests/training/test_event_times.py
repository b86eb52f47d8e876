"""The times of events: gaps and clocks that towers read, and the moment from which on events are new."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.training.conftest import prepared
from turret.data.prepared import PreparedData
from turret.training.batches.batches import TrainingBatches
from turret.training.batches.event_times import first_events, packed_times
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.evaluation.ranking import histories_of
from turret.training.randomness import stream
from turret.training.run import build_model

START = 1_600_000_000
# Seconds after START at which each user did something.
USED = {"a": [0, 10, 4000, 90_000, 90_000], "b": [5, 700_000], "c": [50], "d": [60, 61, 3000, 800_000]}


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Four users, whose last two events are the validation and the test part where they have four."""
    rows = [
        {"user": user, "item": "pqrst"[n], "timestamp": START + at}
        for user, used in USED.items()
        for n, at in enumerate(used)
    ]
    return prepared(tmp_path_factory.mktemp("timed"), rows)


def used(data: PreparedData, user: int) -> list[float]:
    return [float(START + at) for at in USED[str(data.users.id(user))]]


def test_packed_events_are_followed_by_those_of_the_same_user(timed: PreparedData) -> None:
    """Whatever stands beside them; the last by the one that is not read any more."""
    users = np.array([3, 0, 2])
    starts = timed.offsets[users] + np.array([1, 0, 0])
    ends = timed.offsets[users] + np.array([3, 4, 1])
    gaps, clocks = packed_times(timed, users, starts, ends)
    moments, expected = [], []
    for user, (first, end) in zip(users.tolist(), ((1, 3), (0, 4), (0, 1)), strict=True):
        after = [*used(timed, user), START + 800_000.0]
        for n in range(first, end):
            moments.append(after[n + 1])
            expected.append(after[n + 1] - after[n])
    assert gaps.tolist() == expected
    assert clocks.tolist() == [moment % 604_800 for moment in moments]


def test_each_training_example_is_read_at_the_time_of_its_target(timed: PreparedData) -> None:
    """In runs, of which each step is one example's last."""
    (batch,) = TrainingBatches(timed, 1000, 2, 64, "causal_segment", times=True).epoch(stream(0, "order", 0))
    found = batch.histories
    assert found.gaps is not None
    assert found.clocks is not None
    assert len(found.gaps) == len(found.clocks) == len(found.rows)
    for b in range(len(batch.targets)):
        user, last = int(found.users[b]), int(found.ends[b]) - 1
        # Items of a user differ, so that the target says which event it is.
        place = timed.targets(user, "train").tolist().index(int(batch.targets[b]))
        at, before = used(timed, user)[place], used(timed, user)[place - 1]
        assert float(found.gaps[last]) == at - before
        assert float(found.clocks[last]) == at % 604_800


def test_evaluation_asks_when_the_target_was_used(timed: PreparedData) -> None:
    users = np.array([user for user in range(4) if len(used(timed, user)) >= 4])
    assert len(users) == 2
    found = histories_of(timed, users, "test", 3, times=True)
    assert found.gaps is not None
    for place, user in enumerate(users.tolist()):
        *_, before, at = used(timed, user)
        assert float(found.gaps[found.ends[place] - 1]) == at - before


def test_a_tower_of_times_refuses_data_that_has_only_an_order(
    handmade: PreparedData, timed: PreparedData, tmp_path: Path
) -> None:
    """The places in a file, or plain numbers; times are fine."""
    experiment = ExperimentConfig.model_validate({"tower": {"user": {"kind": "transformer", "times": True}}})
    build_model(experiment, timed)
    with pytest.raises(TrainingError, match=r"tower\.user\.times = true needs times.*position.*--time"):
        build_model(experiment, handmade)
    numbers = prepared(tmp_path, [{"user": "u", "item": n, "timestamp": n} for n in range(9)])
    with pytest.raises(TrainingError, match="number"):
        build_model(experiment, numbers)


Make = Callable[..., PreparedData]


@pytest.fixture
def log(tmp_path: Path) -> Make:
    """Prepared data of three users: a at 1, 2, 3, 4, 5; b at 3, 4; c at 1. All of it is for training."""

    def make(times: Callable[[int], object], split: str = "9999-01-01") -> PreparedData:
        events = {"a": [1, 2, 3, 4, 5], "b": [3, 4], "c": [1]}
        rows = [
            {"user": user, "item": f"i{step % 3}", "time": times(step)}
            for user, steps in events.items()
            for step in steps
        ]
        cut = {"kind": "time", "validation_from": split, "test_from": split}
        return prepared(tmp_path, rows, split=cut)

    return make


def day(step: int) -> str:
    return f"2024-05-{step:02d} 12:00:00"


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2024-05-03T12:00", [2, 5, 8]),
        ("2024-05-03T12:00:01", [3, 6, 8]),
        ("2024-05-03 14:00+02:00", [2, 5, 8]),
        ("2000-01-01", [0, 5, 7]),
        ("2030-01-01", [5, 7, 8]),
    ],
)
def test_each_users_events_from_a_moment_on_begin_where_they_do(
    log: Make, since: str, expected: list[int]
) -> None:
    """A time without an offset is UTC; a user without such an event has none from the end on."""
    assert first_events(log(day), since).tolist() == expected


@pytest.mark.parametrize("since", ["3", 2.5])
def test_numbers_are_compared_with_numbers(log: Make, since: str | float) -> None:
    """Where the order column holds plain numbers; they may be written as texts."""
    assert first_events(log(lambda step: step, split="99"), since).tolist() == [2, 5, 8]


@pytest.mark.parametrize("since", ["yesterday", "2024-13-01", 5, 1e300])
def test_what_is_no_time_is_refused(log: Make, since: str | float) -> None:
    """Numbers too that are of no time near ours, or dates without such a month."""
    with pytest.raises(TrainingError, match=r"training\.since = .* is no date or time; write it like 2024-"):
        first_events(log(day), since)


def test_data_without_times_is_refused(handmade: PreparedData) -> None:
    with pytest.raises(TrainingError, match=r"training\.since = 3 needs times, .* \(--time\)"):
        first_events(handmade, 3)
