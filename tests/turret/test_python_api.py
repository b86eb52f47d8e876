"""The Python API: the pages run, any Arrow table stands for a file, and errors are those of Turret."""

import asyncio
import doctest
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import turret
from tests.oracles.ranking import metric, ranking
from tests.support.command_line import environment
from tests.support.places import ROOT, python_blocks
from tests.support.tools import require
from tests.support.trained import trained_shop
from tests.turret.conftest import stored
from turret.arguments import checked
from turret.data.prepared import PreparedData
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise
from turret.model import Model
from turret.tower.retrieval import Retriever

PAGE = ROOT / "docs" / "python.md"
README = ROOT / "README.md"
EVENTS = pl.DataFrame(
    {
        "user_id": [f"u{number % 7}" for number in range(84)],
        "item_id": [f"i{number % 12}" for number in range(84)],
        "timestamp": range(1_700_000_000, 1_700_000_000 + 84 * 60, 60),
    }
)
ITEMS = pl.DataFrame(
    {
        "item_id": [f"i{number}" for number in range(12)],
        "genres": [["drama"], ["war", "drama"], []] * 4,
        "released": [datetime(2020, 1 + number, 2) for number in range(12)],  # pandas has no dates
    }
)


@pytest.fixture(scope="module")
def raw() -> Path:
    """The files of a shop, as the page reads them."""
    return trained_shop().folder / "raw"


@pytest.fixture(scope="module")
def model() -> Model:
    return turret.load(trained_shop().bundles)


