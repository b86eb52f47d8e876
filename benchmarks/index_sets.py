"""The sets of vectors that indexes are compared on, and Turret's kinds of indexes at their fastest settings.

Models are trained once by a shipped experiment, and users' vectors come out of the exported tower, as the
service makes them. A million vectors are drawn around gowalla's, each with the covariance of a real one's
neighbours.
"""

import hashlib
import json
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.quality_sets import SETS
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.tower.bundle.bundle import Bundle
from turret.tower.format.index_settings import ApproximateSettings, IvfPqSettings, IvfSettings, SearchParams
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.index import ExactIndex, Index, open_index
from turret.tower.tuning.choice import are_equal
from turret.training.commands import export_run, train_command
from turret.training.config.experiment import load_experiment

NEIGHBOURS = 16
ROWS_A_BLOCK = 65536


def grown(items: NDArray[np.float32], count: int, biased: bool) -> NDArray[np.float32]:
    """`count` vectors [count, D] like `items` [N, D]; where `biased` the last column is a bias."""
    index = faiss.IndexFlatL2(items.shape[1])
    index.add(items)
    nearest = np.asarray(index.search(items, NEIGHBOURS + 1)[1])[:, 1:]
    generator = np.random.default_rng(0)
    blocks = [items[:count]]
    for first in range(len(items), count, ROWS_A_BLOCK):
        chosen = generator.integers(len(items), size=min(ROWS_A_BLOCK, count - first))
        around = items[nearest[chosen]]
        around -= around.mean(axis=1, keepdims=True)
        draws = generator.standard_normal((len(chosen), NEIGHBOURS), dtype=np.float32)
        drawn = items[chosen] + np.einsum("bj,bjd->bd", draws, around) / np.float32(np.sqrt(NEIGHBOURS))
        directions = drawn[:, :-1] if biased else drawn
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        blocks.append(drawn)
    return np.concatenate(blocks)


KEPT = Path("var/index_vectors")
USERS_A_BLOCK = 256


@dataclass(frozen=True)
class Vectors:
    """Items float32 [N, D] and users float32 [U, D]; a score is an inner product."""

    items: NDArray[np.float32]
    users: NDArray[np.float32]


# The set of `benchmarks.quality`, and the shipped experiment that is trained on it.
SOURCES = {"ml-1m": ("sasrec_ml-1m", "youtubednn"), "gowalla": ("gowalla", "ids")}


def trained_vectors(name: str, folder: Path) -> Vectors:
    """The vectors of a set of `SOURCES`; `folder` has the data sets. The model is trained if none are kept.

    A user's vector encodes all events but the test.
    """
    set_name, experiment = SOURCES[name]
    quality = SETS[set_name]
    hashes = {file: hash_file(folder / quality.name / file).sha256 for file in quality.files}
    made_of, path = json.dumps({"experiment": experiment, "files": hashes}), KEPT / f"{name}.npz"
    if path.is_file():
        with np.load(path) as arrays:
            if str(arrays["made_of"]) == made_of:
                return Vectors(arrays["items"], arrays["users"])
    print(f"Training {experiment} on {set_name}, once: its vectors are kept in {path}.")
    with tempfile.TemporaryDirectory() as scratch:
        work, prepared = Path(scratch), quality.refitted or quality.prepared
        prepare(prepared(folder / quality.name, work / "files"), work / "data")
        train_command(work / "run", work / "data", experiment)
        bundle = Bundle.open(export_run(work / "run", work / "data", work / "bundles", "vectors"))
        data, blocks = PreparedData.open(work / "data"), []
        for first in range(0, len(data.users), USERS_A_BLOCK):
            users = range(first, min(first + USERS_A_BLOCK, len(data.users)))
            histories = [data.history(user, "test") for user in users]
            blocks.append(bundle.encoder.encode(histories, [{}] * len(histories)))
        vectors = Vectors(np.array(bundle.vectors), np.concatenate(blocks))
    KEPT.mkdir(parents=True, exist_ok=True)
    np.savez(path, made_of=made_of, items=vectors.items, users=vectors.users)
    return vectors


QUESTIONS, LEARNT, NEAREST = 2000, 5000, 100
MILLION = 1_000_000


