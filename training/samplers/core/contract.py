"""The contract of a sampler, and draws: candidates, their log expected counts, and the mask of valid ones."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from turret.training.errors import TrainingError

State = dict[str, Tensor]
Encode = Callable[[Tensor], Tensor]
"""Encodes item rows [...] as their current scored vectors [..., D], without a gradient."""


@dataclass(frozen=True)
class Draw:
    """Candidates with their log expected counts.

    Attributes:
        ids: int64 [K], shared by the batch, or [B, K].
        log_count: float [K] or [B, K], the log of the *expected number of times* the candidate appears in
            the draw: log(K q) when drawn with replacement, the log of the inclusion probability when unique,
            the log of the added counts in a union of draws.
        positive_log_count: float [B], the same for each example's positive; minus infinity where the draw
            leaves it out.
        valid: bool [B, K], False where a candidate is masked: the example's own positive, and items that its
            user has used.
        stored: float [S, D], vectors of the last S shared candidates, which are scored without another pass
            through the item tower: vectors of an earlier step, which no gradient reaches, or vectors that
            other processes have computed in this step.
        held: int64 [M] each, example and column of the candidates that are in the draw because they are the
            example's positive, such as its own place in a batch; expected counts describe all others.
        shared: the number of leading columns of [B, K] `ids` that are the same for every example, which one
            product scores; [K] `ids` are all shared.
        propensities: float [B], the probability with which the logged answer showed each example's positive,
            NaN for an example that no answer led to; None where no example has one.
    """

    ids: Tensor
    log_count: Tensor
    positive_log_count: Tensor
    valid: Tensor
    stored: Tensor | None = None
    held: tuple[Tensor, Tensor] | None = None
    shared: int = 0
    propensities: Tensor | None = None

    @property
    def masked_count(self) -> Tensor:
        """How many candidates of the batch were masked, an int64 scalar."""
        return (~self.valid).sum()

    def keeping_hits(self, positives: Tensor) -> "Draw":
        """The same draw in which candidates that are their example's positive [B] are valid, unless held."""
        valid = self.valid | (self.ids == positives.unsqueeze(1))
        if self.held is not None:
            valid[self.held] = False
        return replace(self, valid=valid)


def drawn_with_replacement(ids: Tensor, log_q: Tensor, positives: Tensor) -> Draw:
    """The draw of K shared candidates `ids` from the proposal whose log probabilities are `log_q` [N]."""
    return drawn_from(ids, log_q[ids], log_q[positives], positives)


def drawn_from(ids: Tensor, log_q: Tensor, positive_log_q: Tensor, positives: Tensor) -> Draw:
    """The draw of K candidates with replacement, shared or from each example's own proposal.

    Args:
        ids: int64 [K] or [B, K].
        log_q: in the shape of `ids`, the log probability of each candidate under its example's proposal.
        positive_log_q: [B], the log probability of each positive; minus infinity where it is left out.
        positives: int64 [B].
    """
    log_size = math.log(ids.shape[-1])
    return Draw(
        ids=ids,
        log_count=log_q + log_size,
        positive_log_count=positive_log_q + log_size,
        valid=ids != positives.unsqueeze(1),
    )


def relative(log_weights: Tensor) -> Tensor:
    """Shift log weights [B, N] in place so that the greatest of each row is zero."""
    return log_weights.sub_(log_weights.amax(dim=1, keepdim=True))


def invert(ends: Tensor, uniform: Tensor) -> Tensor:
    """The columns int64 [B, K] at shares `uniform` [B, K], in [0, 1), of running sums `ends` float64 [B, N].

    A column of mass zero is never drawn.
    """
    totals = ends[:, -1:]
    # Rounding must not carry a position to the end, behind the last item that has a weight.
    positions = torch.minimum(uniform * totals, torch.nextafter(totals, torch.zeros_like(totals)))
    return torch.searchsorted(ends, positions, right=True).clamp(max=ends.shape[1] - 1)


