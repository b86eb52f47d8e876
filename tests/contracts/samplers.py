"""What tests of samplers share: a catalog of twelve items, draws for it, and limits of statistics."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.tower.config import ScoringConfig
from turret.training.randomness import stream
from turret.training.samplers.core.contract import Draw, DrawContext, Sampler
from turret.training.samplers.core.settings import BuildContext, Counts, SamplerSettings

# The chance that a right sampler fails: one in a million, at fixed seeds.
Z_OF_ONE_IN_A_MILLION = 4.75
CPU = torch.device("cpu")
DOT = ScoringConfig(kind="dot", temperature=1.0)
ITEMS = 12
# Strongly unequal popularity, and vectors that are neither centred nor of one length.
COUNTS = np.array([400, 200, 100, 60, 30, 20, 10, 5, 3, 2, 1, 1])
VECTORS = torch.from_numpy(stream(3, "vectors", 0).normal(0.2, 0.6, size=(ITEMS, 4))).float()


def chi_square_limit(degrees: int) -> float:
    """The chi-square value that one in a million right samples exceeds (Wilson & Hilferty 1931)."""
    ninth = 2.0 / (9.0 * degrees)
    return degrees * (1.0 - ninth + Z_OF_ONE_IN_A_MILLION * math.sqrt(ninth)) ** 3


def query_of(size: int, step: int = 0) -> Tensor:
    """User vectors [B, 4]."""
    return torch.from_numpy(stream(4, "query", step).normal(0.1, 0.8, size=(size, 4))).float()


def positives_of(size: int, step: int = 0) -> Tensor:
    """Positives [B] by their counts."""
    drawn = stream(1, "positives", step).choice(ITEMS, size=size, p=COUNTS / COUNTS.sum())
    return torch.from_numpy(drawn)


def context_of(positives: Tensor, vectors: Tensor = VECTORS, step: int = 0) -> DrawContext:
    """A step in which each example has read its positive last."""
    return DrawContext(stream(2, "draw", step), positives, vectors[positives], vectors.__getitem__)


def draw_of(sampler: Sampler, step: int = 0, size: int = 64) -> tuple[Draw, Tensor]:
    """The draw of a step, and its positives."""
    positives = positives_of(size, step)
    return sampler.draw(query_of(size, step), positives, context_of(positives, step=step)), positives


def follows() -> NDArray[np.int64]:
    """How often one of twelve items follows another: after item 5 and the last nothing ever came."""
    table = stream(7, "follows", 0).poisson(np.geomspace(0.05, 9.0, ITEMS), size=(ITEMS, ITEMS))
    table[[5, 11]] = 0
    return np.asarray(table, dtype=np.int64)


@dataclass(frozen=True)
class Catalog:
    """Items with these counts, by default equally frequent; they follow each other by a table, or in turn."""

    item_count: int
    counts: Counts | None = None
    table: NDArray[np.int64] | None = None

    def item_counts(self) -> Counts:
        return np.ones(self.item_count, dtype=np.int64) if self.counts is None else self.counts

    target_counts = positive_counts = item_counts

    def bigram_counts(self) -> tuple[Counts, Counts]:
        table = np.eye(self.item_count, k=1, dtype=np.int64) if self.table is None else self.table
        pairs = np.flatnonzero(table)
        return pairs, table.ravel()[pairs]


def sampler_of(settings: SamplerSettings, items: int, scoring: ScoringConfig | None = None) -> Sampler:
    """The sampler of these settings for items of which nothing is known."""
    return settings.build(BuildContext(Catalog(items), scoring or DOT, 0, CPU))
