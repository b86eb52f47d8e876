"""The kinds of FAISS indexes: how each is trained, searched and opened.

Inverted lists need few lists and few candidates because of three choices, measured on the item vectors of
trained towers: lists by direction, finer where users request more; a random rotation before codes of few
bits, which represent an outstanding coordinate badly; one four-bit code a coordinate.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.tower.errors import BundleError
from turret.tower.format.checksums import lengths_of
from turret.tower.format.index_settings import (
    ApproximateSettings,
    HnswSettings,
    InvertedSettings,
    IvfPqSettings,
    IvfSettings,
    RabitqSettings,
    ScalarSettings,
)
from turret.tower.index.faiss_calls import faiss, read_faiss

_SEED = 1234
# Codes learn from so many vectors, and k-means from so many a centre; more moved neither.
_LEARNT_FROM, _VECTORS_A_CENTRE, _ROUNDS = 65536, 256, 10
_BLOCK = 65536
# So many codes are scanned at a time. FAISS's 32 load the query's tables more often: a tenth more time.
_SCANNED = 64
# How many of the best items of a learning user count.
_WANTED = 10
_PRODUCT = faiss.METRIC_INNER_PRODUCT
# Of the lengths, over their mean. Unit vectors in float32 spread by 1e-7, biases and dot products by more.
_EQUAL = 1e-3


def spread(vectors: NDArray[np.float32]) -> float:
    """The deviation of the lengths of `vectors` [N, D] over their mean: 0 where all are equal."""
    found = lengths_of(vectors).astype(np.float64)
    return float(found.std() / found.mean()) if found.any() else 0.0


def are_equal(vectors: NDArray[np.float32]) -> bool:
    """Whether all lengths count as equal, so that distances rank as inner products do."""
    return spread(vectors) < _EQUAL


def augmented(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """`vectors` [N, D] with one more column, which makes them all as long as the longest: [N, D + 1]."""
    squares = lengths_of(vectors).astype(np.float64) ** 2
    missing = np.sqrt(np.maximum(squares.max() - squares, 0.0)).astype(np.float32)
    return np.column_stack([vectors, missing])


def train(
    settings: ApproximateSettings, vectors: NDArray[np.float32], users: NDArray[np.float32] | None
) -> Any:
    """A FAISS index of contiguous `vectors` [N, D]; row n is vector n.

    `users` [U, D] are real user vectors, which decide where lists are finer. The same vectors give the same
    index: FAISS's own seeds are fixed, and a graph, whose links depend on the order in which nodes come, is
    built on one thread.
    """
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        if isinstance(settings, InvertedSettings):
            return _lists(settings, vectors, users)
        index = _graph(settings, vectors) if isinstance(settings, HnswSettings) else _scalar(vectors)
        index.add(vectors)
        return index
    finally:
        faiss.omp_set_num_threads(threads)


def parameters(settings: ApproximateSettings, breadth: int, **selector: Any) -> Any:
    """FAISS's parameters of a search, with a `sel` that must outlive them; None where there are none."""
    if isinstance(settings, HnswSettings):
        return faiss.SearchParametersHNSW(efSearch=breadth, **selector)
    if not isinstance(settings, InvertedSettings):
        return faiss.SearchParameters(**selector)
    if settings.reads_all:  # codes in no lists take neither lists nor a selector
        return None
    is_rabitq = isinstance(settings, RabitqSettings)
    of_lists = faiss.IVFRaBitQSearchParameters if is_rabitq else faiss.SearchParametersIVF
    inner = of_lists(nprobe=min(breadth, settings.lists), **selector)
    return faiss.SearchParametersPreTransform(index_params=inner) if settings.is_rotated else inner


def open_codes(path: Path, settings: ApproximateSettings, vectors: NDArray[np.float32]) -> Any:
    """Open the FAISS index in `path`, of the item vectors [N, D].

    Raises BundleError for another class or size.
    """
    index = codes = read_faiss(path)
    if isinstance(settings, InvertedSettings) and settings.is_rotated and hasattr(index, "index"):
        codes = faiss.downcast_index(index.index)
    found = type(codes).__name__, int(index.ntotal), int(index.d), int(getattr(codes, "nlist", 1))
    lists = settings.lists if isinstance(settings, InvertedSettings) else 1
    expected = _class(settings), len(vectors), settings.width(vectors.shape[1]), lists
    if found != expected or index.metric_type != _PRODUCT or not index.is_trained:
        raise BundleError(
            f"{path} is {found} where the manifest and the item vectors need {expected} (class, rows, width, "
            "lists); the files are of different models, make the index again with `turret index`"
        )
    return index


