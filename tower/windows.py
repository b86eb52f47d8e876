"""The sums of many windows of packed vectors."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx

from tower.compiled import compiled
from tower.gather import gather_rows
from tower.packed import PackedHistories
from tower.threads import in_parts

Places = NDArray[np.int64]
Vectors = NDArray[np.float32]
# A thread takes a cache line of each row, or several.
LEAST_COLUMNS = 16


@compiled
def slide(
    vectors: Vectors, starts: Places, ends: Places, left_out: Places, sums: Vectors, low: int, high: int
) -> None:
    """Fill the columns from `low` to `high` of `sums` [B, D].

    A window is the one before it, less what it has left and with what it has entered; in double precision,
    and from nothing where it shares too little with the one before.
    """
    held = np.zeros(high - low, np.float64)
    start, end = 0, 0
    for b in range(len(starts)):
        if abs(starts[b] - start) + abs(ends[b] - end) > ends[b] - starts[b]:
            held[:] = 0.0
            start = end = starts[b]
        for place in range(start, starts[b]):
            for i in range(high - low):
                held[i] -= vectors[place, low + i]
        for place in range(starts[b], start):
            for i in range(high - low):
                held[i] += vectors[place, low + i]
        for place in range(end, ends[b]):
            for i in range(high - low):
                held[i] += vectors[place, low + i]
        for place in range(ends[b], end):
            for i in range(high - low):
                held[i] -= vectors[place, low + i]
        start, end = starts[b], ends[b]
        if left_out[b] < 0:
            for i in range(high - low):
                sums[b, low + i] = held[i]
        else:
            for i in range(high - low):
                sums[b, low + i] = held[i] - vectors[left_out[b], low + i]


@compiled
def spread(
    slopes: Vectors, starts: Places, ends: Places, left_out: Places, gradient: Vectors, low: int, high: int
) -> None:
    """Fill the columns from `low` to `high` of `gradient` [P, D], which are zero.

    Each place has the slopes [B, D] of all windows that hold it: first what changes there, then the running
    sum of changes, in double precision.
    """
    for b in range(len(starts)):
        for i in range(low, high):
            gradient[starts[b], i] += slopes[b, i]
        if ends[b] < len(gradient):
            for i in range(low, high):
                gradient[ends[b], i] -= slopes[b, i]
    held = np.zeros(high - low, np.float64)
    for place in range(len(gradient)):
        for i in range(high - low):
            held[i] += gradient[place, low + i]
            gradient[place, low + i] = held[i]
    for b in range(len(starts)):
        if left_out[b] >= 0:
            for i in range(low, high):
                gradient[left_out[b], i] -= slopes[b, i]


class _WindowSums(torch.autograd.Function):
    """`window_sums` of float32 vectors on the CPU."""

    @staticmethod
    def forward(ctx: FunctionCtx, vectors: Tensor, starts: Tensor, ends: Tensor, left_out: Tensor) -> Tensor:
        """One pass over the vectors."""
        ctx.save_for_backward(starts, ends, left_out)
        ctx.places = len(vectors)  # type: ignore[attr-defined] # as autograd keeps what isn't a tensor
        sums = vectors.new_empty(len(starts), vectors.shape[1])
        _by_columns(slide, vectors, starts, ends, left_out, sums)
        return sums

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:
        """One pass over the slopes, and one over the places."""
        gradient = slopes[0].new_zeros(ctx.places, slopes[0].shape[1])
        _by_columns(spread, slopes[0], *ctx.saved_tensors, gradient)
        return gradient, None, None, None


def _by_columns(fill: Callable[..., None], *tensors: Tensor) -> None:
    """Let threads share the columns of the last of `tensors`, as windows follow from one another."""
    arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
    in_parts(arrays[-1].shape[1], partial(fill, *arrays), least=LEAST_COLUMNS)


def window_sums(vectors: Tensor, histories: PackedHistories) -> Tensor:
    """The sum of the vectors that each example has read.

    A difference of two long running sums would lose the short windows in float32, so sums run in float64.

    Args:
        vectors: [P, D], those of `histories.rows` or whatever else stands at their places.
        histories: B windows.

    Returns:
        [B, D], in the type of `vectors`.
    """
    starts, ends, left_out = histories.starts, histories.ends, histories.left_out
    if left_out is None:
        left_out = torch.full_like(starts, -1)
    if vectors.device.type == "cpu" and vectors.dtype == torch.float32:
        sums: Tensor = _WindowSums.apply(vectors, starts, ends, left_out)  # type: ignore[no-untyped-call]
        return sums
    running = torch.nn.functional.pad(vectors.cumsum(dim=0, dtype=torch.float64), (0, 0, 1, 0))
    found = gather_rows(running, ends) - gather_rows(running, starts)
    own = gather_rows(vectors, left_out.clamp(min=0)) * (left_out >= 0).unsqueeze(1)
    return (found - own).to(vectors.dtype)


def window_means(vectors: Tensor, histories: PackedHistories) -> Tensor:
    """The mean of the vectors that each example has read: [B, D]."""
    return window_sums(vectors, histories) / histories.sizes().unsqueeze(1)
