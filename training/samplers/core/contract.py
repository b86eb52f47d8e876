"""The contract of a sampler."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.draw import Draw, without_accidental_hits

State = dict[str, Tensor]
Encode = Callable[[Tensor], Tensor]
"""The scored vectors [..., D] that item rows [...] have now, without a gradient."""


@dataclass(frozen=True)
class GatheredBatch:
    """The examples of one step on all processes of a training, in the order of their ranks.

    Attributes:
        positives: int64 [A], the positives.
        vectors: float [A, D], their item vectors, with a gradient to the process that computed them.
        first: the index of the first example of this process.
        own: how many of them are this process's; zero where its batch is padding.
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
        encode: the current vectors of any other item rows.
        negatives: int64 [B, K], candidates that came with the data, -1 for none; None where there are none.
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
    """Whether `observe` is to be called, which costs a step all scores of its candidates at once."""
    draws_batch: bool = False
    """Whether candidates come from the examples of a batch: of all processes, where there are several."""

    @property
    def holds_vectors(self) -> bool:
        """Whether `refresh` does anything."""
        return type(self).refresh is not Sampler.refresh

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

        The next draw, and the counts that it reports, are those of these vectors; also in mid-epoch.
        """

    def update(self, encode: Encode) -> None:  # noqa: B027 - most samplers hold no item vectors
        """Renew the copies of a part of the item vectors; called after each step."""

    def state(self) -> State:
        """The tensors for a checkpoint; empty for a sampler without memory."""
        return {}

    def restore(self, state: State) -> None:  # noqa: B027 - most samplers have no memory
        """Restore a `state`."""


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
            valid=without_accidental_hits(ids, positives),
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