def stored_vectors(settings: InvertedSettings, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """`vectors` [N, D] as they are coded: of equal length if the settings say so, and in whole parts."""
    stored = augmented(vectors) if settings.augmented else vectors
    missing = settings.width(vectors.shape[1]) - stored.shape[1]
    return np.ascontiguousarray(np.pad(stored, ((0, 0), (0, missing))) if missing else stored)


def _class(settings: ApproximateSettings) -> str:
    """The FAISS class of the codes, behind a rotation if there is one."""
    if isinstance(settings, IvfPqSettings) and settings.reads_all:
        return "IndexPQFastScan"
    return {
        ScalarSettings: "IndexScalarQuantizer",
        HnswSettings: "IndexHNSWFlat",
        IvfSettings: "IndexIVFScalarQuantizer",
        IvfPqSettings: "IndexIVFPQFastScan",
        RabitqSettings: "IndexIVFRaBitQ",
    }[type(settings)]


def _scalar(vectors: NDArray[np.float32]) -> Any:
    """Eight bits within the range of each coordinate."""
    index = faiss.IndexScalarQuantizer(vectors.shape[1], faiss.ScalarQuantizer.QT_8bit, _PRODUCT)
    index.train(vectors)
    return index


def _graph(settings: HnswSettings, vectors: NDArray[np.float32]) -> Any:
    graph = faiss.IndexHNSWFlat(vectors.shape[1], settings.links, _PRODUCT)
    graph.hnsw.efConstruction = settings.ef_construction
    return graph


def _lists(
    settings: InvertedSettings, vectors: NDArray[np.float32], users: NDArray[np.float32] | None
) -> Any:
    """Lists of codes, behind a rotation where the settings say so."""
    stored = stored_vectors(settings, vectors)
    dimension = stored.shape[1]
    rotation = faiss.RandomRotationMatrix(dimension, dimension) if settings.is_rotated else None
    if rotation is not None:
        rotation.init(_SEED)
    turned = (lambda some: some) if rotation is None else rotation.apply
    if settings.reads_all:
        index = _codes(settings, None, dimension)
    else:
        coarse = faiss.IndexFlatIP(dimension)
        coarse.add(turned(_centres(settings, stored, vectors, users)))
        index = _codes(settings, coarse, dimension)
        index.own_fields = True
        coarse.this.disown()
    learnt = np.random.default_rng(_SEED).permutation(len(stored))[:_LEARNT_FROM]
    index.train(turned(stored[np.sort(learnt)]))
    whole = index if rotation is None else faiss.IndexPreTransform(rotation, index)
    for start in range(0, len(stored), _BLOCK):
        whole.add(stored[start : start + _BLOCK])
    if rotation is not None:
        whole.own_fields = True
        rotation.this.disown()
        index.this.disown()
    return whole


def _codes(settings: InvertedSettings, centres: Any, dimension: int) -> Any:
    """Untrained codes of width `dimension` in lists around `centres`; None: in no lists."""
    if isinstance(settings, IvfPqSettings):
        code = settings.parts, 4, _PRODUCT, _SCANNED
        if centres is None:
            return faiss.IndexPQFastScan(dimension, *code)
        index = faiss.IndexIVFPQFastScan(centres, dimension, settings.lists, *code)
        index.by_residual = True
        return index
    if isinstance(settings, RabitqSettings):
        return faiss.IndexIVFRaBitQ(centres, dimension, settings.lists, _PRODUCT)
    eight_bits = faiss.ScalarQuantizer.QT_8bit, _PRODUCT
    return faiss.IndexIVFScalarQuantizer(centres, dimension, settings.lists, *eight_bits)


def _centres(
    settings: InvertedSettings,
    stored: NDArray[np.float32],
    vectors: NDArray[np.float32],
    users: NDArray[np.float32] | None,
) -> NDArray[np.float32]:
    """The mean direction of the members of each list, beside the largest of their biases: [lists, D]."""
    last = vectors.shape[1] - 1
    directions = stored.copy()
    if settings.biased:
        directions[:, last] = 0.0
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), np.float32(1e-30))
    means = faiss.Kmeans(
        stored.shape[1],
        settings.lists,
        niter=_ROUNDS,
        spherical=True,
        seed=_SEED,
        max_points_per_centroid=_VECTORS_A_CENTRE,
        min_points_per_centroid=1,
    )
    means.train(directions, weights=_wanted(vectors, users))
    centres: NDArray[np.float32] = means.centroids.copy()
    if settings.biased:
        lists = means.index.search(directions, 1)[1][:, 0]
        largest = np.full(settings.lists, vectors[:, last].min(), dtype=np.float32)
        np.maximum.at(largest, lists, vectors[:, last])
        centres[:, last] = largest
    return centres


def _wanted(vectors: NDArray[np.float32], users: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
    """The weight of each item [N]: one, and how often it is among the best of the users."""
    if users is None or not len(users):
        return None
    best = faiss.knn(users, vectors, min(_WANTED, len(vectors)), metric=_PRODUCT)[1]
    return 1.0 + np.bincount(best.ravel(), minlength=len(vectors)).astype(np.float32)
