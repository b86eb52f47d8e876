"""Checks of the rows of an index file: FAISS trusts most of them, and would read beyond its memory.

FAISS 1.15 compares the lengths within a file, and the neighbours of a graph with their number. Row numbers of
inverted lists, levels of neighbours and the count of packed codes are left to this module.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.tower.index.faiss_calls import faiss


class RowsError(ValueError):
    """A part of an index that doesn't fit the item vectors."""


def check_rows(codes: Any, count: int, block: int) -> None:
    """Raise RowsError unless `codes` holds each of `count` rows once, and refers to no other.

    `codes` is a graph, inverted lists, or packed codes without lists; codes are packed in blocks of `block`.
    """
    if hasattr(codes, "hnsw"):
        _check_levels(codes.hnsw, count)
        return
    if hasattr(codes, "bbs") and codes.bbs != block:
        raise RowsError(f"its codes are in blocks of {codes.bbs}, not {block}")
    if hasattr(codes, "invlists"):
        _check_centres(codes)
        _check_lists(faiss.downcast_InvertedLists(codes.invlists), count, block)
        return
    rows = count + -count % block
    if codes.ntotal2 != rows or codes.codes.size() != rows * codes.M2 // 2:
        raise RowsError(f"it has codes of {codes.ntotal2} rows in {codes.codes.size()} bytes, not of {rows}")


def _check_centres(codes: Any) -> None:
    """Raise RowsError unless there is one centre for each list: the number of a centre is its list's."""
    centres = faiss.downcast_index(codes.quantizer)
    if type(centres) is not faiss.IndexFlatIP or centres.ntotal != codes.nlist:
        raise RowsError(f"it has {centres.ntotal} centres in a {type(centres).__name__} for its lists")


def _check_lists(lists: Any, count: int, block: int) -> None:
    if getattr(lists, "n_per_block", block) != block:
        raise RowsError(f"its lists are in blocks of {lists.n_per_block}, not {block}")
    is_listed = np.zeros(count, dtype=np.bool_)
    listed = 0
    for number in range(lists.nlist):
        if not (size := int(lists.list_size(number))):
            continue
        rows = faiss.rev_swig_ptr(lists.get_ids(number), size)
        if rows.min() < 0 or rows.max() >= count:
            raise RowsError(f"list {number} holds row {_outside(rows, count)} of {count} items")
        is_listed[rows] = True
        listed += size
    if listed != count or not is_listed.all():
        raise RowsError(f"its lists hold {listed} rows, {is_listed.sum()} distinct ones, of {count} items")


def _outside(rows: NDArray[np.int64], count: int) -> int:
    return int(rows[(rows < 0) | (rows >= count)][0])


def _check_levels(graph: Any, count: int) -> None:
    """Raise RowsError unless links on a level lead to nodes of that level, as a search reads their links."""
    levels, offsets, slots = map(
        faiss.vector_to_array, (graph.levels, graph.offsets, graph.cum_nneighbor_per_level)
    )
    neighbours = faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())
    if len(levels) != count or levels.min() < 1 or levels[graph.entry_point] != graph.max_level + 1:
        raise RowsError(f"its graph of {len(levels)} nodes begins at none of its highest level")
    for level in range(1, graph.max_level + 1):
        first = offsets[:-1][levels > level].astype(np.int64)
        places = first[:, None] + np.arange(slots[level], slots[level + 1])
        linked = neighbours[places]
        if (levels[linked[linked >= 0]] <= level).any():
            raise RowsError(f"its graph has links on level {level} to nodes that are not there")
