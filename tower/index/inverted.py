"""Inverted lists: codes of the item vectors, of which a search reads the lists in the query's direction.

Few lists and few candidates suffice because of three choices, measured on the item vectors of trained towers:
lists by direction, finer where users request more; a random rotation before codes of few bits, which
represent an outstanding coordinate badly; one four-bit code a coordinate.
"""

from abc import abstractmethod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from turret.tower.errors import BundleError
from turret.tower.format.index_settings import InvertedSettings, IvfPqSettings, IvfSettings, RabitqSettings
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.faiss_calls import faiss
from turret.tower.index.faiss_files import OTHER_MODELS, augmented

_SEED = 1234
# Codes learn from so many vectors, and k-means from so many a centre; more moved neither.
_LEARNT_FROM, _VECTORS_A_CENTRE, _ROUNDS = 65536, 256, 10
_BLOCK = 65536
# So many codes are scanned at a time. FAISS's 32 load the query's tables more often: a tenth more time.
_SCANNED = 64
# How many of the best items of a learning user count.
_WANTED = 10
I = TypeVar("I", bound=InvertedSettings)  # noqa: E741


class InvertedIndex(ApproximateIndex[I]):
    """Lists of codes, behind a rotation where the settings say so."""

    @classmethod
    @abstractmethod
    def empty(cls, settings: I, centres: Any, dimension: int) -> Any:
        """Untrained codes of width `dimension` in lists around `centres`; None: in no lists."""

    @classmethod
    @abstractmethod
    def codes_class(cls, settings: I) -> Any:
        """The FAISS class of the codes, behind a rotation if there is one."""

    @classmethod
    def faiss_class(cls, settings: I) -> Any:
        """That of the codes, or of the rotation before them."""
        return faiss.IndexPreTransform if settings.is_rotated else cls.codes_class(settings)

    @classmethod
    def train(cls, settings: I, vectors: NDArray[np.float32], users: NDArray[np.float32] | None) -> Any:
        """`users` decide where lists are finer."""
        stored = stored_vectors(settings, vectors)
        dimension = stored.shape[1]
        rotation = faiss.RandomRotationMatrix(dimension, dimension) if settings.is_rotated else None
        if rotation is not None:
            rotation.init(_SEED)
        turned = (lambda some: some) if rotation is None else rotation.apply
        if settings.reads_all:
            index = cls.empty(settings, None, dimension)
        else:
            coarse = faiss.IndexFlatIP(dimension)
            coarse.add(turned(_centres(settings, stored, vectors, users)))
            index = cls.empty(settings, coarse, dimension)
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

    @classmethod
    def open_codes(cls, path: Path, vectors: NDArray[np.float32], settings: I) -> Any:
        """Also check the index behind the rotation, and that every row is in one list."""
        index = codes = super().open_codes(path, vectors, settings)
        if settings.is_rotated:
            codes = faiss.downcast_index(index.index)
            if type(codes) is not cls.codes_class(settings) or index.chain.size() != 1:
                raise BundleError(f"{path} holds a {type(codes).__name__} behind its rotation{OTHER_MODELS}")
        if not settings.reads_all:
            _check_lists(path, codes, len(vectors), settings.lists)
        return index


class IvfIndex(InvertedIndex[IvfSettings]):
    """The kind `ivf`: eight bits a coordinate."""

    @classmethod
    def empty(cls, settings: IvfSettings, centres: Any, dimension: int) -> Any:
        """See `InvertedIndex`."""
        quantizer = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
        return faiss.IndexIVFScalarQuantizer(centres, dimension, settings.lists, *quantizer)

    @classmethod
    def codes_class(cls, settings: IvfSettings) -> Any:
        """See `InvertedIndex`."""
        return faiss.IndexIVFScalarQuantizer

    @classmethod
    def parameters(cls, settings: IvfSettings, breadth: int, **selector: Any) -> Any:
        """`breadth` is the number of lists."""
        return faiss.SearchParametersIVF(nprobe=min(breadth, settings.lists), **selector)