def draw_by_inversion(log_weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The items at shares `uniform` [B, K], in [0, 1), of distributions by `relative` log weights [B, N].

    An item of weight zero is never drawn. Weights are added up in float64: in float32 the sum over a large
    catalog would swallow the items at its end.

    Returns:
        The items, int64 [B, K], and the log of each row's sum of weights, float32 [B, 1].
    """
    ends = log_weights.exp().cumsum(dim=1, dtype=torch.float64)
    return invert(ends, uniform), ends[:, -1:].log().float()


@dataclass(frozen=True)
class GatheredBatch:
    """The examples of one step on all processes of a training, in the order of their ranks.

    Attributes:
        positives: int64 [A], the positives.
        vectors: float [A, D], the item vectors of the positives, with a gradient to the process of each.
        first: the index of the first example of this process.
        own: the number of examples of this process; zero where its batch is padding.
    """

    positives: Tensor
    vectors: Tensor
    first: int
    own: int


@dataclass(frozen=True)
class DrawContext:
    """Input of a draw beside the queries and the positives.

    Attributes:
        random: the step's own random stream.
        last: int64 [B], the newest item that each example has read; None where the step has none.
        positive_vectors: float [B, D], the item vectors of the positives, without a gradient.
        encode: gives the current vectors of any other item rows.
        negatives: int64 [B, K], candidates that came with the data, -1 for none; None for data without any.
        gathered: the examples of all processes, for samplers that read the batch; None in a single process.
    """

    random: np.random.Generator
    last: Tensor | None
    positive_vectors: Tensor
    encode: Encode
    negatives: Tensor | None = None
    gathered: GatheredBatch | None = None

    @property
    def last_items(self) -> Tensor:
        """`last`. Raises TrainingError where the step has none."""
        if self.last is None:
            raise TrainingError(
                "objective.sampler draws by the newest item that each example has read, and this step has "
                "none; give it last_items, int64 [B], or use samplers.unigram."
            )
        return self.last


class Sampler(ABC):
    """Draws the candidates that a sampled loss scores.

    Args of the methods: `query` is the user vectors [B, D], `positives` the item rows [B] that came next,
    `item_vectors` [N, D]; all without a gradient.
    """

    observes_scores: bool = False
    """Whether `observe` is to be called, for which a step holds the scores of all its candidates at once."""
    draws_batch: bool = False
    """Whether candidates come from the examples of the batch; with several processes, of all batches."""

    @property
    def holds_vectors(self) -> bool:
        """Whether `refresh` does anything."""
        return type(self).refresh is not Sampler.refresh

    @property
    def merges(self) -> bool:
        """Whether several processes may draw for one training: each has the same memory, if any."""
        remembers_its_own = type(self).state is not Sampler.state and not self.draws_batch
        return not (self.observes_scores or remembers_its_own)

    @abstractmethod
    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw candidates for one step."""

    @abstractmethod
    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """The proposal q as a dense [B, N], rows summing to one: slow, for tests and reports.

        `context` is read by samplers whose proposal depends on more than the query.
        """

    def observe(self, draw: Draw, positive: Tensor, drawn: Tensor) -> None:  # noqa: B027 - most don't learn
        """Learn from the tempered scores of the last draw: `positive` [B] and `drawn` [B, K]."""

    def refresh(self, item_vectors: Tensor) -> None:  # noqa: B027 - most samplers hold no item vectors
        """Copy the item vectors of the whole catalog, for samplers whose proposal depends on them.

        The next draw and its counts follow the new vectors, in mid-epoch too.
        """

    def update(self, encode: Encode) -> None:  # noqa: B027 - most samplers hold no item vectors
        """Renew the copies of a part of the item vectors; called after each step."""

    def state(self) -> State:
        """The tensors for a checkpoint; empty for a sampler without memory."""
        return {}

    def restore(self, state: State) -> None:  # noqa: B027 - most samplers have no memory
        """Restore a `state`."""


def part_of(state: State, name: str) -> State:
    """The state of a part, whose tensors have the names `name`.NAME."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): kept for key, kept in state.items() if key.startswith(prefix)}


class CountingSampler(Sampler):
    """A sampler that can count any item, as a union of draws needs."""

    def counted(
        self,
        query: Tensor,
        positives: Tensor,
        ids: Tensor,
        held: tuple[Tensor, Tensor] | None = None,
        stored: Tensor | None = None,
    ) -> Draw:
        """The draw of `ids` [K], shared by the batch, with their `log_expected`."""
        return Draw(
            ids=ids,
            log_count=self.log_expected(query, positives, ids),
            positive_log_count=self.log_expected(query, positives, positives),
            valid=ids != positives.unsqueeze(1),
            held=held,
            stored=stored,
        )

    @abstractmethod
    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """The log expected counts of `ids` in this step's draw; called after `draw`.

        Args:
            query: [B, D] user vectors.
            positives: int64 [B].
            ids: int64 [K], shared by the batch, or [B, K].

        Returns:
            float, of the shape of `ids`, or [B, K] where it depends on the query; minus infinity for an item
            that can't be drawn.
        """