@pytest.mark.process  # it starts none, but its trainings take too long for `make test`
def test_every_block_of_the_page_runs(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, on files with the usual names of columns."""
    monkeypatch.chdir(shutil.copytree(raw, tmp_path / "shop"))
    names: dict[str, object] = {}
    for block in python_blocks(PAGE):
        exec(compile(block, str(PAGE), "exec"), names)
    assert Path("var/bundles/current").read_text() == "first\n"
    assert isinstance(names["model"], Model)


@pytest.mark.nightly
def test_the_example_of_the_readme_runs(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On files with the columns that it names."""
    names = {"user_id": "customer", "item_id": "sku"}
    pl.read_csv(raw / "events.csv").rename(names).write_csv(tmp_path / "orders.csv")
    pl.read_csv(raw / "items.csv").rename({"item_id": "sku"}).write_csv(tmp_path / "products.csv")
    monkeypatch.chdir(tmp_path)
    (example,) = python_blocks(README)
    exec(compile(example, str(README), "exec"), {})
    assert (tmp_path / "var" / "bundles" / "current").is_file()


@pytest.mark.nightly
def test_the_shop_of_the_demo_answers_as_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the commands of `make demo`, but for the service."""
    monkeypatch.chdir(tmp_path)
    synthesise(SyntheticConfig(), Path("var/demo/shop"))
    data = turret.prepare("var/demo/shop", "var/demo/prepared")
    turret.train(data, "var/demo/run", experiment="demo").export("var/demo/bundles")
    text = README.read_text("utf-8")
    (block,) = re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    session = doctest.DocTestParser().get_doctest(block, {}, "README.md", None, None)
    assert doctest.DocTestRunner().run(session) == doctest.TestResults(0, 3)


def test_a_model_answers_as_the_retriever(model: Model) -> None:
    rows = np.array([3, 5], dtype=np.int32)
    (ranking,) = Retriever(model.bundle).recommend([rows], [{}], 4, [rows])
    answer = model.recommend(model.bundle.vocabulary.ids(rows), k=4)
    assert [item.id for item in answer] == model.bundle.vocabulary.ids(ranking.rows)
    assert [item.score for item in answer] == [float(score) for score in ranking.scores]
    assert all(item.source == "towers" for item in answer)


def test_seen_and_excluded_items_are_left_out_and_unknown_ones_are_ignored(model: Model) -> None:
    ids = model.bundle.vocabulary.ids(range(len(model.bundle.vocabulary)))
    answer = model.recommend(["no such item", *ids[:2]], k=len(ids), exclude=ids[2:4])
    assert {item.id for item in answer} == set(ids[4:])
    everything = model.recommend(ids[:2], k=len(ids), exclude_seen=False)
    assert len(everything) == len(ids)
    popular = model.recommend(["no such item"], k=3)
    assert [item.source for item in popular] == ["popular"] * 3
    assert popular[0].score >= popular[1].score >= popular[2].score


def test_a_run_is_not_resumed_with_other_settings() -> None:
    run = trained_shop().run()
    sentence = r"^--resume: .* was begun with other settings, .* leave out --experiment and --set"
    with pytest.raises(turret.TurretError, match=sentence):
        turret.train(run.data_folder, run.folder, resume=True, settings={"training.epochs": 99})


@checked
def as_deep_as_python(depth: int) -> None:
    """What reads an argument of this depth."""
    if depth < sys.getrecursionlimit():
        as_deep_as_python.__wrapped__(depth + 1)  # type: ignore[attr-defined]


def test_a_model_refuses_what_it_does_not_know(model: Model) -> None:
    with pytest.raises(turret.TurretError, match="no item 'x'"):
        model.similar("x")
    with pytest.raises(turret.TurretError, match="k = -1"):
        model.similar(model.bundle.vocabulary.id(0), k=-1)
    for wrong, error, message in (
        ({"filter": {"colour": "red"}}, turret.TurretError, "colour"),
        ({"filter": {3: "red"}}, turret.TurretError, "keys are texts"),
        ({"filter": {"genres": {3: "red"}}}, turret.TurretError, "no operator 3"),
        ({"k": 0}, turret.TurretError, "at least 1"),
        ({"k": 2.5}, turret.TurretError, "k can't be 2.5: give a whole number"),
        ({"history": "1"}, turret.TurretError, "history can't be '1': give a list"),
        ({"exclude": "1"}, turret.TurretError, "exclude can't be '1': give a list"),
        ({"history": [[1]]}, turret.TurretError, r"history has \[1\], which is no id"),
        ({"history": [{"item": [7]}]}, turret.TurretError, "which is no id"),
        ({"history": np.ones((2, 2))}, turret.TurretError, "which is no id"),
        ({"history": [True]}, turret.TurretError, "history has True, which is no id"),
        ({"exclude": [{"item": 7}]}, turret.TurretError, "exclude has .* which is no id"),
        ({"history": [{"item": 7, "kind": ["view"]}]}, turret.TurretError, "kind = .*: give a text"),
        ({"exclude": [10**5_000]}, turret.TurretError, "exclude has .* which is no id"),
        ({"history": [{"item": 7, "time": "1" * 5_000}]}, turret.TurretError, "time = "),
        ({"history": [{"item": 7, "time": 10**5_000}]}, turret.TurretError, "time = "),
        ({"features": {"contry": "Poland"}}, turret.TurretError, r"features\.contry = 'Poland': this model"),
    ):
        given: dict[str, Any] = {"history": [], **wrong}
        with pytest.raises(error, match=message):
            model.recommend(**given)
    with pytest.raises(turret.TurretError, match="nested too deeply"):
        as_deep_as_python(0)
    with pytest.raises(turret.TurretError, match="bundle can't be 'bundles': give one of the class Bundle"):
        Model("bundles")  # type: ignore[arg-type]
    ids = model.bundle.vocabulary.ids(range(2))
    assert len(model.recommend(ids, exclude_seen=np.bool_(True), k=np.int64(3))) == 3  # type: ignore[arg-type]
    for item in (10**5_000, [1]):
        with pytest.raises(turret.TurretError):
            model.similar(item)  # type: ignore[arg-type]


def test_evaluation_of_vectors_is_that_of_a_slow_ranking() -> None:
    """Recall, hits and reciprocal ranks by a full sort, seen items left out, ties by row."""
    random = np.random.default_rng(1)
    users = random.integers(-2, 3, size=(40, 4)).astype(np.float32)
    items = random.integers(-2, 3, size=(30, 4)).astype(np.float32)
    targets = [random.choice(30, size=3, replace=False).tolist() for _ in range(40)]
    seen = [[row for row in random.choice(30, size=5) if row not in wanted] for wanted in targets]
    report = turret.evaluate(users, items, targets, seen=seen, k=[5])
    expected: dict[str, list[float]] = {"recall@5": [], "mrr@5": [], "hr@5": []}
    for user, wanted, used in zip(users, targets, seen, strict=True):
        ranked = ranking([float(item @ user) for item in items], set(used))
        for name, values in expected.items():
            values.append(metric(name, ranked, set(wanted)))
    sets = [set(rows) for rows in targets]
    given: Any = {"seen": [iter(rows) for rows in seen], "k": torch.tensor([5])}
    assert turret.evaluate(users, items, sets, **given) == report  # type: ignore[arg-type]
    arrays = np.array([[row] * 5 for row in range(30)] * 2)[:40]
    assert turret.evaluate(users, items, targets, seen=arrays, k=[5]) != report  # type: ignore[arg-type]
    for name, values in expected.items():
        of_users = report[name]
        assert isinstance(of_users, dict)
        assert of_users["mean"] == pytest.approx(np.mean(values))
        assert of_users["low"] <= of_users["mean"] <= of_users["high"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": ()}, "give whole numbers of at least 1"),
        ({"k": (10, 0)}, "give whole numbers of at least 1"),
        ({"k": 10}, "k can't be 10: give a list of whole numbers"),
        ({"k": ["10"]}, "give a list of whole numbers"),
        ({"k": [10**30]}, "give whole numbers"),
        ({"targets": 3}, "targets can't be 3: give a list"),
        ({"targets": [None] * 3}, "needs rows of items"),
        ({"seen": ["01"] * 3}, "needs rows of items"),
        ({"targets": [[True]] * 3}, "needs rows of items"),
        ({"items": [[10**400]] * 3}, "items has to hold numbers"),
        ({"items": [["1.5"]] * 3}, "items has to hold numbers"),
        ({"items": torch.ones(3, 3, requires_grad=True)}, "detach"),
        ({"items": np.ones((3, 2))}, "don't fit"),
        ({"items": np.eye(3) * np.nan}, "finite"),
        ({"items": np.eye(3) * 1e39}, "finite in float32"),
        ({"users": np.eye(3) * 1e20, "items": np.eye(3) * 1e20}, r"users\[0\] has scores beyond float32"),
        ({"users": np.eye(3) * -1e20, "items": np.eye(3) * 1e20}, r"users\[0\] has scores .* divide users"),
        ({"targets": [[0]]}, "1 lists for 3 users"),
        ({"targets": [[0], [], [1]]}, "is empty"),
        ({"targets": [[0], [3], [1]]}, "whole numbers from 0 to 2"),
        ({"targets": [["i0"], ["i1"], ["i2"]]}, "whole numbers from 0 to 2"),
        ({"targets": pl.DataFrame({"a": [1] * 3})}, "1 lists for 3 users"),
        ({"seen": [{b"a"}] * 3}, "whole numbers from 0 to 2"),
        ({"items": [["a", "b"]]}, "items has to hold numbers"),
        ({"items": np.ones((3, 3, 3))}, "items has the shape"),
    ],
)
def test_evaluation_refuses_what_can_not_be_ranked(wrong: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"users": np.eye(3), "items": np.eye(3), "targets": [[0]] * 3}
    with pytest.raises(turret.TurretError, match=message):
        turret.evaluate(**given | wrong)


def test_an_index_is_chosen_for_vectors_of_any_model() -> None:
    random = np.random.default_rng(2)
    vectors = random.normal(size=(500, 8)).astype(np.float32)
    index = turret.choose_index(vectors, vectors[:50])
    rows, products = index.search(vectors[:3], k=4)
    expected = np.argsort(-(vectors[:3] @ vectors.T), axis=1)[:, :4]
    np.testing.assert_array_equal(rows, expected)
    assert (index.kind, index.recall, products.shape) == ("flat", 1.0, (3, 4))
    assert index.reasons
    allowed = np.arange(500) >= 400
    assert index.search(vectors[:1], 4, allowed)[0].min() >= 400
    np.testing.assert_array_equal(index.search(vectors[0], 4)[0], rows[:1])
    with pytest.raises(turret.TurretError, match="don't fit"):
        turret.choose_index(vectors, vectors[:, :2])
    for queries, k in ((vectors[:, :2], 4), (vectors, 0)):
        with pytest.raises(turret.TurretError, match="don't fit"):
            index.search(queries, k)
    with pytest.raises(turret.TurretError, match=r"allowed has the shape \(3,\) of bool; give \[500\]"):
        index.search(vectors, 4, np.ones(3, np.bool_))
    assert index.search(vectors[:1], np.int64(4), allowed.tolist())[0].min() >= 400  # type: ignore[arg-type]
    for wrong in (np.arange(500), ["yes"] * 500, [[True], [True, False]]):
        with pytest.raises(turret.TurretError, match="allowed has"):
            index.search(vectors, 4, wrong)
    for huge in (vectors[:50] * 1e19, np.full(8, 3e38)):
        with pytest.raises(turret.TurretError, match="divide vectors and queries by a constant"):
            index.search(huge, 5)
        with pytest.raises(turret.TurretError, match="divide vectors and queries by a constant"):
            turret.choose_index(huge, vectors)
    with pytest.raises(turret.TurretError, match=r"recall can't be 10000.*: give a number"):
        turret.choose_index(vectors, vectors, recall=10**400)
    with pytest.raises(turret.TurretError, match=r"^--kind tree: "):
        turret.choose_index(vectors, vectors[:50], kind="tree")


@pytest.mark.parametrize("kind", ["flat", "ivf_pq", "ivf", "hnsw"])
@pytest.mark.parametrize("count", [1, 12, 16])
def test_a_named_kind_of_index_is_built_or_refused_for_few_items(kind: str, count: int) -> None:
    """A dozen items are too few for the centres of its codes, and for the recall of ten."""
    vectors = np.random.default_rng(3).normal(size=(count, 4)).astype(np.float32)
    if kind != "flat" and count < 16:
        with pytest.raises(
            turret.TurretError, match=f"--kind {kind} needs at least 16 items, and has {count}"
        ):
            turret.choose_index(vectors, vectors, kind=kind, recall=0.5)
    else:
        rows, _ = turret.choose_index(vectors, vectors, kind=kind, recall=0.5).search(vectors, count + 5)
        assert rows.shape == (count, count)


BARE = """
import os, sys
before = set(sys.modules), dict(os.environ)
import turret
loaded = {name.partition(".")[0] for name in set(sys.modules) - before[0]} - sys.stdlib_module_names
print(*loaded, dict(os.environ) == before[1])

from turret.data.extras import EXTRA_OF

class Missing:
    def find_spec(self, name, path=None, target=None):
        if EXTRA_OF.get(name.partition(".")[0], "bundle") != "bundle":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
try:
    turret.train
except turret.MissingExtraError as error:
    assert isinstance(error, ImportError)
    print(error)
print(len(turret.load(sys.argv[1]).recommend([], k=4)))
"""


@pytest.mark.process
def test_importing_loads_nothing_and_a_model_needs_the_smallest_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(trained_shop().bundles)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded, message, count = done.stdout.splitlines()
    assert loaded == "turret True"
    assert "[train]'" in message
    assert count == "4"


def test_every_public_name_is_there() -> None:
    assert all(getattr(turret, name) for name in turret.__all__)
    assert set(turret.__all__) <= set(dir(turret))
    with pytest.raises(AttributeError, match="nothing"):
        _ = turret.nothing


# ---- Tables in memory


class ArrowTable:
    """A table of which only the Arrow PyCapsule interface is known."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "make", [ArrowTable, pl.DataFrame.to_pandas, pl.DataFrame.to_arrow], ids=["arrow", "pandas", "pyarrow"]
)
def test_a_table_of_any_library_is_prepared_and_appended_as_files_are(
    make: Callable[[pl.DataFrame], Any], tmp_path: Path
) -> None:
    if make is not ArrowTable:
        require("pandas")
    EVENTS.write_parquet(tmp_path / "events.parquet")
    ITEMS.write_parquet(tmp_path / "items.parquet")
    files = turret.prepare(tmp_path / "events.parquet", tmp_path / "files", items=tmp_path / "items.parquet")
    first, second = EVENTS[:60], EVENTS[50:]
    tables = turret.prepare(make(first), tmp_path / "tables", items=make(ITEMS))
    assert tables.manifest.counts.events == 60
    tables = turret.append(make(second), tmp_path / "tables", items=make(ITEMS))
    assert (tables.fingerprint, tables.fields) == (files.fingerprint, files.fields)
    assert tables.item_features.features == files.item_features.features


