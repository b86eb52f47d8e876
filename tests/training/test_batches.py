"""Batches of training examples, the times of events, and the counts that samplers draw by."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray

from tests.support.until import until
from tests.training.conftest import prepared, with_events
from turret.data.configuration import load_configuration
from turret.data.prepared import Negatives, PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.ranges import ranges
from turret.data.reading.schema import PrepareConfig
from turret.tower.towers.user import Context
from turret.training.batches import batches
from turret.training.batches.batches import (
    AHEAD,
    Batch,
    PreparedStatistics,
    TrainingBatches,
    padded_negatives,
    prefetched,
    target_counts,
)
from turret.training.batches.event_times import first_events
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.errors import TrainingError
from turret.training.evaluation.ranking import histories_of
from turret.training.model_loss import build_objective, seen_items
from turret.training.objectives.sampled import SampledObjective
from turret.training.randomness import stream
from turret.training.run import build_model
from turret.training.used_items import Targets

Example = tuple[int, tuple[int, ...], int]


def examples(batch: Batch) -> list[Example]:
    """(user, what was read, what came next) for each example."""
    histories = batch.histories
    return [
        (
            int(histories.users[b]),
            tuple(histories.rows[histories.starts[b] : histories.ends[b]].tolist()),
            int(batch.targets[b]),
        )
        for b in range(len(batch.targets))
    ]


@pytest.mark.parametrize("since", [None, 1_650_000_000])
@pytest.mark.parametrize(("history_length", "span_length"), [(50, 64), (3, 2), (1, 1)])
def test_every_position_is_one_example(
    shop: PreparedData, history_length: int, span_length: int, since: int | None
) -> None:
    """An epoch holds each position once, with exactly the newest items before it, however it is cut.

    Since a moment: positions from then on, from the same histories.
    """
    expected = []
    for user in range(len(shop.users)):
        history = shop.targets(user, "train").tolist()
        for place in range(1, len(history)):
            if since is None or shop.times[shop.offsets[user] + place] >= 1000 * since:
                read = tuple(history[max(0, place - history_length) : place])
                expected.append((user, read, history[place]))
    batches = TrainingBatches(shop, 256, history_length, span_length, start_time=since)
    found = [example for batch in batches.epoch(stream(0, "order", 0)) for example in examples(batch)]
    assert sorted(found) == sorted(expected)
    assert len(found) == batches.example_count > 100


@pytest.mark.parametrize("history_length", [1, 3, 50])
def test_segments_hold_every_position_once(shop: PreparedData, history_length: int) -> None:
    """Each target reads its segment up to itself, and only a user's oldest segment may be short."""
    batches = TrainingBatches(shop, 256, history_length, 1, context="causal_segment")
    found = [example for batch in batches.epoch(stream(0, "order", 0)) for example in examples(batch)]
    expected = []
    for user in range(len(shop.users)):
        history = shop.targets(user, "train").tolist()
        for place in range(1, len(history)):
            later = (len(history) - 1 - place) // history_length
            start = max(0, len(history) - (later + 1) * history_length - 1)
            expected.append((user, tuple(history[start:place]), history[place]))
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("processes", [2, 3])
def test_shares_of_the_processes_make_the_batches_of_one(shop: PreparedData, processes: int) -> None:
    """Nearly equal ones; each example is in the share of one process."""
    batches = TrainingBatches(shop, 256, 50, 8)
    shares = [batches.epoch(stream(0, "order", 0), 1, (part, processes)) for part in range(processes)]
    for whole, *parts in zip(batches.epoch(stream(0, "order", 0), 1), *shares, strict=True):
        assert [one for part in parts for one in examples(part)] == examples(whole)
        sizes = [part.size for part in parts]
        # Each end of a share lies within half a span of its place.
        assert max(sizes) - min(sizes) <= 16


@pytest.mark.parametrize("context", ["causal_window", "causal_segment", "leave_one_out", "full_set"])
def test_data_without_a_pair_of_events_is_refused(tmp_path: Path, context: Context) -> None:
    data = prepared(tmp_path, "user,item,time\na,x,1\nb,y,2\n")
    with pytest.raises(TrainingError, match="nothing to predict"):
        TrainingBatches(data, 8, 5, 5, context)


