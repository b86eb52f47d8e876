"""The sums and the means of many windows of packed vectors."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx

from turret.tower.kernels.compiled import compiled, compiled_inline
from turret.tower.kernels.elementwise import gather_rows
from turret.tower.layers.packed import PackedHistories

Positions = NDArray[np.int64]
Vectors = NDArray[np.float32]
# Weights are not smaller than this, unless they are zero.
LEAST_WEIGHT = 1e-4


@compiled_inline
def add(row: NDArray[Any], to: NDArray[Any], sign: float) -> None:
    """Add `sign` times a row to another, of any precision."""
    for i in range(len(row)):
        to[i] += sign * row[i]


@compiled
def window_sums_forward(
    vectors: Vectors, starts: Positions, ends: Positions, left_out: Positions, scales: Vectors, sums: Vectors
) -> None:
    """Fill `sums` [B, D] with window sums times `scales` [B], each from the sum of the window before.

    Rows that leave are subtracted and rows that enter are added, in double precision; a window that shares
    too little with the one before starts from zero.
    """
    total = np.zeros(vectors.shape[1], np.float64)
    start, end = 0, 0
    for b in range(len(starts)):
        if abs(starts[b] - start) + abs(ends[b] - end) > ends[b] - starts[b]:
            total[:] = 0.0
            start = end = starts[b]
        for position in range(start, starts[b]):
            add(vectors[position], total, -1.0)
        for position in range(starts[b], start):
            add(vectors[position], total, 1.0)
        for position in range(end, ends[b]):
            add(vectors[position], total, 1.0)
        for position in range(ends[b], end):
            add(vectors[position], total, -1.0)
        start, end = starts[b], ends[b]
        output = sums[b]
        for i in range(len(total)):
            output[i] = total[i] * scales[b]
        if left_out[b] >= 0:
            add(vectors[left_out[b]], output, -scales[b])


@compiled
def window_sums_backward(
    slopes: Vectors,
    starts: Positions,
    ends: Positions,
    left_out: Positions,
    scales: Vectors,
    gradient: Vectors,
) -> None:
    """Fill `gradient` [P, D], initially zero: each position gets the slopes [B, D] of the windows over it,
    times `scales` [B].

    The differences between neighbouring positions come first, then their running sum, in double precision.
    """
    for b in range(len(starts)):
        add(slopes[b], gradient[starts[b]], scales[b])
        if ends[b] < len(gradient):
            add(slopes[b], gradient[ends[b]], -scales[b])
    total = np.zeros(gradient.shape[1], np.float64)
    for position in range(len(gradient)):
        # The row is a view, so that the compiler sees that places are not negative.
        row = gradient[position]
        for i in range(len(total)):
            total[i] += row[i]
            row[i] = total[i]
    for b in range(len(starts)):
        if left_out[b] >= 0:
            add(slopes[b], gradient[left_out[b]], -scales[b])


class _WindowSums(torch.autograd.Function):
    """`window_sums` of float32 vectors on the CPU, times `scales` [B].

    Forward and backward of 1,024 windows of up to 30 vectors, 64 wide, take 135 us of one thread where
    torch's running sums take 490, of a training step of 1.8 ms.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, vectors: Tensor, starts: Tensor, ends: Tensor, left_out: Tensor, scales: Tensor
    ) -> Tensor:
        """Sum the windows in one pass over the vectors."""
        ctx.save_for_backward(starts, ends, left_out, scales)
        ctx.count = len(vectors)  # type: ignore[attr-defined] # autograd's way to keep numbers
        sums = vectors.new_empty(len(starts), vectors.shape[1])
        tensors = (vectors.detach(), starts, ends, left_out, scales, sums)
        window_sums_forward(*(tensor.contiguous().numpy() for tensor in tensors))
        return sums

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None, None]:
        """The gradient of the vectors, by one pass over the slopes and one over the positions."""
        gradient = slopes[0].new_zeros(ctx.count, slopes[0].shape[1])
        tensors = (slopes[0], *ctx.saved_tensors, gradient)
        window_sums_backward(*(tensor.contiguous().numpy() for tensor in tensors))
        return gradient, None, None, None, None


def window_sums(vectors: Tensor, histories: PackedHistories, scales: Tensor | None = None) -> Tensor:
    """The sum of the vectors in each example's window.

    Differences of long running sums lose short windows in float32, so sums run in float64.

    Args:
        vectors: [P, D], one for each of `histories.rows`.
        histories: B windows.
        scales: [B], by which the sums are multiplied.

    Returns:
        [B, D], in the type of `vectors`.
    """
    starts, ends, left_out = histories.starts, histories.ends, histories.left_out
    if scales is None:
        scales = torch.ones(len(starts), device=vectors.device)
    if left_out is None:
        left_out = torch.full_like(starts, -1)
    if vectors.device.type == "cpu" and vectors.dtype == torch.float32:
        sums: Tensor = _WindowSums.apply(vectors, starts, ends, left_out, scales)  # type: ignore[no-untyped-call]
        return sums
    running = torch.nn.functional.pad(vectors.cumsum(dim=0, dtype=torch.float64), (0, 0, 1, 0))
    whole = gather_rows(running, ends) - gather_rows(running, starts)
    target = gather_rows(vectors, left_out.clamp(min=0)) * (left_out >= 0).unsqueeze(1)
    return ((whole - target) * scales.unsqueeze(1)).to(vectors.dtype)


def window_means(vectors: Tensor, histories: PackedHistories, power: float = 1.0) -> Tensor:
    """The sum of each window over its number of vectors to the power: means [B, D] for a power of 1."""
    counts = histories.ends - histories.starts
    if histories.left_out is not None:
        counts = counts - (histories.left_out >= 0).long()
    return window_sums(vectors, histories, 1.0 / counts**power)


def weighted_means(vectors: Tensor, weights: Tensor, histories: PackedHistories) -> Tensor:
    """The means [B, I, D] of the vectors [P, D] in each example's window, under I weights [P, I] each.

    Weights are zero or at least `LEAST_WEIGHT`; a window of zero weights has mean zero.
    """
    weighted = weights.unsqueeze(2) * vectors.unsqueeze(1)
    sums = window_sums(torch.cat([weighted.flatten(1), weights], dim=1), histories)
    count, width = weighted.shape[1:]
    parts, totals = torch.split(sums, [count * width, count], dim=1)
    # Differences of running sums are zero only up to rounding.
    means: Tensor = parts.view(-1, count, width) / totals.clamp(min=LEAST_WEIGHT).unsqueeze(2)
    return means