def test_a_table_that_its_library_can_not_export_names_the_extra(tmp_path: Path) -> None:
    """Pandas does it by PyArrow, and raises an ImportError without a name."""

    class Unexportable(ArrowTable):
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            raise ImportError("Missing optional dependency 'pyarrow'.")

    with pytest.raises(turret.MissingExtraError, match=r"events can't be .* run: pip install .*\[pandas\]'"):
        turret.prepare(Unexportable(EVENTS), tmp_path / "prepared")


def test_a_table_that_is_no_file_is_refused(tmp_path: Path) -> None:
    """An empty record is nothing in Parquet."""
    table = EVENTS.with_columns(pl.Series("record", [{}] * 84, dtype=pl.Struct([])))
    with pytest.raises(turret.TurretError, match=r"^events can't be read from this DataFrame: .+; give each"):
        turret.prepare(table, tmp_path / "prepared")


def test_a_store_is_filled_from_a_table_prepared_data_its_folder_or_a_file(tmp_path: Path) -> None:
    renamed = EVENTS.rename({"user_id": "customer", "item_id": "sku"})
    renamed.write_csv(tmp_path / "log.csv")
    data = turret.prepare(EVENTS, tmp_path / "prepared")
    address = f"sqlite:///{tmp_path}/history.sqlite"
    report = turret.load_histories(ArrowTable(EVENTS), address)
    assert (report.stored, report.users) == (84, 7)
    expected = EVENTS.filter(user_id="u3").select("item_id", 1000 * pl.col("timestamp")).rows()
    assert [(event.item, event.time) for event in stored(address, "u3")] == expected
    assert turret.load_histories(data, address).stored == 0
    assert turret.load_histories(tmp_path / "prepared", address).stored == 0
    assert turret.load_histories(tmp_path / "log.csv", address, user="customer", item="sku").stored == 0


