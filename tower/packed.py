"""Histories laid end to end, and the examples that read windows of them."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PackedHistories:
    """Examples over histories that are packed without padding.

    Example b has read the items `rows[starts[b]:ends[b]]`, oldest first, and nothing else.

    Attributes:
        rows: int64 [P], item rows of all histories of the batch, end to end.
        starts: int64 [B], where each example's window begins in `rows`.
        ends: int64 [B], where it ends; larger than the start, as nobody is served without a history.
        users: int64 [B], the user row of each example.
        ages: float32 [B], how long before the end of training the example happened, as a share of the
            training period; zero when served.
    """

    rows: Tensor
    starts: Tensor
    ends: Tensor
    users: Tensor
    ages: Tensor