class IvfPqIndex(InvertedIndex[IvfPqSettings]):
    """The kind `ivf_pq`: product codes that are scanned many at a time."""

    # Fast-scan lists are copied whether mapped or not, and FAISS 1.15.1 dies of a cut file that it maps.
    is_mapped = False

    def __init__(self, proposing: Any, vectors: NDArray[np.float32], settings: IvfPqSettings) -> None:
        self.takes_masks = not settings.reads_all
        if not settings.reads_all:
            # Of FAISS's ways the one for single queries; it chooses by batches, and takes 2-3 us more. A file
            # doesn't keep it.
            faiss.downcast_index(proposing.index).implem = 10
        super().__init__(proposing, vectors, settings)

    @classmethod
    def empty(cls, settings: IvfPqSettings, centres: Any, dimension: int) -> Any:
        """See `InvertedIndex`."""
        code = settings.parts, 4, faiss.METRIC_INNER_PRODUCT, _SCANNED
        if centres is None:
            return faiss.IndexPQFastScan(dimension, *code)
        index = faiss.IndexIVFPQFastScan(centres, dimension, settings.lists, *code)
        index.by_residual = True
        return index

    @classmethod
    def codes_class(cls, settings: IvfPqSettings) -> Any:
        """See `InvertedIndex`."""
        return faiss.IndexPQFastScan if settings.reads_all else faiss.IndexIVFPQFastScan

    @classmethod
    def parameters(cls, settings: IvfPqSettings, breadth: int, **selector: Any) -> Any:
        """None for one list, which takes neither lists nor a selector."""
        if settings.reads_all:
            return None
        inner = faiss.SearchParametersIVF(nprobe=min(breadth, settings.lists), **selector)
        return faiss.SearchParametersPreTransform(index_params=inner)

    @classmethod
    def table_bytes(cls, settings: IvfPqSettings) -> int:
        """FAISS counts a table of 16 numbers a part and list, though it makes none for inner products."""
        return 64 * settings.lists * settings.parts

    @classmethod
    def open_codes(cls, path: Path, vectors: NDArray[np.float32], settings: IvfPqSettings) -> Any:
        """Also check the number of parts, and of codes without lists."""
        index = super().open_codes(path, vectors, settings)
        if settings.parts > vectors.shape[1] + settings.augmented:
            raise BundleError(
                f"{path} holds codes of {settings.parts} parts, more than there are numbers{OTHER_MODELS}"
            )
        if settings.reads_all:
            codes = faiss.downcast_index(index.index) if settings.is_rotated else index
            blocks = -(-int(codes.ntotal) // codes.bbs) * codes.bbs
            if settings.parts != codes.M or codes.codes.size() < blocks * codes.M2 // 2:
                raise BundleError(f"{path} holds codes of {codes.M} parts, or too few of them{OTHER_MODELS}")
        return index


class RabitqIndex(InvertedIndex[RabitqSettings]):
    """The kind `rabitq`: one bit a coordinate of the rotated vector."""

    @classmethod
    def empty(cls, settings: RabitqSettings, centres: Any, dimension: int) -> Any:
        """See `InvertedIndex`."""
        return faiss.IndexIVFRaBitQ(centres, dimension, settings.lists, faiss.METRIC_INNER_PRODUCT)

    @classmethod
    def codes_class(cls, settings: RabitqSettings) -> Any:
        """See `InvertedIndex`."""
        return faiss.IndexIVFRaBitQ

    @classmethod
    def parameters(cls, settings: RabitqSettings, breadth: int, **selector: Any) -> Any:
        """`breadth` is the number of lists."""
        inner = faiss.IVFRaBitQSearchParameters(nprobe=min(breadth, settings.lists), **selector)
        return faiss.SearchParametersPreTransform(index_params=inner)


def stored_vectors(settings: InvertedSettings, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """`vectors` [N, D] as they are coded: of equal length if the settings say so, and in whole parts."""
    stored = augmented(vectors) if settings.augmented else vectors
    missing = settings.width(vectors.shape[1]) - stored.shape[1]
    return np.ascontiguousarray(np.pad(stored, ((0, 0), (0, missing))) if missing else stored)


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
    best = faiss.knn(users, vectors, min(_WANTED, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT)[1]
    return 1.0 + np.bincount(best.ravel(), minlength=len(vectors)).astype(np.float32)


def _check_lists(path: Path, index: Any, count: int, lists: int) -> None:
    """Every row is in one list, once, so that no search returns a row that doesn't exist."""
    coarse = faiss.downcast_index(index.quantizer)
    if type(coarse) not in (faiss.IndexFlatL2, faiss.IndexFlatIP) or coarse.d != index.d:
        raise BundleError(f"{path} finds its lists by a {type(coarse).__name__}{OTHER_MODELS}")
    if int(index.nlist) != lists or int(index.invlists.nlist) != lists or index.quantizer.ntotal != lists:
        raise BundleError(f"{path} has {index.nlist} lists where the manifest says {lists}{OTHER_MODELS}")
    inverted = index.invlists
    found = [faiss.rev_swig_ptr(inverted.get_ids(each), inverted.list_size(each)) for each in range(lists)]
    rows = np.concatenate(found)
    if len(rows) != count or not np.array_equal(np.sort(rows), np.arange(count)):
        raise BundleError(f"{path} doesn't hold each of {count} rows once{OTHER_MODELS}")
