"""Top-k columns of a score matrix with a defined order of ties."""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.tower.kernels.compiled import compiled, compiled_inline, in_parts

Scores = NDArray[np.float32]
Rows = NDArray[np.int64]

# So many columns are compared with the heap's minimum at once: most pieces have no larger score.
PIECE = 256


@compiled_inline
def sift_down(values: Scores, rows: Rows, size: int) -> None:
    """Sift down the root of a min-heap of `size`; of equal values the higher row is smaller."""
    node = 0
    while True:
        smallest = node
        for child in (2 * node + 1, 2 * node + 2):
            if child < size and (
                values[child] < values[smallest]
                or (values[child] == values[smallest] and rows[child] > rows[smallest])
            ):
                smallest = child
        if smallest == node:
            return
        values[node], values[smallest] = values[smallest], values[node]
        rows[node], rows[smallest] = rows[smallest], rows[node]
        node = smallest


@compiled
def select(scores: Scores, result: Rows, start: int, stop: int) -> None:
    """Fill `result[start:stop]` of [U, K] with columns by descending score, -1 for none."""
    k, columns = result.shape[1], scores.shape[1]
    values, rows = np.empty(k, np.float32), np.empty(k, np.int64)
    for line in range(start, stop):
        values[:], rows[:] = -np.inf, -1
        for first in range(0, columns, PIECE):
            piece = scores[line, first : first + PIECE]
            # A local variable stays in a register; the compiler can't rule out that values aliases scores.
            least, larger = values[0], 0
            for score in piece:
                larger += score > least
            if larger == 0:
                continue
            for i in range(len(piece)):
                # Columns ascend, so a column that ties with the minimum ranks after it.
                if piece[i] > values[0]:
                    values[0], rows[0] = piece[i], first + i
                    sift_down(values, rows, k)
        for size in range(k - 1, -1, -1):
            result[line, size] = rows[0]
            values[0], rows[0] = values[size], rows[size]
            sift_down(values, rows, size)


def top_rows(scores: Tensor, k: int) -> Tensor:
    """The top k columns of each row of float32 scores [U, N]: int64 [U, min(k, N)].

    Columns are by descending score, ties by ascending column, with -1 instead of scores of minus infinity.
    This is twice as fast as `torch.topk`, whose order of ties is undefined.
    """
    result = torch.empty(len(scores), min(k, scores.shape[1]), dtype=torch.int64)
    if result.numel():
        in_parts(len(scores), partial(select, scores.contiguous().numpy(), result.numpy()), least=4)
    return result
