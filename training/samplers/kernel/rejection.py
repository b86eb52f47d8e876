"""Draws from the quadratic kernel by rejection, at a cost that doesn't depend on the catalog's size.

A row is proposed uniformly and accepted with K(h, w) / (alpha |h|^2 m^2 + 1), m the greatest norm: accepted
rows follow q exactly (von Neumann 1951). One uniform number decides, in two tests: by the high bytes of the
row's vector, with a bound on the rest, and by all of it. Nearly all proposals end at the first. This goes
beyond Blanc & Rendle 2018.

A few examples share proposals, so that memory latency is paid once.
Each example accepts by numbers of its own, so that its draws are independent and of its own q, as with
proposals of its own. Sharing correlates examples only: of two with the same query, a draw of item i by one is
the other's too with the chance a_i that i is accepted. So the count of i over G such examples has about
1 + (G - 1) a_i times the variance of independent ones: over all items, 1 + (G - 1) sum a^2 / sum a times.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.tower.kernels.compiled import compiled, compiled_inline, prefetch
from turret.tower.kernels.elementwise import STEP, mixed, stream_of, uniform
from turret.training.samplers.kernel.coded_vectors import (
    CACHE_LINE,
    WIDER,
    CodedVectors,
    code_query,
    inner_with,
    write_high_inner,
)

# By how much the variance of the count of an item of mean acceptance may grow for examples that all have one
# query (that of likelier items grows more), and the most examples that share: beyond, latency hardly matters.
MOST_IN_COMMON = 0.1
MOST_SHARING = 8
# Proposals tested together: the memory of the next ones is prefetched while these are worked on.
PROPOSALS = 64
# A number of 64 random bits decides four proposals in its first look, by 16 bits each.
COARSE = 65536.0
HASHES = PROPOSALS // 4


def sharing(acceptance: float) -> int:
    """How many examples may share proposals of which a share `acceptance` is accepted."""
    return int(min(MOST_SHARING, 1.0 + MOST_IN_COMMON / acceptance))


class Bounds(NamedTuple):
    """Bounds of the kernels of G queries and a proposal, relative to the largest possible kernel.

    With the product p of its high bytes and `whole[g]`, and its norm over the greatest r, all in float32 and
    rounded up, it is at most ((|p step[g] + middle[g]| + slack[g]) r)^2 + least[g] times `highest[g]`.
    """

    whole: NDArray[np.int16]
    highest: NDArray[np.float64]
    step: NDArray[np.float32]
    middle: NDArray[np.float32]
    slack: NDArray[np.float32]
    least: NDArray[np.float32]


@compiled
def bounds_of(
    alpha: float, queries: NDArray[np.float32], squares: NDArray[np.float64], greatest: float
) -> Bounds:
    """The bounds for queries [G, D] of squared norms `squares` [G] when no row's norm is above `greatest`."""
    size, highest = len(queries), np.empty(len(queries))
    whole, numbers = np.empty(queries.shape, np.int16), np.empty((4, size), np.float32)
    for g in range(size):
        highest[g] = alpha * squares[g] * WIDER * greatest * greatest + 1.0
        coded = code_query(queries[g])
        scale = WIDER * greatest * np.sqrt(alpha / highest[g]) / 128.0
        whole[g] = coded.whole
        numbers[0, g], numbers[1, g] = scale * coded.step, scale * coded.middle
        # |p step| and |middle| are at most 273 times the slack, so this is more than float32 can round off.
        numbers[2, g] = 1.0001 * scale * coded.slack
        numbers[3, g] = WIDER / highest[g]
    return Bounds(whole, highest, numbers[0], numbers[1], numbers[2], numbers[3])


class Proposals(NamedTuple):
    """Proposals that are tested together, with their state for each of G examples.

    Attributes:
        rows: int64 [2, PROPOSALS], the current ones and the next in turn.
        lengths: float32 [PROPOSALS], the norms of the current ones over the greatest.
        products: int32 [G, PROPOSALS], the products of high bytes.
        bits: uint64 [G, HASHES], the first bits of the deciding numbers.
        could: [G, PROPOSALS], whether a row may yet be accepted.
        kept: int64 [G, PROPOSALS], those rows, `sizes` [G] of them.
        cuts: [G, PROPOSALS], the bounds that their kernels must exceed.
    """

    rows: NDArray[np.int64]
    lengths: NDArray[np.float32]
    products: NDArray[np.int32]
    bits: NDArray[np.uint64]
    could: NDArray[np.bool_]
    kept: NDArray[np.int64]
    sizes: NDArray[np.int64]
    cuts: NDArray[np.float64]


@compiled
def empty_proposals(size: int) -> Proposals:
    """Allocate for `size` examples."""
    return Proposals(
        np.empty((2, PROPOSALS), np.int64),
        np.empty(PROPOSALS, np.float32),
        np.empty((size, PROPOSALS), np.int32),
        np.empty((size, HASHES), np.uint64),
        np.empty((size, PROPOSALS), np.bool_),
        np.empty((size, PROPOSALS), np.int64),
        np.zeros(size, np.int64),
        np.empty((size, PROPOSALS)),
    )


@compiled_inline
def propose_rows(counter: np.uint64, coded: CodedVectors, turn: int, proposed: Proposals) -> None:
    """Write uniform rows, and prefetch their norms and high bytes."""
    for n in range(PROPOSALS):
        proposed.rows[turn, n] = np.int64(uniform(counter + np.uint64(n) * STEP) * len(coded.norms))
    for n in range(PROPOSALS):
        prefetch(coded.norms, proposed.rows[turn, n], 0)
        for byte in range(0, coded.high.shape[1], CACHE_LINE):
            prefetch(coded.high, proposed.rows[turn, n], byte)