@dataclass(frozen=True)
class IndexSet:
    """Items float32 [N, D], user vectors as `queries`, and other user vectors to learn from (`learnt`).

    `truth` int64 [Q, 100] are the rows of the largest inner products with each of `queries` [Q, D]. With
    `biased` the last column of an item is its bias.
    """

    name: str
    items: NDArray[np.float32]
    queries: NDArray[np.float32]
    learnt: NDArray[np.float32]
    truth: NDArray[np.int64]
    biased: bool

    @property
    def key(self) -> str:
        """The key of these items: the first digits of their SHA-256."""
        return hashlib.sha256(self.items.tobytes()).hexdigest()[:12]

    def write(self, path: Path) -> Path:
        """Write the items, the queries and the truth for another process."""
        np.savez(path, items=self.items, queries=self.queries, truth=self.truth)
        return path


def asked(name: str, vectors: Vectors, biased: bool, questions: int = QUESTIONS) -> IndexSet:
    """A set whose queries are users drawn without replacement (seed 0); `LEARNT` others are to learn from."""
    drawn = np.random.default_rng(0).permutation(len(vectors.users))
    queries, learnt = (
        np.ascontiguousarray(vectors.users[drawn[part]])
        for part in (slice(questions), slice(questions, questions + LEARNT))
    )
    nearest = min(NEAREST, len(vectors.items))
    truth = faiss.knn(queries, vectors.items, nearest, metric=faiss.METRIC_INNER_PRODUCT)[1]
    return IndexSet(name, vectors.items, queries, learnt, truth, biased)


def invented() -> IndexSet:
    """Unit vectors whose columns matter less and less, for a run that must not wait for a training."""
    generator = np.random.default_rng(0)

    def drawn(many: int) -> NDArray[np.float32]:
        some = generator.standard_normal((many, 64)) / np.sqrt(1 + np.arange(64))
        unit: NDArray[np.float32] = (some / np.linalg.norm(some, axis=1, keepdims=True)).astype(np.float32)
        return unit

    return asked("invented", Vectors(drawn(3000), drawn(1000)), biased=False, questions=500)


def index_set(name: str, folder: Path) -> IndexSet:
    """A set of `SOURCES`, `invented`, or `million`: a million vectors that are distributed like gowalla's."""
    if name == "invented":
        return invented()
    source = "gowalla" if name == "million" else name
    vectors = trained_vectors(source, folder)
    biased = load_experiment(SOURCES[source][1]).tower.scoring.item_bias
    if name == "million":
        vectors = Vectors(grown(vectors.items, MILLION, biased), vectors.users)
    return asked(name, vectors, biased)


_UNTUNED = (SearchParams(k=1, candidates=1),)
# Candidates that are scored exactly, in multiples of k.
_FACTORS = {"ivf": (1.5, 2.0, 3.0), "ivf_pq": (1.5, 2.0, 2.5, 3.0, 4.0)}
# This many questions show which of two settings is faster.
_TIMED = 200
_LARGE, _FEW, _WITHOUT_LISTS = 10**5, 200, 10**4
# Where all questions miss the target by no more than this factor, more lists are tried.
_NEARLY = 0.99


def kinds(data: IndexSet) -> list[ApproximateSettings]:
    """Every approximate kind, as it is built for a set: more and shorter lists where there are more items."""
    count, width = data.items.shape
    fine, coarse = round(4 * count**0.5), round((2 if count > _LARGE else 1) * count**0.5)
    if count <= _WITHOUT_LISTS:
        coarse = 1
    lists = {"augmented": not data.biased and not are_equal(data.items), "biased": data.biased}
    return [
        IvfSettings(efforts=_UNTUNED, lists=fine, **lists),
        IvfPqSettings(efforts=_UNTUNED, lists=coarse, parts=width + lists["augmented"], **lists),
    ]


@dataclass(frozen=True)
class Side:
    """An index, and for each k the settings that it is asked with, and its recall."""

    name: str
    chosen: dict[int, tuple[Index, dict[str, Any]]]

    def run(self, queries: NDArray[np.float32], k: int) -> float:
        """The seconds that one search for each of `queries` takes, one after the other."""
        return seconds(self.chosen[k][0], queries, k)