@pytest.mark.parametrize(("history_length", "span_length"), [(1000, 64), (7, 3)])
def test_a_set_is_read_without_what_is_predicted(
    shop: PreparedData, history_length: int, span_length: int
) -> None:
    """Every event of a user of several is predicted once, from the newest others."""
    batches = TrainingBatches(shop, 256, history_length, span_length, context="leave_one_out")
    found: dict[int, list[int]] = {}
    for batch in batches.epoch(stream(0, "order", 0)):
        histories = batch.histories
        assert histories.left_out is not None
        for b, user in enumerate(histories.users.tolist()):
            begin, end = int(shop.offsets[user]), int(shop.splits[user, 0])
            newest = shop.event_items[max(begin, end - history_length) : end].tolist()
            read = histories.rows[histories.starts[b] : histories.ends[b]].tolist()
            assert read == newest
            left_out, target = int(histories.left_out[b]), int(batch.targets[b])
            assert (left_out >= 0) == (target in newest)
            if left_out >= 0:
                assert histories.starts[b] <= left_out < histories.ends[b]
                assert histories.rows[left_out] == target
            found.setdefault(user, []).append(target)
    for user in range(len(shop.offsets) - 1):
        events = shop.event_items[shop.offsets[user] : shop.splits[user, 0]].tolist()
        assert sorted(found.get(user, [])) == sorted(events if len(events) > 1 else [])
    counts = np.bincount(np.concatenate(list(found.values())), minlength=len(shop.item_ids))
    assert target_counts(shop, "leave_one_out").tolist() == counts.tolist()


def test_a_set_can_be_read_whole_for_all_items_of_its_user(shop: PreparedData) -> None:
    """Every event of a user of several is predicted in one batch, from one window that holds them all."""
    found: dict[int, list[int]] = {}
    for batch in TrainingBatches(shop, 256, 1000, 2, context="full_set").epoch(stream(0, "order", 0)):
        histories = batch.histories
        assert histories.left_out is None
        first, window = histories.distinct()
        assert histories.users[first].tolist() == list(dict.fromkeys(histories.users.tolist()))
        assert torch.equal(histories.take(first).starts[window], histories.starts)
        for user in histories.users[first].tolist():
            assert user not in found
            mine = histories.users == user
            found[user] = sorted(batch.targets[mine].tolist())
            b = int(mine.nonzero()[0])
            read = histories.rows[histories.starts[b] : histories.ends[b]].tolist()
            assert sorted(read) == found[user]
    for user in range(len(shop.offsets) - 1):
        events = shop.event_items[shop.offsets[user] : shop.splits[user, 0]].tolist()
        assert found.get(user, []) == (sorted(events) if len(events) > 1 else [])
    counts = np.bincount(np.concatenate(list(found.values())), minlength=len(shop.item_ids))
    assert target_counts(shop, "full_set").tolist() == counts.tolist()


@pytest.mark.parametrize("context", ["leave_one_out", "full_set"])
def test_where_a_term_ranks_repeats_a_set_has_each_item_once(tmp_path: Path, context: Context) -> None:
    """Another event of the target would tell it to the tower, and a single item tells nothing."""
    histories = {"a": "xyxzx", "b": "yy", "c": "zxx"}  # and two events for validation and test
    events = [f"{user},{item}" for user, items in histories.items() for item in items + "xx"]
    log = "\n".join(f"{event},{time}" for time, event in enumerate(events))
    data = prepared(tmp_path, f"user,item,time\n{log}\n")
    targets = Targets.of(load_experiment("ids", ["evaluation.exclude_seen=false"]), data)
    names = [str(name) for name in data.item_ids.ids(range(3))]
    found = []
    for batch in TrainingBatches(data, 2, 100, 64, context, targets=targets).epoch(stream(0, "order", 0)):
        left_out = batch.histories.left_out
        for b, (_, read, target) in enumerate(examples(batch)):
            if left_out is not None:
                assert batch.histories.rows[left_out[b]] == target
            found.append("".join(names[row] for row in read) + " " + names[target])
    assert sorted(found) == ["xyz x", "xyz y", "xyz z", "zx x", "zx z"]


def test_the_negatives_of_targets_in_any_order_are_their_own() -> None:
    """Of a target that is there twice, too; -1 with a weight of zero where a target has fewer."""
    items, offsets = np.array([4, 5, 6], dtype=np.int32), np.array([0, 2, 2, 3])
    weights, targets = np.array([2.0, 3.0, 4.0], dtype=np.float32), np.array([2, 0, 1, 0])
    rows, found = padded_negatives(Negatives(items, offsets, weights), targets)
    assert rows.tolist() == [[6, -1], [4, 5], [-1, -1], [4, 5]]
    assert found.tolist() == [[4.0, 0.0], [2.0, 3.0], [0.0, 0.0], [2.0, 3.0]]
    rows, found = padded_negatives(Negatives(items, offsets, None), targets)
    assert found.tolist() == [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_batches_are_made_before_they_are_asked_for(shop: PreparedData) -> None:
    """As many as stated, and one in the maker's hands; no more."""
    made: list[int] = []

    def counted() -> Iterator[Batch]:
        for batch in TrainingBatches(shop, 64, 50, 64).epoch(stream(0, "order", 0)):
            made.append(1)
            yield batch

    batches = prefetched(counted(), torch.device("cpu"))
    for asked in range(1, 5):
        next(batches)
        until(lambda: len(made) >= asked + AHEAD + 1, "batches are made ahead")  # noqa: B023
        assert len(made) <= asked + AHEAD + 1
    batches.close()  # type: ignore[attr-defined] # a generator
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("turret-batches")]


