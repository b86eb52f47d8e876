"""Batches of training examples, and the counts of the training part that samplers draw by."""

import threading
from collections import Counter
from collections.abc import Iterator
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
from turret.training.errors import TrainingError
from turret.training.model_loss import seen_items
from turret.training.randomness import stream

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
            assert (left_out >= 0) == (histories.sizes()[b] == len(newest) - 1)
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
