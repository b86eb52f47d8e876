"""How draws and kernels are computed for a range of queries, and which way a query's draws are made."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.samplers.coded_vectors import CodedVectors, exact_inner
from training.samplers.compiled import compiled
from training.samplers.counter_random import stream_of
from training.samplers.kernel_rejection import draw_by_rejection
from training.samplers.kernel_tree import Nodes
from training.samplers.kernel_walk import draw_by_walk
from training.samplers.symmetric_features import inner, write_query_features

# What a proposal that its norm rules out costs, in units of one whose vector is looked at.
PROPOSAL_WORK = 0.3
Queries = NDArray[np.float32]
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


class Task(NamedTuple):
    """What holds for all examples of a draw.

    `most_work` is what rejection may cost, `greatest` the greatest |w|, `squares` the sum of |w|^2.
    """

    alpha: float
    most_work: float
    greatest: float
    squares: float
    seed: np.uint64


@compiled
def square_of(query: NDArray[np.float32]) -> float:
    """|h|^2."""
    total = 0.0
    for i in range(len(query)):
        total += np.float64(query[i]) * np.float64(query[i])
    return total


@compiled
def kernel(alpha: float, coded: CodedVectors, row: int, query: NDArray[np.float32]) -> float:
    """K(h, w) = alpha <h, w>^2 + 1."""
    product = exact_inner(coded, row, query)
    return alpha * product * product + 1.0


@compiled
def write_masses(alpha: float, queries: Queries, nodes: Nodes, masses: Floats, start: int, stop: int) -> None:
    """Write Z of `queries[start:stop]`, by the root."""
    features = np.empty(nodes.sums.shape[1])
    for b in range(start, stop):
        write_query_features(queries[b], features)
        masses[b] = max(alpha * inner(features, nodes.sums[-1]), 0.0) + nodes.rows


@compiled
def write_kernels(
    alpha: float, queries: Queries, coded: CodedVectors, ids: Rows, kernels: Floats, start: int, stop: int
) -> None:
    """Write the kernels of `queries[start:stop]` and their `ids` [B, K]."""
    for b in range(start, stop):
        for k in range(ids.shape[1]):
            kernels[b, k] = kernel(alpha, coded, ids[b, k], queries[b])


@compiled
def draw_rows(
    task: Task,
    queries: Queries,
    masses: Floats,
    excluded: Rows,
    coded: CodedVectors,
    nodes: Nodes,
    ends: Rows,
    drawn: Rows,
    start: int,
    stop: int,
) -> None:
    """Fill `drawn[ends[b]:ends[b + 1]]` for each example b of `start` to `stop`."""
    alpha = task.alpha
    features = np.empty(nodes.sums.shape[1])
    for b in range(start, stop):
        query, here, counter = queries[b], drawn[ends[b] : ends[b + 1]], stream_of(task.seed, b)
        without = kernel(alpha, coded, excluded[b], query) if excluded[b] >= 0 else 0.0
        mass = max(masses[b] - without, np.float64(nodes.rows - (excluded[b] >= 0)))
        square = square_of(query)
        proposals = nodes.rows * (alpha * square * task.greatest * task.greatest + 1.0) / mass
        vectors = (alpha * square * task.squares + nodes.rows) / mass
        if PROPOSAL_WORK * proposals + vectors <= task.most_work:
            draw_by_rejection(alpha, query, square, task.greatest, coded, excluded[b], counter, here)
        else:
            write_query_features(query, features)
            draw_by_walk(alpha, query, features, mass, excluded[b], without, coded, nodes, counter, here)
