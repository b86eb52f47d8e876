"""The full softmax without a matrix of all scores: a block of items at a time, and again for the gradient."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from tower.config import ScoringConfig
from tower.gather import gather_rows
from tower.scoring import cross_scores, paired_scores

# How many scores are held at once.
HELD = 2**24


def _blocks(items: Tensor, block: int) -> Iterator[Tensor]:
    return (items[start : start + block] for start in range(0, len(items), block))


class _LogPartition(torch.autograd.Function):
    """log sum_i exp s_i of users [B, D] over items [N, D]: [B]."""

    @staticmethod
    def forward(ctx: FunctionCtx, users: Tensor, items: Tensor, scoring: ScoringConfig, block: int) -> Tensor:
        """The sums of all blocks, put together as logarithms."""
        parts = [cross_scores(users, some, scoring).logsumexp(dim=1) for some in _blocks(items, block)]
        partition = torch.stack(parts).logsumexp(dim=0)
        ctx.save_for_backward(users, items, partition)
        ctx.scoring, ctx.block = scoring, block  # type: ignore[attr-defined] # as autograd keeps what isn't a tensor
        return partition

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Each block's scores again, their shares times the slope, and the two products of the chain rule."""
        users, items, partition = ctx.saved_tensors
        to_users, to_items = torch.zeros_like(users), torch.empty_like(items)
        for some, filled in zip(_blocks(items, ctx.block), _blocks(to_items, ctx.block), strict=True):
            shares = (cross_scores(users, some, ctx.scoring) - partition.unsqueeze(1)).exp_()
            shares *= slopes[0].unsqueeze(1) / ctx.scoring.temperature
            if ctx.scoring.absolute:
                shares *= (users @ some.T).sign_()
            to_users += shares @ some
            torch.mm(shares.T, users, out=filled)
        return to_users, to_items, None, None


def blocked_softmax(
    users: Tensor, items: Tensor, positives: Tensor, scoring: ScoringConfig, held: int = HELD
) -> Tensor:
    """`full_softmax` of all scores, of which no more than about `held` exist at a time.

    Forward takes one matrix product, backward three instead of two. Memory beyond vectors and their
    gradients is that of `held` scores, twice.

    Args:
        users: [B, D] user vectors.
        items: [N, D] the catalogue's vectors.
        positives: int64 [B], the rows of the positives.
        scoring: from vectors to scores.
        held: how many scores may be held.

    Returns:
        [B], at least zero but for rounding.
    """
    block = max(1, held // len(users))
    partition: Tensor = _LogPartition.apply(users, items, scoring, block)  # type: ignore[no-untyped-call]
    return partition - paired_scores(users, gather_rows(items, positives), scoring)
