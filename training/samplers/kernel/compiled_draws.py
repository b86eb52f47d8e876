"""Compiled draws from the kernel K(h, w) = alpha <h, w>^2 + 1 of float32 vectors [N, D], on the CPU.

**By rejection**, at a cost that doesn't depend on N: a row is proposed uniformly and accepted with the chance
K(h, w) / (alpha |h|^2 m^2 + 1), where m is the greatest norm: accepted rows follow q exactly (von Neumann
1951). Nearly all proposals end at a test in float32, with a bound on its error; the others are decided in
float64. This goes beyond Blanc & Rendle 2018.

A few examples share proposals, so that memory latency is paid once.
Each example accepts by its own random numbers, so that its draws are independent and follow its own q, as if
proposals were its own. Sharing correlates examples only: of two examples with the same query, a draw of item
i by one is the other's too with the chance a_i that i is accepted. So the count of i over G such examples has
about 1 + (G - 1) a_i times the variance of independent draws: over all items, 1 + (G - 1) sum a^2 / sum a
times.

**By blocks**, where few proposals are accepted: a block is drawn by the blocks' sums, and then a row of it.
"""

import numpy as np
from numpy.typing import NDArray

from turret.tower.kernels.compiled import compiled, compiled_sum, prefetch
from turret.tower.kernels.elementwise import STEP, mixed, stream_of, uniform

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]

# By sharing, the variance of the count of an item of mean acceptance may grow by this share for examples that
# all have one query (that of likelier items grows more). At most MOST_SHARING share: beyond, latency hardly
# matters.
MOST_IN_COMMON = 0.1
MOST_SHARING = 8
# So many proposals are tested together, while the memory of the next ones is prefetched.
PROPOSALS = 64
# A number of 64 random bits decides four proposals in its first look, by 16 bits each.
COARSE = 65536.0
HASHES = PROPOSALS // 4
CACHE_LINE = 64
# Bounds are widened by more than float32 can round off.
WIDER = 1.00001
# Smaller norms are taken for this one, so that their inverse is a float32.
LEAST_NORM = 1e-30
# After so many rejections in a block it is cheaper to compute all of its kernels.
MOST_REFUSED = 16


def sharing(acceptance: float) -> int:
    """How many examples may share proposals of which a share `acceptance` is accepted."""
    return int(min(MOST_SHARING, 1.0 + MOST_IN_COMMON / acceptance))


@compiled_sum
def inner(vector: Vectors, query: Vectors) -> float:
    """<h, w> of two [D], in float64.

    In float32 a query at right angles to long vectors would have a kernel far from one.
    """
    total = 0.0
    for i in range(len(query)):
        total += np.float64(vector[i]) * np.float64(query[i])
    return total


@compiled
def write_kernels(
    alpha: float, queries: Vectors, vectors: Vectors, ids: Rows, kernels: Floats, start: int, stop: int
) -> None:
    """Write K(h, w) of `queries[start:stop]` and their `ids` [B, K]."""
    for b in range(start, stop):
        for k in range(ids.shape[1]):
            product = inner(vectors[ids[b, k]], queries[b])
            kernels[b, k] = alpha * product * product + 1.0


@compiled
def propose(counter: np.uint64, vectors: Vectors, rows: Rows) -> None:
    """Write uniform rows, and prefetch their vectors."""
    for n in range(len(rows)):
        rows[n] = np.int64(uniform(counter + np.uint64(n) * STEP) * len(vectors))
    for n in range(len(rows)):
        for byte in range(0, 4 * vectors.shape[1], CACHE_LINE):
            prefetch(vectors, rows[n], byte)


@compiled
def scale_of(alpha: float, query: Vectors, greatest: float, unit: Vectors, scale: Vectors) -> float:
    """Return alpha |h|^2 m^2 + 1 or hardly more, with m = `greatest`, and fill `unit` [D] and `scale` [3].

    `unit` is the query over its norm. With p its product with a vector, which may be computed in float32,
    (|p| scale[0] + scale[1])^2 + scale[2] is at least the vector's kernel over the returned value.
    """
    length, greatest = np.sqrt(inner(query, query)), max(greatest, LEAST_NORM)
    for i in range(len(query)):
        unit[i] = np.float32(np.float64(query[i]) / length if length > 0.0 else 0.0)
    highest = alpha * length * length * WIDER * greatest * greatest + 1.0
    factor = WIDER * length * np.sqrt(alpha / highest)
    # The rounded query and the sum of D products are each off by less than 2^-24 of the norms a term.
    scale[0], scale[1] = factor, factor * greatest * (len(query) + 8.0) * 2.0**-23
    scale[2] = WIDER / highest
    return float(highest)


@compiled_sum
def bounds(vectors: Vectors, rows: Rows, unit: Vectors, scale: Vectors, most: Vectors) -> None:
    """Write the bounds of `scale_of` for the vectors of `rows` [P] to `most` [P]."""
    for n in range(len(rows)):
        vector, total = vectors[rows[n]], np.float32(0.0)
        for i in range(len(unit)):
            total += vector[i] * unit[i]
        near = abs(total) * scale[0] + scale[1]
        most[n] = near * near + scale[2]