def test_queries_of_one_answer_are_seen_by_each_other(tmp_path: Path) -> None:
    rows = {"query": [f"{a} {n}" for a in "ab" for n in range(3)], "item": ["a"] * 3 + ["b"] * 3}
    pl.DataFrame({**rows, "split": ["train"] * 6}).write_csv(tmp_path / "pairs.csv")
    given = {"queries.source": str(tmp_path / "pairs.csv"), "queries.match": "questions"}
    config = load_configuration(PrepareConfig, overrides=given)
    data = PreparedData.open(prepare(config, tmp_path / "prepared").folder)
    batches = TrainingBatches(data, 64, 50, 64, "none")
    (batch,) = batches.epoch(np.random.default_rng(0))
    assert len(batch.histories.rows) == 0
    assert batch.size == batches.example_count
    questions = np.array(data.fields["question"])
    seen = seen_items(batch)
    users = np.array(data.users.ids(batch.histories.users.numpy()))
    for example, target in enumerate(batch.targets.tolist()):
        assert questions[target][0] == users[example][0]
        known = seen.rows[seen.users == seen.examples[example]].tolist()
        assert set(known) == {row for row in batch.targets.tolist() if questions[row][0] == users[example][0]}


@pytest.mark.parametrize("users_a_block", [1, 2, 65536])
def test_pairs_are_counted_within_users(
    handmade: PreparedData, users_a_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_USERS_A_BLOCK", users_a_block)
    expected: Counter[tuple[int, int]] = Counter()
    for user in range(len(handmade.users)):
        history = handmade.targets(user, "train").tolist()
        expected.update(pairwise(history))
    pairs, counts = PreparedStatistics(handmade).bigram_counts()
    size = len(handmade.item_ids)
    assert (np.diff(pairs) > 0).all()
    found = {
        (pair // size, pair % size): count
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True)
    }
    assert found == expected
    assert max(found.values()) > 1


@pytest.mark.parametrize("name", ["item_counts", "target_counts", "positive_counts", "bigram_counts"])
def test_samplers_draw_by_counts_of_the_training_part_alone(name: str, handmade: PreparedData) -> None:
    """Other validation and test events leave every count as it is; other training events do not."""

    def counts(data: PreparedData) -> NDArray[np.int64]:
        return np.concatenate(np.atleast_2d(getattr(PreparedStatistics(data), name)()))

    trained = counts(handmade)
    assert np.array_equal(counts(with_events(handmade, held_out=True)), trained)
    assert not np.array_equal(counts(with_events(handmade, held_out=False)), trained)


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


@pytest.mark.parametrize("user", [{"kind": "transformer", "times": True}, {"example_age": True}])
def test_a_tower_of_times_refuses_data_that_has_only_an_order(
    handmade: PreparedData, timed: PreparedData, tmp_path: Path, user: dict[str, object]
) -> None:
    """The places in a file, or plain numbers; times are fine."""
    experiment = ExperimentConfig.model_validate({"tower": {"user": user}})
    build_model(experiment, timed)
    with pytest.raises(TrainingError, match=r"tower\.user\.\w+ = true needs times.*position.*--time"):
        build_model(experiment, handmade)
    numbers = prepared(tmp_path, [{"user": "u", "item": n, "timestamp": n} for n in range(9)])
    with pytest.raises(TrainingError, match="number"):
        build_model(experiment, numbers)


def log(folder: Path, times: Callable[[int], object], split: str = "9999-01-01") -> PreparedData:
    """Three users: a at 1, 2, 3, 4, 5; b at 3, 4; c at 1. All of it is for training."""
    rows = [
        {"user": user, "item": f"i{step % 3}", "time": times(step)}
        for user, steps in {"a": [1, 2, 3, 4, 5], "b": [3, 4], "c": [1]}.items()
        for step in steps
    ]
    return prepared(folder, rows, split={"kind": "time", "validation_from": split, "test_from": split})


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
        ("2d", [2, 5, 8]),
        ("47h", [3, 6, 8]),
        ("1000d", [0, 5, 7]),
    ],
)
def test_each_users_events_from_a_moment_on_begin_where_they_do(
    tmp_path: Path, since: str, expected: list[int]
) -> None:
    """A time without an offset is UTC; a user without such an event has none from the end on."""
    assert first_events(log(tmp_path, day), since).tolist() == expected


