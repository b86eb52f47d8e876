"""Queries of a report, from real training examples, and independent draws of each sampler for them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.towers.model import TwoTowers
from turret.training.batches.batches import TrainingBatches
from turret.training.batches.spans import Spans
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw, without_accidental_hits
from turret.training.samplers.core.settings import SamplerSettings
from turret.training.samplers.from_batch.in_batch import InBatchSampler
from turret.training.samplers.registry import SAMPLERS

# User vectors computed at once.
_BLOCK = 4096
# B x N probabilities held at once for a sampler that draws for the batch.
_MOST_PROBABILITIES = 2**24


@dataclass(frozen=True)
class Entry:
    """One sampler of a report; `negatives` is None where the batch determines the number of candidates."""

    label: str
    negatives: int | None
    settings: SamplerSettings

    @property
    def by_batch(self) -> bool:
        """Whether the draw depends on all examples of the batch."""
        return any(part.reads_batch for part in self.settings.members)

    @property
    def dense(self) -> bool:
        """Whether each draw scores the whole catalog."""
        return any(part.scores_catalog for part in self.settings.members)


def entries(sizes: Sequence[int], batch_size: int) -> Iterator[Entry]:
    """The variants of all samplers at all sizes, then those whose size follows from the batch."""
    for settings in sorted(SAMPLERS.values(), key=lambda settings: not settings.sized):
        for label in settings.compared(sizes[0], batch_size):
            for size in sizes if settings.sized else sizes[:1]:
                variant = settings.compared(size, batch_size)[label]
                yield Entry(label, size if settings.sized else None, variant)


def stale_entries(refresh_every: int) -> Iterator[Entry]:
    """Samplers for the measurement of stale item vectors, at their default size."""
    for kind, settings in SAMPLERS.items():
        if settings.measured_stale:
            built = settings.model_validate({"refresh_every": refresh_every})
            yield Entry(kind, built.model_dump().get("negatives"), built)


@dataclass(frozen=True)
class Examples:
    """User vectors [E, D] without gradient, positives [E] and the newest items of the histories [E]."""

    users: Tensor
    positives: Tensor
    last_items: Tensor

    def __len__(self) -> int:
        return len(self.positives)

    def take(self, indices: slice | Tensor) -> "Examples":
        """The examples at `indices`."""
        return Examples(self.users[indices], self.positives[indices], self.last_items[indices])


class ExampleSource:
    """Draws uniformly from the training examples of prepared data."""

    def __init__(self, data: PreparedData, history_length: int, times: bool = False) -> None:
        """With `times`, histories have times. Raises TrainingError for data without a target."""
        self.data = data
        self.batches = TrainingBatches(data, 1, history_length, 1_000_000_000, times=times)
        self.begins = np.asarray(data.offsets[:-1])
        # The first event of a history is no target.
        targets = np.maximum(np.asarray(data.splits[:, 0]) - self.begins - 1, 0)
        self.ends = np.cumsum(targets)
        self.before = self.ends - targets

    def __len__(self) -> int:
        return int(self.ends[-1])

    def targets(self, count: int, random: np.random.Generator) -> Tensor:
        """Draw `count` positives with replacement: int64 [count]."""
        targets = self._spans(random.integers(len(self), size=count)).firsts
        return torch.from_numpy(self.data.event_items[targets].astype(np.int64))

    @torch.no_grad()
    def read(self, model: TwoTowers, count: int, random: np.random.Generator) -> Examples:
        """Draw at most `count` different examples, with the vectors of `model` in evaluation mode."""
        numbers = random.choice(len(self), min(count, len(self)), replace=False)
        training = model.training
        model.eval()
        blocks = [self._block(model, numbers[at : at + _BLOCK]) for at in range(0, len(numbers), _BLOCK)]
        model.train(training)
        return Examples(*(torch.cat(columns) for columns in zip(*blocks, strict=True)))

    def _block(self, model: TwoTowers, numbers: NDArray[np.int64]) -> tuple[Tensor, ...]:
        batch = self.batches.collate(self._spans(numbers)).to(next(model.parameters()).device)
        users = model.user_vectors(batch.histories, model.current_vectors(batch.histories.rows))
        return users, batch.targets, batch.histories.rows[batch.histories.ends - 1]

    def _spans(self, numbers: NDArray[np.int64]) -> Spans:
        """Spans of one target each for the examples with these numbers."""
        users = np.searchsorted(self.ends, numbers, side="right")
        firsts = self.begins[users] + 1 + numbers - self.before[users]
        contexts = np.maximum(self.begins[users], firsts - self.batches.history_length)
        return Spans(users=users, contexts=contexts, stops=firsts, firsts=firsts, ends=firsts + 1)


@dataclass(frozen=True)
class Queries:
    """The common input of all samplers of a report.

    Attributes:
        examples: the Q queries.
        others: the other examples of their batches.
        vectors: float [N, D], the item vectors.
        source: the source of the positives of the others.
        batch_size: B, the batch size of the run.
        seed: of all draws.
    """

    examples: Examples
    others: Examples
    vectors: Tensor
    source: ExampleSource
    batch_size: int
    seed: int

    def context(self, examples: Examples, random: np.random.Generator) -> DrawContext:
        """The context of a draw for these examples."""
        vectors = self.vectors[examples.positives]
        return DrawContext(random, examples.last_items, vectors, self.vectors.__getitem__)

    def batch(self, random: np.random.Generator, size: int) -> Examples:
        """A batch of `size` examples with positives drawn anew from the training part.

        New positives keep the draws independent; no sampler reads which example a positive belongs to.
        """
        indices = torch.from_numpy(random.integers(len(self.others), size=size))
        positives = self.source.targets(size, random).to(self.vectors.device)
        return replace(self.others.take(indices.to(self.vectors.device)), positives=positives)


Drawer = Callable[[int], Draw]


def drawer(entry: Entry, sampler: Sampler, queries: Queries) -> Drawer:
    """Return `draw_once(n)`, which gives the n-th independent draw for the Q queries."""
    examples, settings = queries.examples, entry.settings
    # Between independent draws of a queue all its batches pass.
    apart = 1 + max(part.remembered_batches for part in settings.members)

    def for_queries(number: int) -> Draw:
        random = stream(queries.seed, f"report {entry.label}", number)
        return sampler.draw(examples.users, examples.positives, queries.context(examples, random))

    def with_batch(number: int) -> Draw:
        for nth in range(number * apart, (number + 1) * apart):
            random = stream(queries.seed, f"report {entry.label}", nth)
            batch = queries.batch(random, queries.batch_size)
            draw = sampler.draw(batch.users, batch.positives, queries.context(batch, random))
        # Masked as if each query were the first example of the batch.
        valid = without_accidental_hits(draw.ids, examples.positives)
        if settings.members[0].begins_with_positives:
            # One of the B positives of a query's batch is its own and masked.
            valid[:, 0] = False
        counts, held = torch.full(examples.positives.shape, float("nan"), device=valid.device), None
        if isinstance(sampler, InBatchSampler):
            counts = sampler.log_expected(batch.users, batch.positives, examples.positives)
            held = (torch.arange(len(counts), device=valid.device), torch.zeros_like(examples.positives))
        return replace(draw, valid=valid, positive_log_count=counts, held=held, stored=None)

    return with_batch if entry.by_batch else for_queries


def proposal(entry: Entry, sampler: Sampler, queries: Queries) -> Tensor:
    """The proposal probabilities q [Q, N] of the queries."""
    random = stream(queries.seed, f"report proposal {entry.label}", 0)
    examples = queries.examples
    if not entry.by_batch:
        return sampler.probability(examples.users, queries.context(examples, random))
    size = min(queries.batch_size, max(1, _MOST_PROBABILITIES // len(queries.vectors)))
    batch = queries.batch(random, size)
    q = sampler.probability(batch.users, queries.context(batch, random))
    return q[:1].expand(len(examples), -1)
