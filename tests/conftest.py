"""Tiny bundles without any training: a user tower written by hand, item vectors drawn at random."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray
from onnx import checker, numpy_helper, parser

from tests.support.service_process import Process, Start
from tests.support.tiers import Guard
from tests.support.tools import check_required
from turret.data.features.feature import Feature
from turret.data.kinds import KindTable
from turret.data.vocabulary import Vocabulary
from turret.tower.bundle.golden import Golden, GoldenQuery
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.config import ScoringConfig
from turret.tower.format.manifest import ModelCard
from turret.training.process import set_up_process

# One thread a test process: two of them on two cores would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
set_up_process()  # before any test loads torch
# Tests fork; the handlers of gRPC, which Milvus's client loads, end children of a process with a channel.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

_USUAL: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("usual", max_examples=50, derandomize=True, database=None, **_USUAL)
# Random; pytest prints the seed, and --hypothesis-seed repeats it.
settings.register_profile("thorough", max_examples=1_000, print_blob=True, **_USUAL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="all rounds of the tests that repeat something")


def pytest_configure(config: pytest.Config) -> None:
    check_required()
    settings.load_profile("thorough" if config.getoption("--thorough") else "usual")
    config.pluginmanager.register(Guard())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with processes begin first: the last file is what all other workers wait for."""
    slow = {item.path for item in items if item.get_closest_marker("process")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether a test that repeats something runs all its rounds, as in `make nightly`."""
    return bool(request.config.getoption("--thorough"))


USER_FEATURES = (
    Feature(name="country", kind="category", values=("nl", "de", "fr")),
    Feature(name="age", kind="number", mean=40.0, deviation=10.0),
    Feature(name="likes", kind="multi", values=("drama", "comedy")),
)


def user_tower(
    dimension: int, features: Sequence[Feature], times: bool = False, kinds: bool = False
) -> bytes:
    """Mean of the history, plus a table's rows for the codes of each feature, made a unit vector.

    With `times`, the sums of known gaps and clocks in hours also shift its first and its second coordinate;
    with `kinds`, the number of events of each known kind shifts that of its code.
    """
    inputs = [f"float[B,T,{dimension}] history", "int64[B] length"]
    constants: dict[str, NDArray[Any]] = {
        "one": np.array(1, np.int64),
        "axis1": np.array([1], np.int64),
        "axis2": np.array([2], np.int64),
        "codes": np.arange(dimension),
        "tiny": np.array(1e-9, np.float32),
    }
    nodes = """
        sum = ReduceSum <keepdims=0> (history, axis1)
        positive = Max (length, one)
        count = Cast <to=1> (positive)
        divisor = Unsqueeze (count, axis1)
        mean = Div (sum, divisor)
    """
    shifts = []
    for place, name in enumerate(("gaps", "clocks") if times else ()):
        inputs.append(f"float[B,T] {name}")
        constants[f"{name}_hours"] = np.eye(1, dimension, place, dtype=np.float32) / 3600
        nodes += f"""
            {name}_known = Relu ({name})
            {name}_sum = ReduceSum <keepdims=1> ({name}_known, axis1)
            {name}_shift = MatMul ({name}_sum, {name}_hours)
        """
        shifts.append(f"{name}_shift")
    if kinds:
        inputs.append("int64[B,T] kinds")
        nodes += """
            kind = Unsqueeze (kinds, axis2)
            of_kind = Equal (kind, codes)
            counted = Cast <to=1> (of_kind)
            kinds_shift = ReduceSum <keepdims=0> (counted, axis1)
        """
        shifts.append("kinds_shift")
    for number, feature in enumerate(features):
        name, table, shift = f"feature_{feature.name}", f"table{number}", f"shift{number}"
        constants[table] = feature_table(number, feature, dimension)
        if feature.kind == "number":
            column = f"column{number} = Unsqueeze ({name}, axis1)"
            shape, added = "float[B]", f"{column} {shift} = MatMul (column{number}, {table})"
        elif feature.kind == "category":
            shape, added = "int64[B]", f"{shift} = Gather ({table}, {name})"
        else:
            rows = f"rows{number} = Gather ({table}, {name})"
            shape, added = "int64[B,M]", f"{rows} {shift} = ReduceSum <keepdims=0> (rows{number}, axis1)"
        inputs.append(f"{shape} {name}")
        nodes += added
        shifts.append(shift)
    state = "mean"
    for shift in shifts:
        nodes += f" with_{shift} = Add ({state}, {shift}) "
        state = f"with_{shift}"
    nodes += f"""
        norm = ReduceL2 <axes=[1], keepdims=1> ({state})
        safe = Max (norm, tiny)
        user_vector = Div ({state}, safe)
    """
    return onnx_model(inputs, nodes, f"float[B,{dimension}] user_vector", constants)


def onnx_model(inputs: Sequence[str], nodes: str, output: str, constants: dict[str, NDArray[Any]]) -> bytes:
    """The model of this text, in the syntax of ONNX."""
    head = f'<ir_version: 8, opset_import: ["": 17]> tower ({", ".join(inputs)}) => ({output})'
    model = parser.parse_model(f"{head} {{ {nodes} }}")
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    checker.check_model(model)
    written: bytes = model.SerializeToString()
    return written


def feature_table(number: int, feature: Feature, dimension: int) -> NDArray[np.float32]:
    """One row a code (row 0, unknown, is zero); for a number, the one row that it multiplies."""
    size = 1 if feature.kind == "number" else feature.size
    table = np.random.default_rng(number).standard_normal((size, dimension)).astype(np.float32)
    if feature.kind != "number":
        table[0] = 0
    return table


def plain_ranking(
    vectors: NDArray[np.float32], history: Sequence[int], temperature: float, k: int = 20
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rank every row but those of the history by cosine with the history's mean, in float64, by sorting."""
    mean = vectors[list(history)].astype(np.float64).mean(axis=0)
    scores = vectors.astype(np.float64) @ (mean / np.linalg.norm(mean)) / temperature
    scores[list(history)] = -np.inf
    order = np.lexsort((np.arange(len(scores)), -scores))[: min(k, len(scores) - len(set(history)))]
    return order, scores[order].astype(np.float32)


def contents(
    version: str = "v1",
    ids: Sequence[int] | Sequence[str] = tuple(range(100, 160)),
    dimension: int = 8,
    features: tuple[Feature, ...] = (),
    seed: int = 0,
    temperature: float = 0.5,
    times: bool = False,
    kinds: KindTable | None = None,
    **card: Any,
) -> BundleContents:
    """Something to publish: unit vectors at random, the first item the most popular; `card` has others."""
    vectors = np.random.default_rng(seed).standard_normal((len(ids), dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vocabulary = Vocabulary(ids)
    usual: dict[str, Any] = {
        "version": version,
        "scoring": ScoringConfig(kind="cosine", temperature=temperature),
        "history_length": 5,
        "reads_times": times,
        "reads_kinds": kinds is not None,
        "kinds": kinds or {},
        "metrics": {"test": {"towers": {"ndcg@10": {"mean": 0.5}}}},
        "fingerprints": {"data": "d", "configuration": "c"},
    }
    return BundleContents(
        card=ModelCard.model_validate(usual | card),
        user_tower=user_tower(dimension, features, times, kinds is not None),
        item_vectors=vectors,
        vocabulary=vocabulary,
        user_features=features,
        fields={"title": [f"Item {one}" for one in ids], "genres": [["drama"]] * len(ids)},
        popularity=np.arange(len(ids), 0, -1, dtype=np.int64),
        model=b"safetensors",
        golden=golden_of(vocabulary, lambda rows: plain_ranking(vectors, rows, temperature)),
        query_vectors=vectors[::3].copy(),
    )


def golden_of(
    vocabulary: Vocabulary, ranking: Callable[[list[int]], tuple[NDArray[Any], NDArray[Any]]]
) -> Golden:
    """Three recorded histories of a catalog, each with its best 20 rows and scores by `ranking`."""
    queries = []
    for rows in ([0], [1, 2, 3], [len(vocabulary) - 1, 0, len(vocabulary) // 2]):
        best, scores = ranking(rows)
        history, items = vocabulary.ids(rows), vocabulary.ids(best[:20])
        queries.append(GoldenQuery(history=tuple(history), items=tuple(items), scores=tuple(scores[:20])))
    return Golden(queries=tuple(queries))


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that `bundles` copies, to be read alone: a service writes its log into its folder."""
    root = tmp_path_factory.mktemp("published")
    publish(root, contents())
    yield root
    written = {path.name for path in root.iterdir()} - {"current", "v1"}
    assert not written, f"a test wrote {written} into `published`; such a test asks for `bundles`"


@pytest.fixture
def bundles(published: Path, tmp_path: Path) -> Path:
    """One current bundle, v1, that nobody has opened: 60 integer ids from 100, no user features."""
    return shutil.copytree(published, tmp_path / "bundles")


@pytest.fixture(scope="session")
def published_three(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = shutil.copytree(published, tmp_path_factory.mktemp("three") / "bundles")
    publish(root, contents("v2", ids=range(200, 240), seed=1))
    publish(root, contents("v3", ids=range(300, 320), seed=2))
    return root


@pytest.fixture
def three(published_three: Path, bundles: Path) -> Path:
    """Versions with disjoint items in the folder of `bundles`: 100-159 (live), 200-239 and 300-319."""
    shutil.rmtree(bundles)
    return shutil.copytree(published_three, bundles)


@pytest.fixture
def start(bundles: Path) -> Iterator[Start]:
    """Start a service on a folder (that of `bundles`), with settings by name; it ends with the test."""
    started: list[Process] = []

    def begin(root: Path = bundles, **settings: Any) -> Process:
        started.append(Process(root, **settings))
        return started[-1]

    yield begin
    for process in started:
        process.close()
