"""Samplers by popularity: draws in proportion to weights, the exact head, and independent inclusion."""

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from turret.training.samplers.core.contract import CountingSampler, Draw, DrawContext, Sampler
from turret.training.samplers.core.settings import (
    BuildContext,
    ExcludingSettings,
    Negatives,
    Power,
    SamplerSettings,
)
from turret.training.samplers.fixed.alias import (
    AliasTable,
    Weights,
    log_uniform_weights,
    logs,
    unigram_weights,
)
from turret.training.samplers.fixed.complement import (
    ComplementSampler,
    SharedComplementSampler,
    UniqueSampler,
)

Added = Annotated[float, Field(ge=0.0, le=1e6)]
"""The number added to the count of every item. With 0, items without a training event are never drawn."""


class PopularitySettings(ExcludingSettings):
    """A proposal that is the same for all queries.

    Without the positive, candidates are drawn for each example, or with `spare` once for the batch.

    Args:
        negatives: K, the number of candidates.
        exclude_positive: whether each example draws without its positive, which is masked otherwise.
        spare: with `exclude_positive`, the number of further shared draws that replace an example's positive
            among its K; 0 for separate draws of each example.
    """

    mixable: ClassVar[bool] = True

    negatives: Negatives = 512
    spare: Annotated[int, Field(strict=True, ge=0, le=10_000_000)] = 0

    @model_validator(mode="after")
    def _spares(self) -> "PopularitySettings":
        if self.spare and not self.exclude_positive:
            raise ValueError(
                f"spare = {self.spare} replaces draws of an example's positive, which are kept (masked) with "
                "exclude_positive = false; set exclude_positive = true, or leave spare out"
            )
        return self

    def _sampler(self, weights: Weights, context: BuildContext) -> Sampler:
        if self.spare:
            return SharedComplementSampler(weights, self.negatives, self.spare, context.device)
        kind = ComplementSampler if self.exclude_positive else PopularitySampler
        return kind(weights, self.negatives, context.device)


class UniformConfig(PopularitySettings):
    """All items have the same probability. For the settings see `PopularitySettings`.

    Draws:
        int64 [K], shared by the batch; [B, K] with `exclude_positive`, or [K + spare] with `spare` too.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.uniform(negatives=4).build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> draw.ids.shape, draw.valid.shape
        (torch.Size([4]), torch.Size([2, 4]))
    """

    kind: Literal["uniform"] = "uniform"

    def build(self, context: BuildContext) -> Sampler:
        return self._sampler(np.ones(context.item_count), context)


class UnigramConfig(PopularitySettings):
    """Items are drawn in proportion to (count + added)^alpha.

    Args:
        alpha: the power of the counts; 0 is uniform, 1 the frequency itself.
        added: the number added to every count, so that items without a training event can be drawn.
        negatives, exclude_positive, spare: see `PopularitySettings`.

    Draws:
        int64 [K], shared by the batch; [B, K] with `exclude_positive`, or [K + spare] with `spare` too.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.unigram(negatives=4, exclude_positive=True).build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> draw.ids.shape, draw.valid.shape
        (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    kind: Literal["unigram"] = "unigram"
    alpha: Power = 0.75
    added: Added = 1.0

    def build(self, context: BuildContext) -> Sampler:
        counts = context.statistics.item_counts()
        return self._sampler(unigram_weights(counts, self.alpha, self.added), context)


class LogUniformConfig(PopularitySettings):
    """Items are drawn by the rank of their frequency alone.

    Args:
        unique: whether items are drawn until K different ones have come.
        negatives, exclude_positive, spare: see `PopularitySettings`.

    Draws:
        int64 [K], shared by the batch; [B, K] with `exclude_positive`, or [K + spare] with `spare` too.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.log_uniform(negatives=4, unique=True).build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> len(draw.ids.unique())
        4
    """

    kind: Literal["log_uniform"] = "log_uniform"
    unique: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "LogUniformConfig":
        if self.unique and self.exclude_positive:
            raise ValueError(
                "a unique draw is shared by the batch, so it can't leave out each example's own positive "
                "(which is masked anyway); set unique = false or exclude_positive = false"
            )
        return self

    def build(self, context: BuildContext) -> Sampler:
        weights = log_uniform_weights(context.statistics.target_counts())
        if self.unique:
            return UniqueSampler(weights, self.negatives, context.device)
        return self._sampler(weights, context)


class FixedCountSampler(CountingSampler, ABC):
    """Candidates shared by the batch, whose expected counts are the same in every step."""

    log_counts: Tensor
    """float32 [N], the log of the expected count of each item."""

    @abstractmethod
    def drawn(self, random: np.random.Generator) -> NDArray[np.int64]:
        """The candidates of a step, int64 [K]."""

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [K] ids."""
        ids = torch.from_numpy(self.drawn(context.random)).to(positives.device)
        counts = self.log_counts
        return Draw(ids, counts[ids], counts[positives], valid=ids != positives.unsqueeze(1))

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """Each item's share of the expected candidates, for each query: [B, N]."""
        expected = self.log_counts.exp()
        return (expected / expected.sum()).expand(len(query), -1)

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """The log counts of `ids`."""
        return self.log_counts[ids]


class PopularitySampler(FixedCountSampler):
    """K candidates a step, shared by the batch, drawn with replacement from a fixed proposal q.

    Bengio & Senecal 2008 draw in this way from the unigram, whose power 0 is the uniform distribution.
    """

    def __init__(self, weights: Weights, negatives: int, device: torch.device) -> None:
        self.negatives = negatives
        self.table = AliasTable(weights)
        self.log_counts = (logs(weights / weights.sum()) + math.log(negatives)).to(device)

    def drawn(self, random: np.random.Generator) -> NDArray[np.int64]:
        return self.table.draw(self.negatives, random)


