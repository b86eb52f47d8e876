"""Approximate candidates, scored exactly before they are ranked.

Inverted lists need few lists and few candidates because of three choices, measured on the item vectors of
trained towers: lists by direction, finer where users request more; a random rotation before codes of few
bits, which represent an outstanding coordinate badly; one four-bit code a coordinate.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.masks import RowMask
from turret.tower.errors import BundleError
from turret.tower.format.checksums import lengths_of
from turret.tower.format.index_settings import ApproximateSettings, HnswSettings, IvfPqSettings, SearchParams
from turret.tower.index.faiss_calls import Found, faiss, one_thread, read_faiss, write_faiss
from turret.tower.index.index import ExactIndex, Index, ordered
from turret.tower.index.soundness import RowsError, check_rows

Vectors = NDArray[np.float32]

# This many queries read codes once in a call. From 20 on FAISS compares centres by BLAS, with other rounding.
AT_ONCE = 16
_SEED = 1234
# Codes learn from this many vectors, and k-means from so many a centre; more improved neither.
_LEARNT_FROM, _VECTORS_A_CENTRE, _ROUNDS = 65536, 256, 10
_BLOCK = 65536
# This many codes are scanned at a time. FAISS's 32 load the query's tables more often: a tenth more time.
_SCANNED = 64
# This many of the best items of each learning user count.
_WANTED = 10
_PRODUCT = faiss.METRIC_INNER_PRODUCT


class ApproximateIndex(Index):
    """A FAISS index that proposes rows, and the item vectors that rank them.

    Scores are true inner products, the same numbers that `ExactIndex` gives, and rows come in the same order:
    higher scores first, then lower rows. Among rows that tie at the end, the proposed rows come. Where fewer
    than k allowed rows are proposed, all allowed rows are scored instead.
    """

    settings: ApproximateSettings

    def __init__(self, proposing: Any, vectors: Vectors, settings: ApproximateSettings) -> None:
        self._proposing = proposing
        self._exact = ExactIndex(vectors)
        self.settings = settings
        if isinstance(settings, IvfPqSettings) and not settings.reads_all:
            # This is FAISS's way for single queries; its default chooses by batches, and takes 2-3 us more. A
            # file doesn't keep the choice.
            faiss.downcast_index(proposing.index).implem = 10
        # This many columns are only stored; queries have zeros there.
        self._missing = settings.width(vectors.shape[1]) - vectors.shape[1]
        # Search parameters are read, never written, by a search; parameters without a selector serve all.
        # The closures hold settings alone: a reference to this index would keep it alive after its version.
        self._params = cache(partial(_params, settings.efforts))
        self._parameters = cache(partial(_parameters, settings))

    @classmethod
    def build(cls, vectors: Vectors, settings: ApproximateSettings, users: Vectors | None = None) -> Self:
        """Index `vectors` [N, D] as `settings` say; row n is vector n.

        `users` [U, D] are real user vectors, which decide where lists are finer; recall is measured with
        other users. The same vectors give the same index: FAISS's own seeds are fixed, and one thread works.
        """
        with one_thread():
            trained = _trained(settings, np.ascontiguousarray(vectors, dtype=np.float32), users)
        return cls(trained, vectors, settings)

    @classmethod
    def load(cls, path: Path, vectors: Vectors, settings: ApproximateSettings) -> Self:
        """Map the file of `save` beside its vectors [N, D].

        Raises BundleError when `path` holds another kind, or codes of other than N vectors of width D, or
        refers to other rows.
        """
        index = codes = read_faiss(path)
        if settings.is_rotated and hasattr(index, "index"):
            codes = faiss.downcast_index(index.index)
        actual = type(codes).__name__, int(index.ntotal), int(index.d), int(getattr(codes, "nlist", 1))
        needed = _class(settings), len(vectors), settings.width(vectors.shape[1]), settings.lists
        if actual != needed or index.metric_type != _PRODUCT or not index.is_trained:
            raise BundleError(
                f"{path} is {actual} where the manifest and the item vectors need {needed} (class, rows, "
                "width, lists); the files are of different models, make the index again with `turret index`"
            )
        try:
            check_rows(codes, len(vectors), _SCANNED)
        except RowsError as error:
            raise BundleError(f"{path}: {error}; make the index again with `turret index`") from None
        return cls(index, vectors, settings)

    def save(self, path: Path) -> None:
        """Write the index to `path` in FAISS's own format."""
        write_faiss(self._proposing, path)

    def with_settings(self, settings: ApproximateSettings) -> Self:
        """The same codes, searched with other `settings` of the same build."""
        return type(self)(self._proposing, self.vectors(), settings)

    @property
    def exact(self) -> ExactIndex:
        """The exact search over the same vectors."""
        return self._exact

    def search_params(self, k: int) -> SearchParams | None:
        """The parameters for `k`, between those of the settings; None beyond the largest k."""
        return self._params(k)

    def nearest(self, vector: Vectors, k: int, allowed: RowMask | None = None, spare: int = 0) -> Found:
        """Search as `Index.nearest`; exact where k is beyond the settings, or too few rows are proposed."""
        if allowed is None:
            return self.nearest_of_each(vector[None], k, spare)[0]
        k = min(k + spare, allowed.count)
        params = self._params(k)
        # Without lists, codes take no selector.
        if params is None or k == 0 or self.settings.reads_all:
            return self._exact.nearest(vector, k, allowed)
        # With this breadth as many allowed rows are scored as rows are without a filter.
        breadth = params.breadth * len(self) // allowed.count
        chosen = _parameters(self.settings, breadth, sel=allowed.derived(_selector))
        (rows,) = self._propose(vector[None], min(params.candidates, allowed.count), chosen)
        return self._scored(vector, k, rows, allowed)

    def nearest_of_each(self, vectors: Vectors, k: int, spare: int = 0) -> list[Found]:
        """Search as `Index.nearest_of_each`, with `AT_ONCE` queries a call of FAISS."""
        params, k = self._params(min(k, len(self))), min(k + spare, len(self))
        if params is None:
            return [self._exact.nearest(vector, k) for vector in vectors]
        candidates, chosen = min(max(params.candidates, k), len(self)), self._parameters(params.breadth)
        answers: list[Found] = []
        for start in range(0, len(vectors), AT_ONCE):
            few = vectors[start : start + AT_ONCE]
            proposed = self._propose(few, candidates, chosen)
            answers += [
                self._scored(vector, k, rows, None) for vector, rows in zip(few, proposed, strict=True)
            ]
        return answers

    def _propose(self, vectors: Vectors, count: int, chosen: Any) -> NDArray[np.int64]:
        """The `count` best rows by the codes for each of vectors [B, D]: [B, count], -1 behind the last."""
        if self._missing:
            vectors = np.hstack([vectors, np.zeros((len(vectors), self._missing), np.float32)])
        rows = np.empty((len(vectors), count), dtype=np.int64)
        scores = np.empty((len(vectors), count), dtype=np.float32)
        into = faiss.swig_ptr(scores), faiss.swig_ptr(rows)
        # FAISS's own checks and copies take 5 us of a search of 10.
        self._proposing.search_c(len(vectors), faiss.swig_ptr(vectors), count, *into, chosen)
        return rows

    def _scored(self, vector: Vectors, k: int, rows: NDArray[np.int64], allowed: RowMask | None) -> Found:
        rows = rows if rows[-1] >= 0 else rows[rows >= 0]
        if len(rows) < k:
            return self._exact.nearest(vector, k, allowed)
        return ordered(rows, self._exact.scores(vector, rows), k)


