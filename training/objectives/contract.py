"""The contract of losses and objectives, which turn the user vectors of a step into a number to minimise."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from turret.tower.config import ScoringConfig, Settings
from turret.tower.layers.packed import ranges
from turret.tower.towers.model import served_scores
from turret.training.samplers.core.contract import Draw, GatheredBatch, Sampler
from turret.training.samplers.core.settings import BuildContext

# A sum of weights is not smaller than this, unless it is zero.
_LEAST_WEIGHT = torch.finfo(torch.float32).tiny

Loss = Callable[[Tensor, Tensor, Draw], Tensor]
"""`(positive, drawn, draw) -> [B]`, unreduced.

`positive` [B] has the scores s_y of the positives and `drawn` [B, K] the scores s_j of the candidates,
divided by the temperature; `draw` has the log expected counts l_j of the candidates and l_y of the positives,
and the mask of valid candidates.
"""

PairLoss = Callable[[Tensor, Tensor], Tensor]
"""`(scores [B], positive [B]) -> [B]`, unreduced: a loss of pairs, the boolean `positive` is the label."""

CatalogLoss = Callable[[Tensor, Tensor], Tensor]
"""`(scores [B, N], positives [B]) -> [B]`, unreduced: a loss over the whole catalog."""


@dataclass(frozen=True)
class SeenItems:
    """The events of the users of B examples; each example's positive is one of them.

    Attributes:
        users: int64 [P], the user of each event, numbered from 0.
        rows: int64 [P], the item row of each event.
        examples: int64 [B], the user of each example.
    """

    users: Tensor
    rows: Tensor
    examples: Tensor

    @classmethod
    def of(cls, users: Tensor, rows: Tensor, examples: Tensor) -> "SeenItems":
        """Number users anew: `users` [P] and `examples` [B] are user rows of any size."""
        _, numbers = torch.unique(torch.cat([users, examples]), return_inverse=True)
        return cls(numbers[: len(users)], rows, numbers[len(users) :])

    def among(self, ids: Tensor, examples: Tensor | None = None) -> Tensor:
        """Which candidates the example's user has used, the positive among them.

        Args:
            ids: int64 [K], candidates that the batch shares, or [B, K].
            examples: int64 [L], the example of each line of `ids` [L, K]; without it, each example once.

        Returns:
            bool [B, K], or [L, K].
        """
        owners = self.examples if examples is None else self.examples[examples]
        if ids.dim() == 1:
            return self._of_users(ids)[owners]
        size = int(torch.cat([self.rows, ids.flatten()]).max()) + 1
        return torch.isin(owners.unsqueeze(1) * size + ids, self.users * size + self.rows)

    def pairs(self) -> tuple[Tensor, Tensor]:
        """The nonzero entries of `among` the whole catalog, without building its matrix.

        Returns:
            int64 [L] and [L]: examples, ascending, and the item rows of each, ascending too.
        """
        size = int(self.rows.max()) + 1
        distinct = torch.unique(self.users * size + self.rows)
        counts = torch.bincount(distinct // size)
        starts = counts.cumsum(0) - counts
        lengths = counts[self.examples]
        examples = torch.arange(len(self.examples), device=lengths.device).repeat_interleave(lengths)
        return examples, distinct[ranges(starts[self.examples], lengths)] % size

    def _of_users(self, ids: Tensor) -> Tensor:
        """The items of `ids` [K] that each user has used: bool [users, K]."""
        ordered, positions = ids.sort()
        first = torch.searchsorted(ordered, self.rows)
        counts = torch.searchsorted(ordered, self.rows, right=True) - first
        # Candidates may repeat: every copy of a row is one position.
        hits = positions[ranges(first, counts)]
        user_count = int(self.users.max()) + 1
        seen = torch.zeros(user_count, len(ids), dtype=torch.bool, device=ids.device)
        seen[self.users.repeat_interleave(counts), hits] = True
        return seen


class ItemEncoder(Protocol):
    """Scored item vectors by item row; D is their width, N the size of the catalog."""

    def item_vectors(self, rows: Tensor) -> Tensor:
        """The vectors [..., D] of `rows` [...], with a gradient."""
        ...

    def current_vectors(self, rows: Tensor) -> Tensor:
        """The vectors [..., D] of `rows` [...] as they would be served, without a gradient."""
        ...

    def catalog_vectors(self) -> Tensor:
        """The vectors [N, D] of all items, with a gradient."""
        ...


@dataclass(frozen=True)
class Examples:
    """One step's B examples.

    Attributes:
        users: [U, D] scored user vectors.
        positives: int64 [B], the item row of each example's positive.
        positive_vectors: [B, D] scored item vectors of the positives.
        items: the encoder of all other rows.
        scoring: how two vectors become a score.
        weights: [B] example weights.
        last_items: int64 [B], the newest item that each example has read; None where it isn't known.
        others: int64 [B, T], which other examples are positives of the same user vector; -1 for none. None
            where every user vector has one positive.
        negatives: int64 [B, K], candidates that came with the data, -1 for none; None where all are drawn.
        negative_weights: [B, K], the weights of pairs with `negatives`; None where these are candidates.
        groups: int64 [B], the user vector of each example; None where U = B and each has its own.
        seen: the items that each example's user has used; None unless the objective masks them.
        gathered: the examples of all processes, where there are several and the sampler draws from the batch.
        propensities: [B], as in `Draw`.
        lesson: the softmax of teachers for each user vector; None without teachers.
    """

    users: Tensor
    positives: Tensor
    positive_vectors: Tensor
    items: ItemEncoder
    scoring: ScoringConfig
    weights: Tensor
    last_items: Tensor | None
    others: Tensor | None = None
    negatives: Tensor | None = None
    negative_weights: Tensor | None = None
    groups: Tensor | None = None
    seen: SeenItems | None = None
    gathered: GatheredBatch | None = None
    propensities: Tensor | None = None
    lesson: "Lesson | None" = None

    @property
    def shares(self) -> Tensor:
        """The weights [B] over their sum; zeros where no example has a weight."""
        return self.weights / self.weights.sum().clamp(min=_LEAST_WEIGHT)


@dataclass(frozen=True)
class Lesson:
    """A softmax over the catalog that a step imitates: of the products of `users` [U, T] and `items` [N, T].

    `weight` is its share of the label; the positive has the rest.
    """

    users: Tensor
    items: Tensor
    weight: float


@dataclass(frozen=True)
class StepLoss:
    """The weighted mean `loss` of a step and the number of `masked` candidates, both scalars.

    `weight` is the scalar sum of the weights that the mean is over, by which the means of several processes
    are put together; None where the means can't be.
    """

    loss: Tensor
    masked: Tensor
    weight: Tensor | None = None


class Objective(nn.Module, ABC):
    """Computes a step's loss in a fixed order: score, temperature, log expected count, mask, loss, mean.

    The parameters of an objective, if it has any, are trained beside the towers and stored in the checkpoint.

    Attributes:
        sampler: draws the candidates; None where nothing is drawn.
        products: the type that blocked softmaxes compute scores in; None for the vectors' own.
        scores_catalog: whether each step scores all N items.
        shares_users: whether examples that share a user vector are computed faster as groups.
        mask_seen: whether the items that a user has used are masked, so that `Examples.seen` is needed.
        merges: whether the losses of parts of a batch, weighted, sum to that of the batch, as several
            processes need; its steps then have a `weight`.
    """

    sampler: Sampler | None = None
    products: torch.dtype | None = None
    scores_catalog: bool = False
    shares_users: bool = False
    mask_seen: bool = False
    merges: bool = False

    @abstractmethod
    def forward(self, examples: Examples, random: np.random.Generator) -> StepLoss:
        """The loss of a step; candidates are drawn with `random`."""

    def scores(self, users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
        """The scores [U, N] that rank items, from user vectors [U, D] and item vectors [N, D]."""
        return served_scores(users, items, scoring)


class LossSettings(Settings, ABC):
    """The registry entry of a loss: its settings, its needs, and how its objective is built.

    Subclasses add `kind`, a literal with that default.
    """

    kind: str

    draws: ClassVar[bool] = True
    """Whether the loss is over a draw; other losses score the whole catalog."""
    needs_probabilities: ClassVar[bool] = False
    """Whether the loss needs the expected count of the positive too."""
    needs_fixed_size: ClassVar[bool] = False
    """Whether all draws need the same number of candidates."""
    needs_cosine: ClassVar[bool] = False
    """Whether the loss has a margin that is a cosine, so that scores have to be cosines at temperature 1."""
    needs_absolute: ClassVar[bool] = False
    """Whether the loss ignores the sign of a score."""
    other_positives: ClassVar[Literal["kept", "corrected", "masked"]] = "masked"
    """With several positives of a user vector, how the loss of each has the others: as terms of the sum that
    are kept as they are, as terms that are corrected like the positive, or not at all."""
    needs_propensities: ClassVar[bool] = False
    """Whether the loss weighs examples by the propensities of logged answers."""
    servable: ClassVar[bool] = True
    """Whether the trained model ranks items by an inner product."""
    masks_seen: ClassVar[bool] = True
    """Whether single items can be left out of the loss."""
    blocked: ClassVar[bool] = False
    """Whether the terms of the loss form a softmax that a step can compute block by block, without all scores
    at once: log(exp p + sum_j exp(s_j - l_j)) - p, where p is the positive's score, less its own log count if
    the loss `needs_probabilities`. Such a step doesn't call the function; the contract of losses holds both
    equal."""

    def pair_loss(self) -> PairLoss | None:
        """The loss of a pair and its label; None for losses that compare candidates."""
        return None

    @property
    def keeps_hits(self) -> bool:
        """Whether a drawn positive counts like any other candidate instead of being masked."""
        return False

    @abstractmethod
    def objective(self, context: BuildContext, sampler: Sampler | None) -> Objective:
        """Build the objective, over the draws of `sampler` if it is a loss over a draw.

        Raises TrainingError where the settings don't fit the catalog.
        """


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """The mean of per-example losses [B] under example weights [B]; zero where no example has a weight."""
    return (losses * weights).sum() / weights.sum().clamp(min=_LEAST_WEIGHT)