class ExactHeadConfig(SamplerSettings):
    """The most frequent items, and draws of the others by (count + 1)^alpha.

    Args:
        negatives: K, the number of draws of the others.
        exact: M, the number of the most frequent items that are in every draw.
        alpha: the power of the counts.

    Draws:
        int64 [M + K], shared by the batch, the M items first; [N] where M is at least N.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.exact_head(negatives=4, exact=2).build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> draw.ids.shape, draw.ids[:2]
        (torch.Size([6]), tensor([0, 1]))
    """

    mixable: ClassVar[bool] = True

    kind: Literal["exact_head"] = "exact_head"
    negatives: Negatives = 448
    exact: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 64
    alpha: Power = 0.75

    def build(self, context: BuildContext) -> Sampler:
        weights = unigram_weights(context.statistics.item_counts(), self.alpha)
        return ExactHeadSampler(weights, self.exact, self.negatives, context.device)


class ExactHeadSampler(FixedCountSampler):
    """M items for certain, expected once, and K draws with replacement from the others; shared by the batch.

    The sum over the catalog is split in two without a common item. The first, over the set C_n of Botev et
    al. 2017, section 3, is exact: beside the positive, which the loss keeps, C_n has the head. The second is
    estimated from q_j / (1 - Q), where Q is the head's share of q. A head as large as the catalog leaves
    nothing to draw, which gives the full softmax.
    """

    def __init__(self, weights: Weights, exact: int, negatives: int, device: torch.device) -> None:
        """Take [N] positive weights; the `exact` heaviest are certain, ties by row."""
        order = np.argsort(-weights, kind="stable")
        self.head, self.others = np.sort(order[:exact]), np.sort(order[exact:])
        self.negatives = negatives
        expected = np.ones(len(weights))
        self.table: AliasTable | None = None
        if len(self.others):
            left = weights[self.others]
            expected[self.others] = negatives * left / left.sum()
            self.table = AliasTable(left)
        self.log_counts = torch.from_numpy(np.log(expected)).float().to(device)

    def drawn(self, random: np.random.Generator) -> NDArray[np.int64]:
        """The head, and K draws after it: ids [M + K]."""
        if self.table is None:
            return self.head
        return np.concatenate([self.head, self.others[self.table.draw(self.negatives, random)]])


class BernoulliConfig(SamplerSettings):
    """Each item is in the draw or not, independently, in proportion to (count + added)^alpha.

    Args:
        negatives: the expected number of candidates.
        alpha: the power of the counts.
        added: the number added to every count, so that items without a training event can be drawn.

    Draws:
        int64 [K], shared by the batch, of different items; K is random.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.bernoulli(negatives=4).build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> len(draw.ids) == len(draw.ids.unique()) == draw.valid.shape[1]
        True
    """

    # The number of candidates is random.
    fixed_size: ClassVar[bool] = False

    kind: Literal["bernoulli"] = "bernoulli"
    negatives: Negatives = 512
    alpha: Power = 0.75
    added: Added = 1.0

    def build(self, context: BuildContext) -> Sampler:
        weights = unigram_weights(context.statistics.item_counts(), self.alpha, self.added)
        return BernoulliSampler(weights, self.negatives, context.device)


class BernoulliSampler(FixedCountSampler):
    """Item i is in the draw with probability b_i, independently of all others; shared by the batch.

    An item comes at most once, and is expected b_i times: the sum over the others is estimated by
    sum exp(s_j) / b_j (Botev et al. 2017, eq. 7-9 and 22). The number of candidates is random.

    A draw takes time in proportion to its size: i is among the items of a Poisson number of draws with
    replacement, of rates -log(1 - b_i), with probability b_i exactly, and independently.
    """

    def __init__(self, weights: Weights, negatives: int, device: torch.device) -> None:
        """Expect `negatives` items, in proportion to [N] weights as far as b_i <= 1."""
        chances = inclusion_chances(weights, negatives)
        self.always = np.flatnonzero(chances == 1.0)
        self.sometimes = np.flatnonzero(chances < 1.0)
        rates = -np.log1p(-chances[self.sometimes])
        self.rate = float(rates.sum())
        self.table = AliasTable(rates) if len(rates) else None
        self.log_counts = logs(chances).to(device)

    def drawn(self, random: np.random.Generator) -> NDArray[np.int64]:
        """K different ids; K differs from draw to draw."""
        if self.table is None:
            return self.always
        drawn = np.unique(self.table.draw(int(random.poisson(self.rate)), random))
        return np.concatenate([self.always, self.sometimes[drawn]])


def inclusion_chances(weights: Weights, expected: int) -> Weights:
    """b_i = min(1, c weight_i), with c such that the [N] b_i sum to `expected`, or all with a weight are 1.

    The heaviest m are certain, and the others share the rest in proportion: m is the least number for which
    none of the others gets more than 1.
    """
    if expected >= np.count_nonzero(weights):
        return (weights > 0.0).astype(np.float64)
    order = np.argsort(-weights, kind="stable")
    falling = weights[order]
    rest = np.cumsum(falling[::-1])[::-1]
    factors = (expected - np.arange(expected)) / rest[:expected]
    certain = int(np.argmax(np.append(falling[:expected] * factors, 0.0) <= 1.0))
    chances = np.ones(len(weights))
    if certain < expected:
        chances[order[certain:]] = falling[certain:] * factors[certain]
    return chances
