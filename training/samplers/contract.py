"""What every sampler promises."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from training.samplers.draw import Draw

State = dict[str, Tensor]


@dataclass(frozen=True)
class DrawContext:
    """What a sampler may know of the step besides the queries and positives: its random stream."""

    random: np.random.Generator


class Sampler(Protocol):
    """Draws the candidates that a sampled loss scores.

    Args of the methods: `query` is the user vectors [B, D], `positives` the item rows [B] that came next,
    `item_vectors` [N, D].
    """

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw candidates for one step."""
        ...

    def refresh(self, item_vectors: Tensor) -> None:
        """Follow the item vectors, for samplers whose proposal depends on them."""
        ...

    def probability(self, query: Tensor) -> Tensor:
        """The proposal q as a dense [B, N], rows summing to one: slow, for tests and reports."""
        ...

    def state(self) -> State:
        """What a checkpoint must keep; empty for a sampler without memory."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `state` gave."""
        ...
