"""The FAISS index behind each approximate kind: how it is made, what class it is, how it is asked."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tower.indexes.augmentation import augmented
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
    "ivf_pq": faiss.IndexIVFPQFastScan,
    "rabitq": faiss.IndexPreTransform,
}


def code(settings: ApproximateSettings, vectors: NDArray[np.float32]) -> Any:
    """Train the index that `settings` describe on `vectors` [N, D], and add them all; row n is vector n.

    The same vectors give the same index: FAISS's own seeds are fixed, and a graph, whose links depend on the
    order in which nodes come, is built on one thread.
    """
    index = empty(settings, vectors.shape[1])
    stored = augmented(vectors) if getattr(settings, "augmented", False) else vectors
    missing = index.d - stored.shape[1]
    stored = np.pad(stored, ((0, 0), (0, missing))) if missing else stored
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        index.train(stored)
        index.add(stored)
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def empty(settings: ApproximateSettings, dimension: int) -> Any:
    """The untrained FAISS index for vectors of `dimension`."""
    if isinstance(settings, ScalarSettings):
        quantizer = faiss.ScalarQuantizer.QT_8bit
        return faiss.IndexScalarQuantizer(dimension, quantizer, faiss.METRIC_INNER_PRODUCT)
    if isinstance(settings, HnswSettings):
        graph = faiss.IndexHNSWFlat(dimension, settings.links, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = settings.ef_construction
        return graph
    return _inverted(settings, width(settings, dimension))


def width(settings: ApproximateSettings, dimension: int) -> int:
    """The width of what is stored of vectors of `dimension`: product codes need parts of one size."""
    if isinstance(settings, ScalarSettings | HnswSettings):
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
    if isinstance(settings, RabitqSettings):
        inner = faiss.IVFRaBitQSearchParameters(nprobe=lists, **chosen)
        return faiss.SearchParametersPreTransform(index_params=inner)
    return faiss.SearchParametersIVF(nprobe=lists, **chosen)


def _inverted(settings: IvfSettings | IvfPqSettings | RabitqSettings, dimension: int) -> Any:
    coarse = faiss.IndexFlatL2(dimension)
    if isinstance(settings, IvfSettings):
        quantizer = faiss.ScalarQuantizer.QT_8bit
        index = faiss.IndexIVFScalarQuantizer(coarse, dimension, settings.lists, quantizer, faiss.METRIC_L2)
    elif isinstance(settings, IvfPqSettings):
        index = faiss.IndexIVFPQFastScan(coarse, dimension, settings.lists, settings.parts, 4)
    else:
        index = faiss.IndexIVFRaBitQ(coarse, dimension, settings.lists, faiss.METRIC_L2)
    index.cp.max_points_per_centroid = _VECTORS_A_CENTRE
    index.own_fields = True
    coarse.this.disown()
    if not isinstance(settings, RabitqSettings):
        return index
    # One bit a coordinate says most where no coordinate is more than the others: rotated at random.
    rotation = faiss.RandomRotationMatrix(dimension, dimension)
    whole = faiss.IndexPreTransform(rotation, index)
    whole.own_fields = True
    rotation.this.disown()
    index.this.disown()
    return whole
