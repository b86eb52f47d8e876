"""The FAISS index behind each approximate kind: how it is made, what class it is, how it is asked."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tower.indexes.augmentation import augmented
from tower.indexes.product_codes import product_codes
from tower.indexes.settings import (
    ApproximateSettings,
    HnswSettings,
    IvfPqSettings,
    IvfSettings,
    RabitqSettings,
    ScalarSettings,
)
from tower.indexes.untyped import faiss

# k-means reads so many vectors a centre at most; more move no centre by what could be seen in the recall.
_VECTORS_A_CENTRE = 64
CLASSES: dict[str, type[Any]] = {
    "sq8": faiss.IndexScalarQuantizer,
    "hnsw": faiss.IndexHNSWFlat,
    "ivf": faiss.IndexIVFScalarQuantizer,
    "ivf_pq": faiss.IndexPreTransform,
    "rabitq": faiss.IndexPreTransform,
}
BEHIND_ROTATION: dict[str, type[Any]] = {"ivf_pq": faiss.IndexIVFPQFastScan, "rabitq": faiss.IndexIVFRaBitQ}


def code(
    settings: ApproximateSettings, vectors: NDArray[np.float32], users: NDArray[np.float32] | None = None
) -> Any:
    """Train the index that `settings` describe on `vectors` [N, D], and add them all; row n is vector n.

    `users` [U, D] are real user vectors that lists may learn from; recall is measured with others.

    The same vectors give the same index: FAISS's own seeds are fixed, and a graph, whose links depend on the
    order in which nodes come, is built on one thread.
    """
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        if isinstance(settings, IvfPqSettings):
            return product_codes(settings, vectors, users)
        index = _empty(settings, vectors.shape[1])
        stored = augmented(vectors) if isinstance(settings, IvfSettings) and settings.augmented else vectors
        index.train(stored)
        index.add(stored)
        return index
    finally:
        faiss.omp_set_num_threads(threads)


def _empty(settings: ScalarSettings | HnswSettings | IvfSettings | RabitqSettings, dimension: int) -> Any:
    """The untrained FAISS index for vectors of `dimension`."""
    if isinstance(settings, ScalarSettings):
        quantizer = faiss.ScalarQuantizer.QT_8bit
        return faiss.IndexScalarQuantizer(dimension, quantizer, faiss.METRIC_INNER_PRODUCT)
    if isinstance(settings, HnswSettings):
        graph = faiss.IndexHNSWFlat(dimension, settings.links, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = settings.ef_construction
        return graph
    if isinstance(settings, IvfSettings):
        return _scalar_lists(settings.lists, width(settings, dimension))
    return _bit_lists(settings.lists, dimension)


def width(settings: ApproximateSettings, dimension: int) -> int:
    """The width of what is stored of vectors of `dimension`: product codes need parts of one size."""
    if not isinstance(settings, IvfSettings | IvfPqSettings):
        return dimension
    needed = dimension + settings.augmented
    return settings.parts * -(-needed // settings.parts) if isinstance(settings, IvfPqSettings) else needed


def parameters(settings: ApproximateSettings, breadth: int, selector: Any = None) -> Any:
    """What a search as broad as `breadth` is asked with; `selector` must outlive it."""
    chosen = {} if selector is None else {"sel": selector}
    if isinstance(settings, ScalarSettings):
        return faiss.SearchParameters(**chosen)
    if isinstance(settings, HnswSettings):
        return faiss.SearchParametersHNSW(efSearch=breadth, **chosen)
    lists = min(breadth, settings.lists)
    if isinstance(settings, IvfSettings):
        return faiss.SearchParametersIVF(nprobe=lists, **chosen)
    kind = (
        faiss.IVFRaBitQSearchParameters if isinstance(settings, RabitqSettings) else faiss.SearchParametersIVF
    )
    return faiss.SearchParametersPreTransform(index_params=kind(nprobe=lists, **chosen))


def _scalar_lists(lists: int, dimension: int) -> Any:
    coarse = faiss.IndexFlatL2(dimension)
    quantizer = faiss.ScalarQuantizer.QT_8bit
    index = faiss.IndexIVFScalarQuantizer(coarse, dimension, lists, quantizer, faiss.METRIC_L2)
    index.cp.max_points_per_centroid = _VECTORS_A_CENTRE
    index.own_fields = True
    coarse.this.disown()
    return index


def _bit_lists(lists: int, dimension: int) -> Any:
    """Inner products of vectors as they are: one more number would be most of an augmented one's bits."""
    coarse = faiss.IndexFlatIP(dimension)
    index = faiss.IndexIVFRaBitQ(coarse, dimension, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = _VECTORS_A_CENTRE
    index.cp.spherical = True
    # One bit a coordinate says most where no coordinate is more than the others: rotated at random.
    rotation = faiss.RandomRotationMatrix(dimension, dimension)
    whole = faiss.IndexPreTransform(rotation, index)
    whole.own_fields = index.own_fields = True
    for part in (rotation, index, coarse):
        part.this.disown()
    return whole
