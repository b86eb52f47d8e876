"""Draws by rejection for a few examples that look at the same proposals: memory is waited for once for all.

Each example accepts by numbers of its own, so that its draws are independent and of its own q, as with
proposals of its own. What is shared shows only between examples: of two with the same query, each draw of one
has the chance of the acceptance rate to be the other's too. So only as many share as leave that small.
"""

import numpy as np
from numpy.typing import NDArray

from training.samplers.coded_vectors import (
    CACHE_LINE,
    WIDER,
    CodedVectors,
    code_query,
)
from training.samplers.compiled import compiled, prefetch
from training.samplers.counter_random import STEP, stream_of, uniform
from training.samplers.kernel_rejection import BLOCK, accept, keep_by_high

# The most that the variance of the draws' counts may grow for examples that all have one query, and the most
# examples that share: beyond, hardly any memory is left to wait for.
MOST_IN_COMMON = 0.1
MOST_SHARING = 8


def sharing(acceptance: float) -> int:
    """How many examples may share proposals of which a share `acceptance` is accepted."""
    return int(min(MOST_SHARING, 1.0 + MOST_IN_COMMON / acceptance))


@compiled
def propose_rows(counter: np.uint64, coded: CodedVectors, rows: NDArray[np.int64]) -> None:
    """Write uniform rows, and ask for their norms and high bytes."""
    for n in range(len(rows)):
        rows[n] = np.int64(uniform(counter + np.uint64(n) * STEP) * len(coded.norms))
    for n in range(len(rows)):
        prefetch(coded.norms, rows[n], 0)
        for byte in range(0, coded.high.shape[1], CACHE_LINE):
            prefetch(coded.high, rows[n], byte)


@compiled
def draw_together(
    alpha: float,
    queries: NDArray[np.float32],
    squares: NDArray[np.float64],
    greatest: float,
    coded: CodedVectors,
    excluded: NDArray[np.int64],
    seed: np.uint64,
    first: int,
    counter: np.uint64,
    ends: NDArray[np.int64],
    drawn: NDArray[np.int64],
) -> None:
    """Fill `drawn[ends[g]:ends[g + 1]]` for each of the `queries` [G, D], of squared norms `squares` [G].

    Example g has the stream `first + g` of the seed, the proposals have `counter`. `greatest` is the greatest
    norm of a row; the row `excluded[g]` isn't drawn by query g (-1 for none).
    """
    coded_queries = [code_query(queries[g]) for g in range(len(queries))]
    counters = [stream_of(seed, first + g) for g in range(len(queries))]
    rows, cuts, products = np.empty((2, BLOCK), np.int64), np.empty(BLOCK), np.empty(BLOCK, np.int32)
    kept_rows, kept_cuts = np.empty(BLOCK, np.int64), np.empty(BLOCK)
    filled, missing, block = ends[:-1].copy(), ends[-1] - ends[0], 0
    propose_rows(counter, coded, rows[0])
    while missing > 0:
        here = rows[block % 2]
        block += 1
        counter += np.uint64(BLOCK) * STEP
        propose_rows(counter, coded, rows[block % 2])
        for g in range(len(queries)):
            if filled[g] == ends[g + 1]:
                continue
            highest = alpha * squares[g] * WIDER * greatest * greatest + 1.0
            for n in range(BLOCK):
                cuts[n] = highest * uniform(counters[g] + np.uint64(n) * STEP)
            counters[g] += np.uint64(BLOCK) * STEP
            kept = keep_by_high(alpha, coded_queries[g], coded, here, cuts, products, kept_rows, kept_cuts)
            accepted = accept(
                alpha,
                queries[g],
                coded,
                excluded[g],
                kept_rows[:kept],
                kept_cuts[:kept],
                drawn[filled[g] : ends[g + 1]],
            )
            filled[g] += accepted
            missing -= accepted
