"""The cross-entropy of a teacher's softmax over the catalog (Hinton et al. 2015), in blocks of examples."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from turret.training.objectives.blocked import HELD, row_masses_
from turret.training.objectives.contract import Lesson


class _ExpectedScores(torch.autograd.Function):
    """The weighted sum of the scores that teachers expect, with its gradient computed on the way."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        users: Tensor,
        vectors: Tensor,
        weights: Tensor,
        lesson: Lesson,
        products: torch.dtype,
    ) -> Tensor:
        """Compute each block's softmax of the teachers once, for the sum and both gradients."""
        taught, catalog = lesson.users.to(products), lesson.items.to(products)
        among = vectors.detach().to(products)
        means, to_items = torch.empty_like(users), torch.zeros_like(vectors)
        size = max(1, HELD // len(vectors))
        for start in range(0, len(users), size):
            block = slice(start, start + size)
            masses = taught[block] @ catalog.T
            lowest = weights.new_full((len(masses),), -torch.inf)
            _, sums = row_masses_(masses, None, lowest)
            means[block] = (masses @ among).to(users.dtype) / sums.unsqueeze(1)
            share = users[block].detach() * (weights[block] / sums).unsqueeze(1)
            to_items += (masses.T @ share.to(products)).to(vectors.dtype)
        ctx.save_for_backward(means * weights.unsqueeze(1), to_items)
        total: Tensor = weights @ (users * means).sum(dim=1)
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        """The stored gradients, times the slope of the sum."""
        return (*(gradient * slopes[0] for gradient in ctx.saved_tensors), *[None] * 3)


def expected_scores(
    users: Tensor,
    vectors: Tensor,
    weights: Tensor,
    lesson: Lesson,
    products: torch.dtype | None = None,
) -> Tensor:
    """sum_u w_u sum_i t_ui s_ui, a scalar, where t_u is the teachers' softmax over the catalog.

    The teachers' cross-entropy is the log of the student's normaliser, less this.

    Args:
        users: [U, D] tempered user vectors, whose products with `vectors` are the scores s.
        vectors: [N, D], those of all items.
        weights: [U], without a gradient.
        lesson: that of the teachers.
        products: the type of scores and their gradients; None for that of the vectors.
    """
    with torch.autocast(users.device.type, enabled=False):
        total: Tensor = _ExpectedScores.apply(  # type: ignore[no-untyped-call]
            users, vectors, weights, lesson, products or vectors.dtype
        )
    return total
