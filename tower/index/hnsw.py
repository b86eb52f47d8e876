"""A graph of near neighbours over the item vectors themselves (HNSW)."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.tower.errors import BundleError
from turret.tower.format.index_settings import HnswSettings
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.faiss_calls import faiss
from turret.tower.index.faiss_files import OTHER_MODELS


class HnswIndex(ApproximateIndex[HnswSettings]):
    """The kind `hnsw`. Its file has no vectors: those of the bundle are attached."""

    @classmethod
    def train(
        cls, settings: HnswSettings, vectors: NDArray[np.float32], users: NDArray[np.float32] | None
    ) -> Any:
        """Add one vector after the other."""
        graph = faiss.IndexHNSWFlat(vectors.shape[1], settings.links, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = settings.ef_construction
        graph.add(vectors)
        return graph

    @classmethod
    def parameters(cls, settings: HnswSettings, breadth: int, **selector: Any) -> Any:
        """`breadth` is HNSW's ef."""
        return faiss.SearchParametersHNSW(efSearch=breadth, **selector)

    @classmethod
    def faiss_class(cls, settings: HnswSettings) -> Any:
        """See `ApproximateIndex`."""
        return faiss.IndexHNSWFlat

    @classmethod
    def open_codes(cls, path: Path, vectors: NDArray[np.float32], settings: HnswSettings) -> Any:
        """Also check the links, and attach the vectors."""
        index = super().open_codes(path, vectors, settings)
        _check_graph(path, index, len(vectors))
        _attach(index, vectors)
        return index


def _check_graph(path: Path, index: Any, count: int) -> None:
    """A link out of the catalog would be followed into memory of others."""
    graph = index.hnsw
    offsets = _array(graph.offsets, np.uint64)
    neighbours = _array(graph.neighbors, np.int32)
    levels = _array(graph.levels, np.int32)
    fits = (
        len(offsets) == count + 1
        and len(levels) == count
        and offsets[0] == 0
        and offsets[-1] == len(neighbours)
        and bool((offsets[1:] > offsets[:-1]).all())
        and 0 <= graph.entry_point < count
        and levels.min(initial=1) >= 1
        and graph.max_level == levels.max(initial=1) - 1
        and levels[graph.entry_point] == graph.max_level + 1
        and neighbours.min(initial=-1) >= -1
        and neighbours.max(initial=-1) < count
        and np.array_equal(np.diff(offsets), _slots(graph)[levels])
    )
    if not fits:
        raise BundleError(f"{path} holds a graph that is not one of {count} rows{OTHER_MODELS}")


def _slots(graph: Any) -> NDArray[np.uint64]:
    """How many links a node of so many levels has in all, by the graph's own table."""
    return np.array(faiss.vector_to_array(graph.cum_nneighbor_per_level), dtype=np.uint64)


def _attach(index: Any, vectors: NDArray[np.float32]) -> None:
    """Let the graph read the vectors where they are mapped, instead of a second copy in its file."""
    # FAISS asks for an owner of the pages: that of the mapped graph will do, as `plain` is held below.
    flat = faiss.IndexFlatIP(vectors.shape[1])
    plain = np.asarray(vectors)
    pointer = faiss.swig_ptr(plain.reshape(-1).view(np.uint8))
    flat.codes = faiss.MaybeOwnedVectorUInt8.create_view(pointer, plain.nbytes, index.hnsw.neighbors.owner)
    flat.ntotal = len(vectors)
    index.storage = flat
    index.own_fields = False
    index.referenced_objects = [flat, plain]


def _array(vector: Any, dtype: type[np.generic]) -> NDArray[Any]:
    if vector.size() == 0:
        return np.empty(0, dtype=dtype)
    found: NDArray[Any] = faiss.rev_swig_ptr(vector.data(), vector.size())
    return found