@pytest.mark.parametrize("since", ["3", 2.5])
def test_numbers_are_compared_with_numbers(tmp_path: Path, since: str | float) -> None:
    """Where the order column holds plain numbers; they may be written as texts."""
    assert first_events(log(tmp_path, lambda step: step, split="99"), since).tolist() == [2, 5, 8]


@pytest.mark.parametrize("since", ["yesterday", "2024-13-01", 5, 1e300, "0d", "-2d", "infd", "3w"])
def test_what_is_no_time_is_refused(tmp_path: Path, handmade: PreparedData, since: str | float) -> None:
    """Numbers too that are of no time near ours, or dates without such a month; and data without times."""
    with pytest.raises(TrainingError, match=r"training\.since = .* is no date or time; write it like 2024-"):
        first_events(log(tmp_path, day), since)
    with pytest.raises(TrainingError, match=r"training\.since = .* needs times, .* \(--time\)"):
        first_events(handmade, since)


def answered(data: PreparedData, propensity: float = 0.5) -> PreparedData:
    """The data in which events are at the places 0 (none) to 3, of which the first two are examined."""
    places = (np.arange(len(data.event_items)) % 4).astype(np.uint16)
    return replace(
        data,
        places=places,
        propensities=np.where(places > 0, propensity, np.nan).astype(np.float32),
        examination=np.array([1.0, 0.5]),
    )


def test_targets_weigh_by_the_examination_of_their_place_up_to_the_clip(loyal: PreparedData) -> None:
    """Places beyond the last one that was estimated have its weight; events without a place have 1."""
    data = answered(loyal)
    positions = np.arange(len(data.event_items))
    assert data.places is not None
    for clip, weights in ((10.0, [1.0, 1.0, 2.0, 2.0]), (1.5, [1.0, 1.0, 1.5, 1.5])):
        experiment = load_experiment("ids", [f"training.examination_clip={clip}"])
        expected = np.array(weights)[data.places]
        np.testing.assert_array_equal(Targets.of(experiment, data).weights(positions), expected)
    assert set(Targets.of(load_experiment("ids", []), data).weights(positions)) == {1.0}
    with pytest.raises(TrainingError, match=r"has events of no answer log; prepare the data with --answers"):
        Targets.of(experiment, loyal)
    with pytest.raises(TrainingError, match=r"explored too little to estimate it; log for longer, or set"):
        Targets.of(experiment, replace(data, examination=None))


def test_targets_have_their_propensities_and_a_loss_that_needs_them_is_refused_without(
    loyal: PreparedData,
) -> None:
    data = answered(loyal)
    assert data.propensities is not None
    experiment = load_experiment("ids_sampled", ["objective.loss=top_k_off_policy"])
    batches = TrainingBatches.of(experiment, data, batch_size=64)
    batch = batches.collate(batches.spans)
    positions = ranges(batches.spans.firsts, batches.spans.counts)
    assert batch.propensities is not None
    np.testing.assert_array_equal(batch.propensities, data.propensities[positions])
    assert next(batches.epoch(stream(0, "order", 0))).propensities is not None
    device = torch.device("cpu")
    assert isinstance(build_objective(experiment, data, device), SampledObjective)
    with pytest.raises(
        TrainingError, match=r"needs the propensities of logged answers, and .* has none; pre"
    ):
        build_objective(experiment, loyal, device)
    with pytest.raises(TrainingError, match="is 1, so the answers explored nothing, and no correction is"):
        build_objective(experiment, answered(loyal, propensity=1.0), device)


def test_the_weight_of_a_target_halves_with_its_age(loyal: PreparedData, handmade: PreparedData) -> None:
    """Back from the newest event of the training part; the oldest ones keep a little of it."""
    starts, ends = (np.asarray(bound) for bound in loyal.bounds("train"))
    positions = np.concatenate([np.arange(start, end) for start, end in zip(starts, ends, strict=True)])
    ages = (loyal.times[positions].max() - loyal.times[positions]) / 86_400_000
    for half_life in (3.0, 0.25):
        experiment = load_experiment("ids", [f"training.half_life={half_life}"])
        weights = Targets.of(experiment, loyal).weights(positions)
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights, np.maximum(0.5 ** (ages / half_life), 2.0**-20), rtol=1e-5)
    with pytest.raises(TrainingError, match=r"half_life = 0.25 needs times, and .* has only an order"):
        Targets.of(experiment, handmade)
