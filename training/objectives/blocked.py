"""The softmax over shared candidates in blocks of examples, so that the matrix of all scores never exists."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx

from turret.tower.config import ScoringConfig
from turret.tower.kernels.compiled import compiled_sum, in_parts

Halves = NDArray[np.uint16]
Numbers = NDArray[np.float32]
# Fewer scores than this are computed on one thread.
LEAST = 2**17
LOG2_E = np.float32(math.log2(math.e))
# The series of 2^x with the coefficients ln(2)^n / n! is within 3e-6 of it for x in [-1/2, 1/2].
C1, C2, C3, C4, C5 = (np.float32(math.log(2.0) ** n / math.factorial(n)) for n in range(1, 6))
# Below 2^-127 float32 has no exponent left; smaller values become zero.
LOWEST = np.float32(-127.0)
SIGN, POSITIVE = np.int32(31), np.int32(0x7FFFFFFF)


def row_masses_(scores: Tensor, log_count: Tensor | None, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Replace each score s_ij by exp(s_ij - l_j - t_i), where t_i is the largest of s_ij - l_j and p_i.

    Args:
        scores: [R, K], changed.
        log_count: [K], the l_j; None for zeros.
        positive: [R], the p_i.

    Returns:
        t [R] and the sum of each row [R], in the type of `positive`.
    """
    if scores.device.type != "cpu" or (scores.dtype, positive.dtype) != (torch.bfloat16, torch.float32):
        return tensor_masses_(scores, log_count, positive)
    # One pass over bfloat16 scores, with float32 in between: torch takes five, and rounds in each.
    tops, sums = torch.empty_like(positive), torch.empty_like(positive)
    counts = positive.new_empty(0) if log_count is None else log_count.float()
    work = partial(
        fill_masses,
        scores.view(torch.uint16).numpy(),
        counts.numpy(),
        positive.contiguous().numpy(),
        tops.numpy(),
        sums.numpy(),
    )
    in_parts(len(scores), work, least=max(1, LEAST // scores.shape[1]))
    return tops, sums


def tensor_masses_(scores: Tensor, log_count: Tensor | None, positive: Tensor) -> tuple[Tensor, Tensor]:
    """`row_masses_` by torch alone, for any device and type.

    Scores of fewer bits than float32 are computed in float32: the eight bits of bfloat16 would round a log
    count of 10 by .03, and so log Z.
    """
    wide = torch.promote_types(torch.promote_types(scores.dtype, positive.dtype), torch.float32)
    values = scores.to(wide)
    if log_count is not None:
        values -= log_count
    tops = torch.maximum(values.amax(dim=1), positive)
    values.sub_(tops.unsqueeze(1)).exp_()
    if values is not scores:
        scores.copy_(values)
    return tops.to(positive.dtype), values.sum(dim=1).to(positive.dtype)


@compiled_sum
def fill_masses(
    scores: Halves, log_count: Numbers, positive: Numbers, tops: Numbers, sums: Numbers, start: int, stop: int
) -> None:
    """Rows `start` to `stop` of `row_masses_`; `log_count` is [K] or empty, `scores` the bits of bfloat16."""
    count = scores.shape[1]
    bits = np.empty(count, dtype=np.uint32)
    values, wholes = bits.view(np.float32), bits.view(np.int32)
    powers = np.empty(count, dtype=np.int32)
    positive_wholes, top_wholes = positive.view(np.int32), tops.view(np.int32)
    for row in range(start, stop):
        halves = scores[row]
        for j in range(count):
            bits[j] = np.uint32(halves[j]) << np.uint32(16)
        for j in range(len(log_count)):
            values[j] -= log_count[j]
        # Floats are ordered like their bits once those below zero are flipped, which vectorises.
        largest = positive_wholes[row] ^ ((positive_wholes[row] >> SIGN) & POSITIVE)
        for j in range(count):
            largest = max(largest, wholes[j] ^ ((wholes[j] >> SIGN) & POSITIVE))
        top_wholes[row] = largest ^ ((largest >> SIGN) & POSITIVE)
        highest, total = tops[row] * LOG2_E, np.float32(0.0)
        for j in range(count):
            exponent = values[j] * LOG2_E - highest
            exponent = LOWEST if exponent < LOWEST else exponent
            whole = np.rint(exponent)
            x = exponent - whole
            values[j] = ((((C5 * x + C4) * x + C3) * x + C2) * x + C1) * x + np.float32(1.0)
            powers[j] = np.int32(whole)
        for j in range(count):
            wholes[j] += powers[j] << np.int32(23)
        for j in range(count):
            total += values[j]
        for j in range(count):
            halves[j] = np.uint16((bits[j] + np.uint32(0x8000)) >> np.uint32(16))
        sums[row] = total


# These limit the scores in memory, the examples of a block (so that their scores stay in the cache), and the
# scores that fit into the cache without a limit of examples.
HELD, MOST_EXAMPLES, FEW = 2**24, 1024, 2**19


class _WeightedSum(torch.autograd.Function):
    """The sum of all weighted losses, with its gradient computed on the way.

    `inputs` are users [B', D], positive scores [B'], weights [B'] and candidates in the type of the products,
    without a gradient; examples beyond those of `users` and `positive` have weight zero.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        users: Tensor,
        vectors: Tensor,
        positive: Tensor,
        inputs: tuple[Tensor, ...],
        hits: tuple[Tensor, Tensor],
        log_count: Tensor | None,
        scoring: ScoringConfig,
        held: int,
    ) -> Tensor:
        """Compute losses and gradients from the same scores, a block of examples at a time."""
        among, count = inputs[3], len(inputs[0])
        to_users, to_items = users.new_empty(count, users.shape[1]), torch.zeros_like(vectors)
        to_positive, total = positive.new_empty(count), positive.new_zeros(())
        size = max(1, min(held // len(vectors), max(MOST_EXAMPLES, FEW // len(vectors))))
        bounds = torch.searchsorted(
            hits[0], torch.arange(0, count + size, size, device=users.device)
        ).tolist()
        for part, start in enumerate(range(0, count, size)):
            block, masked = slice(start, start + size), slice(bounds[part], bounds[part + 1])
            positive_scores, weights = inputs[1][block], inputs[2][block]
            within = (hits[0][masked] - start, hits[1][masked])
            losses, to_users[block], items, to_positive[block] = _gradients(
                inputs[0][block], positive_scores, weights, within, among, log_count, scoring
            )
            total += losses @ weights
            to_items += items
        ctx.save_for_backward(to_users[: len(users)], to_items, to_positive[: len(positive)])
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        """The stored gradients, times the slope of the sum."""
        return (*(gradient * slopes[0] for gradient in ctx.saved_tensors), *[None] * 5)


def _gradients(
    users: Tensor,
    positive: Tensor,
    weights: Tensor,
    hits: tuple[Tensor, Tensor],
    vectors: Tensor,
    log_count: Tensor | None,
    scoring: ScoringConfig,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Losses [R] of some examples; gradients of their weighted sum by users, candidates and positive scores.

    Users and candidates come in the type that products are computed in; `positive` are the positives' scores.
    """
    users = users / scoring.temperature
    scores = users @ vectors.T
    signs = scores.sign() if scoring.absolute else None
    if scoring.absolute:
        scores.abs_()
    scores[hits] = -torch.inf
    tops, sums = row_masses_(scores, log_count, positive)
    masses, kept = scores, (positive - tops).exp()
    total = sums + kept
    slope = weights / total
    if signs is not None:
        masses *= signs
    return (
        total.log() + tops - positive,
        (masses @ vectors) * (slope / scoring.temperature).unsqueeze(1),
        masses.T @ (users * slope.unsqueeze(1)).to(masses.dtype),
        weights * (kept / total - 1.0),
    )


def _padded(matrix: Tensor) -> Tensor:
    """`matrix` [R, ...] with zeros below it, up to the next of sixteen row counts in each octave.

    oneDNN compiles a bfloat16 kernel for each new size, which takes ten times as long as the product of a
    batch, and no two batches have equally many steps.
    """
    step = 1 << max(0, len(matrix).bit_length() - 5)
    filled = matrix.new_zeros(-(-len(matrix) // step) * step, *matrix.shape[1:])
    filled[: len(matrix)] = matrix
    return filled


def blocked_softmax(
    users: Tensor,
    positive: Tensor,
    weights: Tensor,
    hits: tuple[Tensor, Tensor],
    candidates: Tensor,
    log_count: Tensor | None,
    scoring: ScoringConfig,
    products: torch.dtype | None = None,
    held: int = HELD,
) -> Tensor:
    """sum_b w_b (log(exp p_b + sum_j exp(s_bj - l_j)) - p_b), a scalar: the sampled or the full softmax.

    Gradients are computed with the losses, from scores that are then freed: three products, as many as a
    softmax that stores all [B, K] scores, and memory for `held` of them.

    Args:
        users: [B, D] user vectors.
        positive: [B] tempered scores p of the positives, corrected if they are to be.
        weights: [B], without a gradient; divided by their sum they make a mean.
        hits: int64 [M] each, by rising example: example and column of all masked scores, such as those of
            the positives themselves.
        candidates: [K, D], their vectors.
        log_count: [K], the logs l of their expected counts; None where each is there once.
        scoring: how two vectors become a score.
        products: the type of scores and their gradients; None for that of the vectors. Sums over candidates,
            losses and returned gradients have the type of `positive`.
        held: the number of scores that may be held.
    """
    if not len(candidates):
        return (users.sum() + positive.sum()) * 0.0
    kind = products or users.dtype
    inputs = [users.detach().to(kind), positive.detach(), weights]
    if kind == torch.bfloat16 and users.device.type == "cpu":
        # Padded examples have weight zero.
        inputs = [_padded(part) for part in inputs]
    # The inputs already have the requested type.
    with torch.autocast(users.device.type, enabled=False):
        total: Tensor = _WeightedSum.apply(  # type: ignore[no-untyped-call]
            users,
            candidates,
            positive,
            (*inputs, candidates.detach().to(kind)),
            hits,
            log_count,
            scoring,
            held,
        )
    return total
