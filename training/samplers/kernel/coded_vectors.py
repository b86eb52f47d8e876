"""Item vectors in 24 bits a number, and draws from blocks of them, on the CPU."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.tower.kernels.compiled import PIECE, compiled, compiled_inline, compiled_sum, piece_product
from turret.tower.kernels.elementwise import STEP, stream_of, uniform

CACHE_LINE = 64
WHOLE = 2.0**23
# Bounds are widened by more than float32 sums can be off.
WIDER = 1.00001


class CodedVectors(NamedTuple):
    """`norms` float32 [N], `high` int8 [N, D] and `low` uint16 [N, D]."""

    norms: NDArray[np.float32]
    high: NDArray[np.int8]
    low: NDArray[np.uint16]


def empty_coded(rows: int, width: int) -> CodedVectors:
    """Allocate [rows, width] vectors."""
    high, low = _aligned(rows, width), _aligned(rows, 2 * width).view(np.uint16)
    return CodedVectors(np.zeros(rows, np.float32), high, low)


def _aligned(rows: int, width: int) -> NDArray[np.int8]:
    # A row of 64 bytes that lies across two cache lines is read at half the speed.
    room = np.zeros(rows * width + CACHE_LINE, np.int8)
    start = -room.ctypes.data % CACHE_LINE
    return room[start : start + rows * width].reshape(rows, width)


@compiled
def encode(vectors: NDArray[np.float32], rows: NDArray[np.int64], coded: CodedVectors) -> None:
    """Write finite `vectors` [n, D] to `rows` [n]."""
    width = vectors.shape[1]
    for n in range(len(rows)):
        square = 0.0
        for i in range(width):
            square += np.float64(vectors[n, i]) * np.float64(vectors[n, i])
        norm = np.float32(np.sqrt(square))
        row = rows[n]
        coded.norms[row] = norm
        scale = WHOLE / np.float64(norm) if norm > 0.0 else 0.0
        for i in range(width):
            exact = np.floor(np.float64(vectors[n, i]) * scale + 0.5)
            whole = np.int32(min(max(exact, 1.0 - WHOLE), WHOLE - 1.0))
            coded.high[row, i] = np.int8(whole >> 16)
            coded.low[row, i] = np.uint16(whole & 0xFFFF)


@compiled
def decode(coded: CodedVectors, rows: NDArray[np.int64], vectors: NDArray[np.float64]) -> None:
    """Write the vectors of `rows` [n] to `vectors` [n, D], which stay as they are for rows from N on."""
    for n in range(len(rows)):
        row = rows[n]
        if row < len(coded.norms):
            scale = np.float64(coded.norms[row]) / WHOLE
            for i in range(vectors.shape[1]):
                whole = (np.int32(coded.high[row, i]) << 16) + np.int32(coded.low[row, i])
                vectors[n, i] = scale * np.float64(whole)


@compiled_sum
def inner_with(coded: CodedVectors, row: int, query: NDArray[np.float32]) -> float:
    """<h, w> of the query [D] and `row`, in float64.

    In float32 a query at right angles to long vectors would have a kernel far from one.
    """
    total = 0.0
    for i in range(len(query)):
        whole = (np.int32(coded.high[row, i]) << 16) + np.int32(coded.low[row, i])
        total += np.float64(whole) * np.float64(query[i])
    return total * (np.float64(coded.norms[row]) / WHOLE)


class CodedQuery(NamedTuple):
    """A query [D] in whole numbers, for products with high bytes: h_i is about `step` * `whole_i`.

    Attributes:
        whole: int16 [D].
        step: the value of one unit.
        middle: the contribution of the middles of the low parts to a product with high bytes.
        slack: the bound of the remaining error.
    """

    whole: NDArray[np.int16]
    step: float
    middle: float
    slack: float


@compiled
def code_query(query: NDArray[np.float32]) -> CodedQuery:
    """Code a query [D], with the bounds of its products with high bytes."""
    total, square, largest = 0.0, 0.0, 0.0
    for i in range(len(query)):
        value = np.float64(query[i])
        total += value
        square += value * value
        largest = max(largest, abs(value))
    step, whole = largest / 32767.0, np.zeros(len(query), np.int16)
    if largest > 0.0:
        for i in range(len(query)):
            whole[i] = np.int16(np.floor(np.float64(query[i]) / step + 0.5))
    # A low part lies within half of a high step of the step's middle, and high bytes are no longer than
    # 128 + sqrt(D); so Cauchy and Schwarz bound the error of the low parts and the rounded query.
    width = np.float64(len(query))
    rounded = 0.5 * step * np.sqrt(width) * (128.0 + np.sqrt(width))
    return CodedQuery(whole, step, 0.5 * total, WIDER * (0.5 * np.sqrt(width * square) + rounded))


@compiled_inline
def write_high_inner(
    coded: CodedVectors,
    rows: NDArray[np.int64],
    whole: NDArray[np.int16],
    g: int,
    products: NDArray[np.int32],
) -> None:
    """Write to `products[g]` [n] those of `whole[g]`, a coded query, with the high bytes of `rows` [n].

    They fit: |high| <= 128 + sqrt(D) and |whole| <= 32767 sqrt(D), so that any D up to 2^14 stays below 2^31.
    """
    width = whole.shape[1]
    pieces = width // PIECE * PIECE
    for n in range(len(rows)):
        total = np.int32(0)
        for i in range(pieces, width):
            total += np.int32(coded.high[rows[n], i]) * np.int32(whole[g, i])
        products[g, n] = total
    for first in range(0, pieces, PIECE):
        for n in range(len(rows)):
            products[g, n] += piece_product(coded.high, rows[n], whole, g, first)


@compiled_inline
def most_inner(product: np.int32, query: CodedQuery, norm: np.float32) -> float:
    """The upper bound of |<h, w>|, given the product with the high bytes."""
    near = abs(np.float64(product) * query.step + query.middle)
    return (near + query.slack) * np.float64(norm) / 128.0


Floats = NDArray[np.float64]
Query = NDArray[np.float32]
Rows = NDArray[np.int64]
# Rejections in a block after which it is cheaper to read all of its vectors.
MOST_REFUSED = 16


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
def sum_bounds(
    alpha: float, query: Query, first: int, excluded: int, coded: CodedVectors, sums: Floats
) -> None:
    """Write the running sums of bounds of the kernels of the rows from `first` on, by their high bytes."""
    rows = np.arange(first, first + len(sums))
    products, whole = np.empty((1, len(rows)), np.int32), code_query(query)
    write_high_inner(coded, rows, whole.whole.reshape(1, -1), 0, products)
    total = 0.0
    for n in range(len(rows)):
        if rows[n] != excluded:
            most = most_inner(products[0, n], whole, coded.norms[rows[n]])
            total += alpha * most * most + 1.0
        sums[n] = total


@compiled
def sum_kernels(
    alpha: float, query: Query, first: int, excluded: int, coded: CodedVectors, sums: Floats
) -> None:
    """Write the running sums of the kernels of the rows from `first` on."""
    total = 0.0
    for n in range(len(sums)):
        if first + n != excluded:
            product = inner_with(coded, first + n, query)
            total += alpha * product * product + 1.0
        sums[n] = total


@compiled
def draw_in_block(
    alpha: float,
    query: Query,
    first: int,
    excluded: int,
    coded: CodedVectors,
    sums: Floats,
    counter: np.uint64,
    drawn: Rows,
) -> np.uint64:
    """Fill `drawn` with rows of the block from `first` on, by their kernels; return the next counter.

    A row is drawn by its bound and accepted with its kernel over the bound, nearly always. Where rejections
    are frequent, as for a query at right angles to long vectors, kernels replace their bounds.
    """
    sum_bounds(alpha, query, first, excluded, coded, sums)
    filled, refused = 0, 0
    while filled < len(drawn):
        position = position_of(uniform(counter), sums)
        bound = sums[position] - (sums[position - 1] if position else 0.0)
        product = inner_with(coded, first + position, query)
        if uniform(counter + STEP) * bound < alpha * product * product + 1.0:
            drawn[filled] = first + position
            filled += 1
        else:
            refused += 1
            if refused == MOST_REFUSED:
                sum_kernels(alpha, query, first, excluded, coded, sums)
        counter += STEP + STEP
    return counter


@compiled
def draw_in_blocks(
    alpha: float,
    size: int,
    queries: NDArray[np.float32],
    excluded: Rows,
    coded: CodedVectors,
    ends: Rows,
    blocks: Rows,
    seed: np.uint64,
    drawn: Rows,
    start: int,
    stop: int,
) -> None:
    """Replace each of the `blocks[ends[b]:ends[b + 1]]`, of `size` rows, by a row of it: in `drawn`.

    For the examples b from `start` to `stop`.
    """
    sums, room = np.empty(size), np.empty(len(blocks), np.int64)
    for b in range(start, stop):
        own, counter = blocks[ends[b] : ends[b + 1]], stream_of(seed, b)
        order, done = np.argsort(own), 0
        while done < len(own):
            block, begin = own[order[done]], done
            while done < len(own) and own[order[done]] == block:
                done += 1
            first, here = block * size, room[: done - begin]
            inside = sums[: min(size, len(coded.norms) - first)]
            counter = draw_in_block(alpha, queries[b], first, excluded[b], coded, inside, counter, here)
            for n in range(len(here)):
                drawn[ends[b] + order[begin + n]] = here[n]