def _params(efforts: Sequence[SearchParams], k: int) -> SearchParams | None:
    """The parameters for `k` rows, interpolated between those of `efforts`; None beyond the last effort."""
    place = bisect_left(efforts, k, key=lambda effort: effort.k)
    if place in (0, len(efforts)):
        return efforts[place] if efforts and place == 0 else None
    below, above = efforts[place - 1], efforts[place]
    share = (k - below.k) / (above.k - below.k)
    breadth = round(below.breadth + share * (above.breadth - below.breadth))
    candidates = round(below.candidates + share * (above.candidates - below.candidates))
    return SearchParams(k=k, breadth=breadth, candidates=candidates)


def _selector(allowed: RowMask) -> Any:
    """The allowed rows as a bitmap. FAISS keeps no reference to it, so the caller must hold it."""
    return faiss.IDSelectorBitmap(np.packbits(allowed.mask, bitorder="little"))


def _parameters(settings: ApproximateSettings, breadth: int, **selector: Any) -> Any:
    """FAISS's parameters of a search, with a `sel` that must outlive them; None if the index takes none."""
    if settings.reads_all:
        return None
    if isinstance(settings, HnswSettings):
        return faiss.SearchParametersHNSW(efSearch=breadth, **selector)
    lists = faiss.SearchParametersIVF(nprobe=min(breadth, settings.lists), **selector)
    return faiss.SearchParametersPreTransform(index_params=lists) if settings.is_rotated else lists