@compiled_inline
def look(
    counters: NDArray[np.uint64],
    missing: NDArray[np.int64],
    bounds: Bounds,
    share: float,
    coded: CodedVectors,
    turn: int,
    proposed: Proposals,
) -> None:
    """Test the proposals by high bytes and the first bits of their deciding numbers.

    For those examples that miss draws; `share` is one over the greatest norm.
    """
    for n in range(PROPOSALS):
        proposed.lengths[n] = np.float32(np.float64(coded.norms[proposed.rows[turn, n]]) * share)
    coarse = proposed.bits.view(np.uint16)
    for g in range(len(missing)):
        if missing[g] == 0:
            continue
        write_high_inner(coded, proposed.rows[turn], bounds.whole, g, proposed.products)
        for n in range(HASHES):
            proposed.bits[g, n] = mixed(counters[g] + np.uint64(n) * STEP)
        step, middle, slack, least = bounds.step[g], bounds.middle[g], bounds.slack[g], bounds.least[g]
        for n in range(PROPOSALS):
            near = abs(np.float32(proposed.products[g, n]) * step + middle) + slack
            most = near * proposed.lengths[n]
            proposed.could[g, n] = np.float32(coarse[g, n]) * np.float32(1.0 / COARSE) < most * most + least


@compiled_inline
def keep(
    counters: NDArray[np.uint64],
    missing: NDArray[np.int64],
    bounds: Bounds,
    coded: CodedVectors,
    turn: int,
    proposed: Proposals,
) -> None:
    """Keep the rows that could be accepted, with their cuts by all bits, and prefetch their low bytes."""
    coarse = proposed.bits.view(np.uint16)
    for g in range(len(missing)):
        if missing[g] == 0:
            continue
        size = 0
        for n in range(PROPOSALS):
            # Without a branch, which would be taken against the processor's guess.
            proposed.kept[g, size] = n
            size += proposed.could[g, n]
        proposed.sizes[g] = size
        for k in range(size):
            position = proposed.kept[g, k]
            rest = uniform(counters[g] + np.uint64(HASHES + position) * STEP)
            proposed.cuts[g, k] = bounds.highest[g] * ((np.float64(coarse[g, position]) + rest) / COARSE)
            proposed.kept[g, k] = proposed.rows[turn, position]
            for byte in range(0, 2 * coded.low.shape[1], CACHE_LINE):
                prefetch(coded.low, proposed.kept[g, k], byte)
        counters[g] += np.uint64(HASHES + PROPOSALS) * STEP


@compiled_inline
def accept(
    alpha: float,
    query: NDArray[np.float32],
    coded: CodedVectors,
    excluded: int,
    rows: NDArray[np.int64],
    cuts: NDArray[np.float64],
    drawn: NDArray[np.int64],
) -> int:
    """Write the rows whose kernel exceeds its cut, as far as there is room; return how many."""
    filled = 0
    for n in range(len(rows)):
        product = inner_with(coded, rows[n], query)
        if cuts[n] < alpha * product * product + 1.0 and rows[n] != excluded and filled < len(drawn):
            drawn[filled] = rows[n]
            filled += 1
    return filled


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
    counts: NDArray[np.int64],
    ends: NDArray[np.int64],
    drawn: NDArray[np.int64],
) -> None:
    """Fill `drawn[ends[g] - counts[g]:ends[g]]` for each of `queries` [G, D], of squared norms `squares` [G].

    Example g has the stream `first + g` of the seed, the proposals have `counter`. `greatest` is the greatest
    norm of a row; the row `excluded[g]` isn't drawn by query g (-1 for none).
    """
    size = len(queries)
    bounds, proposed = bounds_of(alpha, queries, squares, greatest), empty_proposals(size)
    counters = np.array([stream_of(seed, first + g) for g in range(size)])
    share = 1.0 / greatest if greatest > 0.0 else 0.0
    missing, turn = counts.copy(), 0
    propose_rows(counter, coded, turn, proposed)
    while missing.any():
        counter += np.uint64(PROPOSALS) * STEP
        propose_rows(counter, coded, 1 - turn, proposed)
        # The rows kept of the last proposals, whose memory has been prefetched by now.
        for g in range(size):
            if missing[g]:
                kept, cuts = proposed.kept[g, : proposed.sizes[g]], proposed.cuts[g]
                free = drawn[ends[g] - missing[g] : ends[g]]
                missing[g] -= accept(alpha, queries[g], coded, excluded[g], kept, cuts, free)
        look(counters, missing, bounds, share, coded, turn, proposed)
        keep(counters, missing, bounds, coded, turn, proposed)
        turn = 1 - turn


@compiled
def draw_groups(
    alpha: float,
    queries: NDArray[np.float32],
    squares: NDArray[np.float64],
    greatest: float,
    size: int,
    coded: CodedVectors,
    excluded: NDArray[np.int64],
    seed: np.uint64,
    counts: NDArray[np.int64],
    ends: NDArray[np.int64],
    drawn: NDArray[np.int64],
    start: int,
    stop: int,
) -> None:
    """Draw as `draw_together` for the groups from `start` to `stop`, each `size` examples in a row."""
    for group in range(start, stop):
        first, last = group * size, min((group + 1) * size, len(queries))
        draw_together(
            alpha,
            queries[first:last],
            squares[first:last],
            greatest,
            coded,
            excluded[first:last],
            seed,
            first,
            stream_of(seed, len(queries) + group),
            counts[first:last],
            ends[first:last],
            drawn,
        )
