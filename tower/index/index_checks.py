"""Checks of a FAISS index before it is searched: its numbers lead into its own arrays and rows alone.

FAISS follows the links and row numbers of a file unchecked; a crafted one would read memory of others.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.tower.errors import BundleError
from turret.tower.index.faiss_calls import faiss

_OTHER_MODELS = "; the files are of different models, make the index again with `turret index`"


def check_graph(path: Path, index: Any, count: int) -> None:
    """Raise BundleError unless all links of an HNSW graph are rows below `count`, or -1 for none."""
    graph = index.hnsw
    offsets = _array(graph.offsets, np.uint64)
    neighbours = _array(graph.neighbors, np.int32)
    levels = _array(graph.levels, np.int32)
    # The number of links of a node of so many levels, by the graph's own table.
    slots = np.array(faiss.vector_to_array(graph.cum_nneighbor_per_level), dtype=np.uint64)
    fits = (
        len(offsets) == count + 1
        and len(levels) == count
        and offsets[0] == 0
        and offsets[-1] == len(neighbours)
        and bool((offsets[1:] > offsets[:-1]).all())
        and 0 <= graph.entry_point < count
        and levels.min(initial=1) >= 1
        and levels.max(initial=1) < len(slots)
        and graph.max_level == levels.max(initial=1) - 1
        and levels[graph.entry_point] == graph.max_level + 1
        and neighbours.min(initial=-1) >= -1
        and neighbours.max(initial=-1) < count
        and np.array_equal(np.diff(offsets), slots[levels])
    )
    if not fits:
        raise BundleError(f"{path} holds a graph that is not one of {count} rows{_OTHER_MODELS}")


def check_lists(path: Path, codes: Any, count: int, lists: int) -> None:
    """Raise BundleError unless each of `count` rows is in one of `lists` lists, once."""
    coarse = faiss.downcast_index(codes.quantizer)
    if type(coarse) not in (faiss.IndexFlatL2, faiss.IndexFlatIP) or coarse.d != codes.d:
        raise BundleError(f"{path} finds its lists by a {type(coarse).__name__}{_OTHER_MODELS}")
    inverted = codes.invlists
    if {int(codes.nlist), int(inverted.nlist), int(coarse.ntotal)} != {lists}:
        raise BundleError(f"{path} has {codes.nlist} lists where the manifest says {lists}{_OTHER_MODELS}")
    found = [faiss.rev_swig_ptr(inverted.get_ids(each), inverted.list_size(each)) for each in range(lists)]
    rows = np.concatenate(found)
    if len(rows) != count or not np.array_equal(np.sort(rows), np.arange(count)):
        raise BundleError(f"{path} doesn't hold each of {count} rows once{_OTHER_MODELS}")


def check_parts(path: Path, codes: Any, parts: int) -> None:
    """Raise BundleError unless codes in no lists have these parts, and as many bytes as rows need."""
    blocks = -(-int(codes.ntotal) // codes.bbs) * codes.bbs
    if parts != codes.M or codes.codes.size() < blocks * codes.M2 // 2:
        raise BundleError(f"{path} holds codes of {codes.M} parts, or too few of them{_OTHER_MODELS}")


def _array(vector: Any, dtype: type[np.generic]) -> NDArray[Any]:
    if vector.size() == 0:
        return np.empty(0, dtype=dtype)
    found: NDArray[Any] = faiss.rev_swig_ptr(vector.data(), vector.size())
    return found