def _class(settings: ApproximateSettings) -> str:
    """The FAISS class of the codes, behind a rotation if there is one."""
    if isinstance(settings, HnswSettings):
        return "IndexHNSWFlat"
    if not isinstance(settings, IvfPqSettings):
        return "IndexIVFScalarQuantizer"
    return "IndexPQFastScan" if settings.reads_all else "IndexIVFPQFastScan"


def _trained(settings: ApproximateSettings, vectors: Vectors, users: Vectors | None) -> Any:
    """A graph, or lists of codes (or one of all), behind a rotation where the settings say so."""
    if isinstance(settings, HnswSettings):
        graph = faiss.IndexHNSWFlat(vectors.shape[1], settings.links, _PRODUCT)
        graph.hnsw.efConstruction = settings.ef_construction
        graph.add(vectors)
        return graph
    stored = _stored(settings, vectors)
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


def _stored(settings: ApproximateSettings, vectors: Vectors) -> Vectors:
    """`vectors` [N, D] as they are coded: all as long as the longest if so set, and in whole parts."""
    stored = vectors
    if settings.augmented:
        squares = lengths_of(vectors).astype(np.float64) ** 2
        missing = np.sqrt(np.maximum(squares.max() - squares, 0.0)).astype(np.float32)
        stored = np.column_stack([vectors, missing])
    more = settings.width(vectors.shape[1]) - stored.shape[1]
    return np.ascontiguousarray(np.pad(stored, ((0, 0), (0, more))))


def _codes(settings: ApproximateSettings, centres: Any, dimension: int) -> Any:
    """Untrained codes of width `dimension` in lists around `centres`; None: in no lists."""
    if not isinstance(settings, IvfPqSettings):
        eight_bits = faiss.ScalarQuantizer.QT_8bit, _PRODUCT
        return faiss.IndexIVFScalarQuantizer(centres, dimension, settings.lists, *eight_bits)
    code = settings.parts, 4, _PRODUCT, _SCANNED
    if centres is None:
        return faiss.IndexPQFastScan(dimension, *code)
    index = faiss.IndexIVFPQFastScan(centres, dimension, settings.lists, *code)
    index.by_residual = True
    return index


def _centres(
    settings: ApproximateSettings, stored: Vectors, vectors: Vectors, users: Vectors | None
) -> Vectors:
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
    centres: Vectors = means.centroids.copy()
    if settings.biased:
        lists = means.index.search(directions, 1)[1][:, 0]
        largest = np.full(settings.lists, vectors[:, last].min(), dtype=np.float32)
        np.maximum.at(largest, lists, vectors[:, last])
        centres[:, last] = largest
    return centres


def _wanted(vectors: Vectors, users: Vectors | None) -> Vectors | None:
    """The weight of each item [N]: 1, plus the number of users among whose best the item is."""
    if users is None or not len(users):
        return None
    best = faiss.knn(users, vectors, min(_WANTED, len(vectors)), metric=_PRODUCT)[1]
    return 1.0 + np.bincount(best.ravel(), minlength=len(vectors)).astype(np.float32)
