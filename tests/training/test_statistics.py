"""Counts of items and pairs, by which samplers draw: of the training part alone."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from turret.data.prepared import PreparedData
from turret.training.batches import batches
from turret.training.batches.batches import PreparedStatistics


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


def with_events(data: PreparedData, held_out: bool) -> PreparedData:
    """The same data in which all events of the training part, or all held out, are of other items."""
    starts, ends = data.bounds("train")
    training = np.zeros(len(data.event_items), dtype=bool)
    for start, end in zip(starts, ends, strict=True):
        training[start:end] = True
    mirrored = len(data.item_ids) - 1 - np.asarray(data.event_items)
    return replace(data, event_items=np.where(training != held_out, mirrored, data.event_items))


@pytest.mark.parametrize("name", ["item_counts", "target_counts", "positive_counts", "bigram_counts"])
def test_samplers_draw_by_counts_of_the_training_part_alone(name: str, handmade: PreparedData) -> None:
    """Other validation and test events leave every count as it is; other training events do not."""

    def counts(data: PreparedData) -> NDArray[np.int64]:
        return np.concatenate(np.atleast_2d(getattr(PreparedStatistics(data), name)()))

    trained = counts(handmade)
    assert np.array_equal(counts(with_events(handmade, held_out=True)), trained)
    assert not np.array_equal(counts(with_events(handmade, held_out=False)), trained)