def seconds(index: Index, queries: NDArray[np.float32], k: int) -> float:
    """The processor seconds of this process for one search for each query."""
    nearest = index.nearest
    start = time.process_time()
    for query in queries:
        nearest(query, k)
    return time.process_time() - start


def exact_side(data: IndexSet, ks: Sequence[int]) -> Side:
    """The index that compares every vector."""
    index = ExactIndex(data.items)
    return Side("flat", {k: (index, {"recall": recall(index, data, k)}) for k in ks})


def side(data: IndexSet, settings: ApproximateSettings, ks: Sequence[int], target: float, kept: Path) -> Side:
    """A kind, built or read from `kept`, at its fastest settings whose recall is `target`, or its best."""
    index = _built(data, settings, kept)
    return Side(settings.kind, {k: _fastest(index, data, k, target) for k in ks})


def recall(index: Index, data: IndexSet, k: int, is_rough: bool = False) -> float:
    """The mean share of the true best k that searches find; with `is_rough`, few are made in a large set."""
    # The exact index finds the same share in a large set, and a few questions show it.
    most = _FEW if (is_rough or index.settings.is_exact) and len(data.items) > _LARGE else len(data.queries)
    results = (index.nearest(query, k)[0] for query in data.queries[:most])
    hits = [len(np.intersect1d(top, true[:k])) for top, true in zip(results, data.truth[:most], strict=True)]
    return float(np.mean(hits)) / k


def _built(data: IndexSet, settings: ApproximateSettings, kept: Path) -> ApproximateIndex:
    """The index; an index of a large set is kept, as it takes long to build."""
    path = kept / f"turret-{settings.kind}-{settings.lists}.faiss"
    index: Index
    if len(data.items) >= _LARGE and path.is_file():
        index = open_index(path, data.items, settings)
    else:
        index = ApproximateIndex.build(data.items, settings, data.learnt)
    assert isinstance(index, ApproximateIndex)
    if len(data.items) >= _LARGE and not path.is_file():
        index.save(path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)
    return index


def _fastest(
    index: ApproximateIndex, data: IndexSet, k: int, target: float
) -> tuple[ApproximateIndex, dict[str, Any]]:
    """The index with the fastest settings that reach the recall, else with those of the highest recall."""
    tried = []
    for factor in _FACTORS[index.settings.kind]:
        candidates = min(len(index), int(np.ceil(factor * k)))

        def of(breadth: int, candidates: int = candidates) -> ApproximateIndex:
            effort = SearchParams(k=k, breadth=breadth, candidates=candidates)
            return index.with_settings(index.settings.model_copy(update={"efforts": (effort,)}))

        def roughly(breadth: int, of: Callable[[int], ApproximateIndex] = of) -> float:
            return recall(of(breadth), data, k, is_rough=True)

        breadths = _breadths(index.settings.lists)
        breadth, reached = _smallest(roughly, breadths, target)
        if len(data.items) > _LARGE:
            # The breadth grows from there until all questions reach the target.
            for breadth in (step for step in breadths if step >= breadth):
                reached = recall(of(breadth), data, k)
                if not _NEARLY * target < reached < target:
                    break
        tuned = of(breadth)
        merit = reached
        if reached >= target:
            merit = 1.0 / min(seconds(tuned, data.queries[:_TIMED], k) for _ in range(3))
        told = {"recall": reached, "breadth": breadth, "candidates": candidates}
        tried.append(((reached >= target, merit), tuned, told))
    return max(tried, key=lambda trial: trial[0])[1:]


def _breadths(lists: int) -> list[int]:
    """The numbers of lists to try, ascending by a twentieth."""
    last = max(1, lists // 3)
    steps = 1 + int(np.log(last) / np.log(1.05))
    return [int(step) for step in np.unique(np.round(np.geomspace(1, last, steps)))]


def _smallest(reached: Callable[[int], float], ascending: Sequence[int], target: float) -> tuple[int, float]:
    """The smallest value that reaches the target, and its result; the last value where none does."""
    place = bisect_left(ascending, True, key=lambda value: reached(value) >= target)
    value = ascending[min(place, len(ascending) - 1)]
    return value, reached(value)
