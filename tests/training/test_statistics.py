"""Counts of items and pairs, by which samplers draw: of the training part alone."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.config import ScoringConfig
from turret.training.batches import batches
from turret.training.batches.batches import PreparedStatistics
from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import TwoPassConfig, TwoPassSampler
from turret.training.samplers.adaptive.ngram import BigramConfig
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.core.settings import BuildContext, SamplerSettings
from turret.training.samplers.fixed.popularity import BernoulliConfig, LogUniformConfig, UnigramConfig
from turret.training.samplers.from_batch.in_batch import InBatchConfig


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


def proposal(settings: SamplerSettings, data: PreparedData) -> Tensor:
    """The probabilities of each item after each item; those of the first pass, where there are two."""
    size, statistics = len(data.item_ids), PreparedStatistics(data)
    sampler = settings.build(BuildContext(statistics, ScoringConfig(), 0, torch.device("cpu")))
    if isinstance(sampler, TwoPassSampler):
        return sampler.log_expected.exp()
    vectors = torch.zeros(size, 4)
    context = DrawContext(stream(0, "draw", 0), torch.arange(size), vectors, vectors.__getitem__)
    return sampler.probability(vectors, context)


@pytest.mark.parametrize(
    "settings",
    [
        UnigramConfig(),
        LogUniformConfig(),
        BigramConfig(),
        BernoulliConfig(negatives=2),
        TwoPassConfig(),
        InBatchConfig(),
        InBatchConfig(frequencies="smoothed"),
    ],
    ids=lambda settings: f"{settings.kind}, {getattr(settings, 'frequencies', '')}",
)
def test_a_proposal_counts_the_training_part_alone(settings: SamplerSettings, handmade: PreparedData) -> None:
    """Other validation and test events leave every probability as it is; other training events do not."""
    trained = proposal(settings, handmade)
    assert torch.equal(proposal(settings, with_events(handmade, held_out=True)), trained)
    assert not torch.allclose(proposal(settings, with_events(handmade, held_out=False)), trained)
