"""The sets of vectors that indexes are compared on, with their questions and the right answers."""

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.quality_sets import SETS
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.tower.bundle.bundle import Bundle
from turret.training.commands import export_run, train_run
from turret.training.config.experiment import load_experiment

NEIGHBOURS = 16
ROWS_A_BLOCK = 65536


def grown(items: NDArray[np.float32], count: int, biased: bool, seed: int = 0) -> NDArray[np.float32]:
    """`count` vectors [count, D] like `items` [N, D]; where `biased` the last column is a bias."""
    index = faiss.IndexFlatL2(items.shape[1])
    index.add(items)
    nearest = np.asarray(index.search(items, NEIGHBOURS + 1)[1])[:, 1:]
    generator = np.random.default_rng(seed)
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


@dataclass(frozen=True)
class Source:
    """A set of `benchmarks.quality`, the shipped experiment that is trained on it, and its settings."""

    set_name: str
    experiment: str
    settings: tuple[str, ...] = ()


SOURCES = {
    "ml-1m": Source("sasrec_ml-1m", "youtubednn"),
    "gowalla": Source("gowalla", "ids"),
}


def trained_vectors(name: str, folder: Path, kept: Path = KEPT) -> Vectors:
    """The vectors of a set of `SOURCES`; `folder` has the data sets. Trained where they are not kept."""
    source = SOURCES[name]
    quality = SETS[source.set_name]
    hashes = {file: hash_file(folder / quality.name / file).sha256 for file in quality.files}
    made_of = json.dumps({"experiment": source.experiment, "settings": source.settings, "files": hashes})
    path = kept / f"{name}.npz"
    if path.is_file():
        with np.load(path) as arrays:
            if str(arrays["made_of"]) == made_of:
                return Vectors(arrays["items"], arrays["users"])
    print(f"Training {source.experiment} on {source.set_name}, once: its vectors are kept in {path}.")
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        prepare((quality.refitted or quality.prepared)(folder / quality.name, work / "files"), work / "data")
        vectors = vectors_of(work / "data", source, work)
    kept.mkdir(parents=True, exist_ok=True)
    np.savez(path, made_of=made_of, items=vectors.items, users=vectors.users)
    return vectors


def vectors_of(data: Path, source: Source, work: Path) -> Vectors:
    """Train on a prepared folder and export; users' vectors are those of all their events but the test."""
    train_run(data, source.experiment, work / "run", source.settings)
    bundle = Bundle.open(export_run(work / "run", data, work / "bundles", "vectors"))
    prepared = PreparedData.open(data)
    blocks = []
    for first in range(0, len(prepared.users), USERS_A_BLOCK):
        users = range(first, min(first + USERS_A_BLOCK, len(prepared.users)))
        histories = [prepared.history(user, "test") for user in users]
        blocks.append(bundle.encoder.encode(histories, [{}] * len(histories)))
    return Vectors(np.array(bundle.vectors), np.concatenate(blocks))


QUESTIONS, LEARNT, NEAREST = 2000, 5000, 100
MILLION = 1_000_000


@dataclass(frozen=True)
class IndexSet:
    """Items float32 [N, D] and the vectors of users that an index is asked for, and others it may learn from.

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
        """What tells these items from others: the first digits of their SHA-256."""
        return hashlib.sha256(self.items.tobytes()).hexdigest()[:12]

    def write(self, path: Path) -> Path:
        """Write what another process needs to be asked the same."""
        np.savez(path, items=self.items, queries=self.queries, truth=self.truth)
        return path


def asked(name: str, vectors: Vectors, biased: bool, questions: int = QUESTIONS) -> IndexSet:
    """Users drawn without replacement (seed 0) ask; as many as `LEARNT` others may be learnt from."""
    drawn = np.random.default_rng(0).permutation(len(vectors.users))
    queries, learnt = (
        np.ascontiguousarray(vectors.users[drawn[part]])
        for part in (slice(questions), slice(questions, questions + LEARNT))
    )
    nearest = min(NEAREST, len(vectors.items))
    truth = faiss.knn(queries, vectors.items, nearest, metric=faiss.METRIC_INNER_PRODUCT)[1]
    return IndexSet(name, vectors.items, queries, learnt, truth, biased)


def invented(count: int = 3000, users: int = 1000, width: int = 64) -> IndexSet:
    """Unit vectors whose columns matter less and less, for a run that must not wait for a training."""
    generator = np.random.default_rng(0)

    def drawn(many: int) -> NDArray[np.float32]:
        some = generator.standard_normal((many, width)) / np.sqrt(1 + np.arange(width))
        unit: NDArray[np.float32] = (some / np.linalg.norm(some, axis=1, keepdims=True)).astype(np.float32)
        return unit

    return asked("invented", Vectors(drawn(count), drawn(users)), biased=False, questions=users // 2)


def index_set(name: str, folder: Path, count: int = MILLION) -> IndexSet:
    """A set of `SOURCES`, `invented`, or `million`: `count` vectors that are distributed like gowalla's."""
    if name == "invented":
        return invented()
    source = "gowalla" if name == "million" else name
    vectors = trained_vectors(source, folder)
    biased = load_experiment(SOURCES[source].experiment, []).tower.scoring.item_bias
    if name == "million":
        vectors = Vectors(grown(vectors.items, count, biased), vectors.users)
    return asked(name, vectors, biased)