def test_a_store_is_filled_where_an_event_loop_runs(tmp_path: Path) -> None:
    """As in a notebook."""
    address = f"sqlite:///{tmp_path}/history.sqlite"

    async def cell() -> int:
        return turret.load_histories(EVENTS, address).stored

    assert asyncio.run(cell()) == 84


class Unexportable:
    """A table whose library refuses its values."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise OverflowError("too large")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: turret.prepare(EVENTS.rename({"item_id": "thing"}), path / "new"), "column"),
        (lambda path: turret.prepare(EVENTS, path / "new", settings={"colums": 3}), "no setting 'colums'"),
        (lambda path: turret.prepare(EVENTS, "s3://shop/x"), "folder = 's3://shop/x' is in an object store"),
        (lambda path: turret.append(EVENTS, path / "none"), "is not prepared data"),
        (lambda path: turret.train(path, path / "run"), "is not prepared data"),
        (lambda path: turret.open_run(path), "there is no run here"),
        (lambda path: turret.load(path), "there is no bundle"),
        (lambda path: turret.append([1], path), "events can't be read from a list"),  # type: ignore[arg-type]
        (lambda path: turret.train(EVENTS, path / "run"), "data can't be .*: give one of the class Prep"),  # type: ignore[arg-type]
        (lambda path: turret.train("x" * 5_000, path / "run"), "File name too long; check the path"),
        (lambda path: turret.train(path, "s3://a/b"), "folder = 's3://a/b' is in an object store"),
        (lambda path: turret.load("x" * 5_000), r"x\.\.\.: File name too long; check the path"),
        (lambda path: turret.load("a\0b"), "bundle can't be .*: give a path"),
        (lambda path: turret.open_run(ROOT / "README.md"), r"README\.md/run\.json: Not a directory"),
        (lambda path: turret.prepare(EVENTS.write_csv(), path / "new"), "File name too long"),
        (lambda path: turret.prepare(EVENTS, "\ud800"), "folder can't be .*: give a path"),
        (lambda path: turret.append("\ud800", path), "events can't be .*: give a path"),
        (lambda path: PreparedData.open(path / ("x" * 300)), "File name too long"),
        (lambda path: PreparedData.open(None), "folder can't be None: give a path"),  # type: ignore[arg-type]
        (
            lambda path: turret.prepare(Unexportable(), path / "new"),
            "this Unexportable: too large; give",
        ),
        (lambda path: turret.load_histories(EVENTS, "memory://"), "--store"),
        (lambda path: turret.load_histories(None, "memory://"), "events can't be read from a NoneType"),  # type: ignore[arg-type]
        (lambda path: turret.load_histories(path / "none.csv", "redis:///x"), "none.csv"),
        (lambda path: turret.load_histories(EVENTS, "ftp://x"), "sqlite:///"),
        (lambda path: turret.load_histories(EVENTS.drop("item_id"), "redis:///x"), "--item"),
    ],
)
def test_errors_say_what_would_work(call: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(turret.TurretError, match=message):
        call(tmp_path)
    assert not list(tmp_path.iterdir())


def test_items_that_were_a_table_have_to_be_given_again(tmp_path: Path) -> None:
    """Their file was temporary."""
    turret.prepare(EVENTS, tmp_path / "prepared", items=ITEMS)
    with pytest.raises(turret.TurretError, match="--items"):
        turret.append(EVENTS, tmp_path / "prepared")