@compiled
def draw_groups(
    alpha: float,
    queries: Vectors,
    greatest: float,
    size: int,
    vectors: Vectors,
    excluded: Rows,
    seed: np.uint64,
    counts: Rows,
    ends: Rows,
    drawn: Rows,
    start: int,
    stop: int,
) -> None:
    """Fill `drawn[ends[b] - counts[b]:ends[b]]` for each query b of the groups from `start` to `stop`.

    A group is `size` queries of [B, D] in a row, which share proposals. Query b has the stream b of the seed,
    the proposals of group g the stream B + g. `greatest` is the greatest norm of a vector; the row
    `excluded[b]` isn't drawn by query b (-1 for none).
    """
    rows, bits = np.empty((2, PROPOSALS), np.int64), np.empty(HASHES, np.uint64)
    most, coarse = np.empty(PROPOSALS, np.float32), bits.view(np.uint16)
    units, scales = np.empty((size, queries.shape[1]), np.float32), np.empty((size, 3), np.float32)
    highest, counters = np.empty(size), np.empty(size, np.uint64)
    for group in range(start, stop):
        first = group * size
        missing = counts[first : first + size].copy()
        for g in range(len(missing)):
            highest[g] = scale_of(alpha, queries[first + g], greatest, units[g], scales[g])
            counters[g] = stream_of(seed, first + g)
        counter, turn = stream_of(seed, len(queries) + group), 0
        propose(counter, vectors, rows[turn])
        while missing.any():
            counter += np.uint64(PROPOSALS) * STEP
            propose(counter, vectors, rows[1 - turn])
            for g in range(len(missing)):
                if missing[g] == 0:
                    continue
                b = first + g
                for n in range(HASHES):
                    bits[n] = mixed(counters[g] + np.uint64(n) * STEP)
                bounds(vectors, rows[turn], units[g], scales[g], most)
                for n in range(PROPOSALS):
                    row = rows[turn, n]
                    is_near = np.float32(coarse[n]) * np.float32(1.0 / COARSE) < most[n]
                    if is_near and row != excluded[b] and missing[g]:
                        share = np.float64(coarse[n]) + uniform(counters[g] + np.uint64(HASHES + n) * STEP)
                        product = inner(vectors[row], queries[b])
                        if highest[g] * (share / COARSE) < alpha * product * product + 1.0:
                            drawn[ends[b] - missing[g]] = row
                            missing[g] -= 1
                counters[g] += np.uint64(HASHES + PROPOSALS) * STEP
            turn = 1 - turn


@compiled
def position_of(share: float, sums: Floats) -> int:
    """The first position whose running sum exceeds the `share` in [0, 1) of the last; it has mass."""
    target = share * sums[-1]
    low, high = 0, len(sums) - 1
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > target:
            high = middle
        else:
            low = middle + 1
    # The product may round up to the last sum, and then a position without mass may lie before it.
    while low > 0 and sums[low] == sums[low - 1]:
        low -= 1
    return low


@compiled
def draw_in_blocks(
    alpha: float,
    size: int,
    queries: Vectors,
    greatest: float,
    vectors: Vectors,
    excluded: Rows,
    seed: np.uint64,
    blocks: Rows,
    owners: Rows,
    order: Rows,
    groups: Rows,
    drawn: Rows,
    start: int,
    stop: int,
) -> None:
    """Write to `drawn` [M] a row of each draw's block of `size` rows, by the kernel of its owner's query.

    `order` sorts the draws by block and owner; draws of one block and one owner are a group, which begins at
    `groups[g]` of the order. The groups from `start` to `stop` are written, so that a block stays in the
    cache.

    A row is drawn by its bound and accepted with the chance of its kernel over the bound, which is nearly
    one. Where rejections are frequent, as for a query at right angles to long vectors, kernels replace their
    bounds.
    """
    unit, scale = np.empty(queries.shape[1], np.float32), np.empty(3, np.float32)
    room, sums_room = np.empty(size, np.float32), np.empty(size)
    for group in range(start, stop):
        draws = order[groups[group] : groups[group + 1]]
        first, query = blocks[draws[0]] * size, queries[owners[draws[0]]]
        members, left_out = vectors[first : first + size], excluded[owners[draws[0]]] - first
        highest, counter = scale_of(alpha, query, greatest, unit, scale), stream_of(seed, group)
        most, sums = room[: len(members)], sums_room[: len(members)]
        bounds(members, np.arange(len(members)), unit, scale, most)
        total = 0.0
        for n in range(len(members)):
            total += highest * np.float64(most[n]) if n != left_out else 0.0
            sums[n] = total
        filled, refused = 0, 0
        while filled < len(draws):
            position = position_of(uniform(counter), sums)
            bound = sums[position] - (sums[position - 1] if position else 0.0)
            product = inner(members[position], query)
            if uniform(counter + STEP) * bound < alpha * product * product + 1.0:
                drawn[draws[filled]] = first + position
                filled += 1
            else:
                refused += 1
                if refused == MOST_REFUSED:
                    total = 0.0
                    for n in range(len(members)):
                        product = inner(members[n], query)
                        total += alpha * product * product + 1.0 if n != left_out else 0.0
                        sums[n] = total
            counter += STEP + STEP
