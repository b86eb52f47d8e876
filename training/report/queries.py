"""Queries of a report, from real training examples, and independent draws of each sampler for them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.tower.towers.model import TwoTowers
from turret.training.batches.batches import TrainingBatches
from turret.training.losses.loss import settings_of
from turret.training.losses.sampled import sampled_softmax
from turret.training.objectives.sampled import DrawLossSettings
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw, without_accidental_hits
from turret.training.samplers.core.settings import SamplerSettings
from turret.training.samplers.from_batch.in_batch import InBatchConfig, InBatchSampler
from turret.training.samplers.registry import SAMPLERS

# B x N probabilities held at once for a sampler that draws for the batch, and B x K scores of a queue.
_MOST_PROBABILITIES, _MOST_QUEUED_SCORES = 2**24, 2**25
# The settings that are compared with the default ones, by a suffix of their label.
_VARIANTS: dict[str, dict[str, dict[str, object]]] = {
    "uniform": {"no positive": {"exclude_positive": True}},
    "log_uniform": {"unique": {"unique": True}},
    "in_batch": {"unique": {"unique": True}},
    "quadratic": {"no positive": {"exclude_positive": True}, "per batch": {"per": "batch"}},
    "softmax": {"no positive": {"exclude_positive": True}},
}
# Samplers that are measured with old item vectors too.
_STALE = ("quadratic", "softmax")
SAMPLED = settings_of(sampled_softmax)()


@dataclass(frozen=True)
class Entry:
    """One sampler of a report; `negatives` is None where the batch determines the number of candidates."""

    label: str
    negatives: int | None
    settings: SamplerSettings
    loss: DrawLossSettings = SAMPLED

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
    kinds = {kind: settings.model_fields for kind, settings in SAMPLERS.items() if settings.alone}
    sized = [kind for kind, fields in kinds.items() if kind == "mixed" or "negatives" in fields]
    for kind in (*sized, *(kind for kind in kinds if kind not in sized)):
        for label in _variants(kind, sizes[0], batch_size):
            for size in sizes if kind in sized else sizes[:1]:
                settings = _variants(kind, size, batch_size)[label]
                yield Entry(label, size if kind in sized else None, settings)


def _variants(kind: str, negatives: int, batch_size: int) -> dict[str, SamplerSettings]:
    """The variants of a sampler by label, with `negatives` candidates where that is a setting."""
    made = SAMPLERS[kind].model_validate
    if kind == "mixed":
        uniform = {"kind": "uniform", "negatives": negatives}
        return {
            "mixed": made({"parts": ["in_batch", uniform]}),
            "mixed, mined": made({"parts": [uniform, "mined"]}),
        }
    if kind == "cross_batch":
        batches = max(1, min(4, _MOST_QUEUED_SCORES // batch_size**2))
        return {f"cross_batch of {batches}": made({"batches": batches})}
    size = {"negatives": negatives} if "negatives" in SAMPLERS[kind].model_fields else {}
    changed = {f"{kind}, {suffix}": settings for suffix, settings in _VARIANTS.get(kind, {}).items()}
    return {label: made({**size, **settings}) for label, settings in {kind: {}, **changed}.items()}


def stale_entries(refresh_every: int) -> Iterator[Entry]:
    """Samplers for the measurement of stale item vectors, at their default size."""
    for kind in _STALE:
        built = SAMPLERS[kind].model_validate({"refresh_every": refresh_every})
        yield Entry(kind, built.model_dump()["negatives"], built)


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


@torch.no_grad()
def read_examples(
    model: TwoTowers, batches: TrainingBatches, count: int, random: np.random.Generator
) -> Examples:
    """Draw at most `count` different training examples, with the vectors of `model` in evaluation mode.

    They are those of the first batches of an epoch in an order of its own, of which some are drawn.
    """
    training, device, read = model.training, next(model.parameters()).device, []
    model.eval()
    for batch in batches.epoch(random):
        histories = batch.to(device).histories
        users = model.user_vectors(histories, model.current_vectors(histories.rows))
        read.append((users, batch.targets.to(device), histories.rows[histories.ends - 1]))
        if sum(len(block[0]) for block in read) >= count:
            break
    model.train(training)
    examples = Examples(*(torch.cat(columns) for columns in zip(*read, strict=True)))
    return examples.take(torch.from_numpy(random.permutation(len(examples))[:count]).to(device))


@dataclass(frozen=True)
class Queries:
    """The common input of all samplers of a report.

    Attributes:
        examples: the Q queries.
        others: the other examples of their batches.
        vectors: float [N, D], the item vectors.
        target_ends: int64 [N], the running sums of how often each item is a training target.
        batch_size: B, the batch size of the run.
        seed: of all draws.
    """

    examples: Examples
    others: Examples
    vectors: Tensor
    target_ends: NDArray[np.int64]
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
        drawn = random.integers(self.target_ends[-1], size=size)
        positives = torch.from_numpy(np.searchsorted(self.target_ends, drawn, side="right"))
        device = self.vectors.device
        return replace(self.others.take(indices.to(device)), positives=positives.to(device))


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
        first = settings.members[0]
        if isinstance(first, InBatchConfig) and not first.unique:
            # One of the B positives of a query's batch is its own and masked.
            valid[:, 0] = False
        counts, held = torch.full(examples.positives.shape, float("nan"), device=valid.device), None
        if isinstance(sampler, InBatchSampler):
            counts = sampler.log_expected(batch.users, batch.positives, examples.positives)
            held = (torch.arange(len(counts), device=valid.device), torch.zeros_like(examples.positives))
        draw = replace(draw, valid=valid, positive_log_count=counts, held=held, stored=None)
        return draw.keeping_hits(examples.positives) if entry.loss.keeps_hits else draw

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
