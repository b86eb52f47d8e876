"""The Python API: every block of docs/python.md runs, and errors are those of Turret."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import turret
from tests.support.command_line import environment
from tests.support.places import ROOT, python_blocks
from tests.support.trained import trained_shop
from turret.model import Model
from turret.tower.retrieval import Retriever

PAGE = ROOT / "docs" / "python.md"
README = ROOT / "README.md"


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


def test_errors_are_turret_errors_that_say_what_would_work(raw: Path, tmp_path: Path) -> None:
    frame = pl.DataFrame({"buyer": ["a"], "thing": ["b"], "when": [1]})
    events, target = raw / "events.csv", tmp_path / "prepared"
    calls: dict[str, Callable[[], object]] = {
        "column": lambda: turret.prepare(frame, target),
        "events can't be read from a dict": lambda: turret.prepare({"user": ["a"]}, target),  # type: ignore[arg-type]
        "no setting 'colums'": lambda: turret.prepare(events, target, settings={"colums": 3}),
        "folder = 's3://shop/x' is in an object store": lambda: turret.prepare(events, "s3://shop/x"),
        "is not prepared data": lambda: turret.train(tmp_path, tmp_path / "run"),
        "there is no run here": lambda: turret.open_run(tmp_path),
        "there is no bundle": lambda: turret.load(tmp_path),
    }
    for sentence, call in calls.items():
        with pytest.raises(turret.TurretError, match=sentence):
            call()
    assert not list(tmp_path.iterdir())


def test_a_run_is_not_resumed_with_other_settings() -> None:
    run = trained_shop().run()
    sentence = r"^--resume: .* was begun with other settings, .* leave out --experiment and --set"
    with pytest.raises(turret.TurretError, match=sentence):
        turret.train(run.data_folder, run.folder, resume=True, settings={"training.epochs": 99})


def test_a_model_refuses_what_it_does_not_know(model: Model) -> None:
    item = model.bundle.vocabulary.id(0)
    with pytest.raises(turret.TurretError, match="colour"):
        model.recommend([item], filter={"colour": "red"})
    with pytest.raises(turret.TurretError, match="no item 'x'"):
        model.similar("x")
    with pytest.raises(ValueError, match="at least 1"):
        model.recommend([item], k=0)
    with pytest.raises(ValueError, match=r"history = '00001': it must be a list of ids, such as \['00001'\]"):
        model.recommend("00001")
    with pytest.raises(ValueError, match=r"exclude = '00001': it must be a list"):
        model.recommend([item], exclude="00001")


def test_evaluation_of_vectors_is_that_of_a_slow_ranking() -> None:
    """Recall, hits and reciprocal ranks by a full sort, seen items left out, ties by row."""
    random = np.random.default_rng(1)
    users = random.integers(-2, 3, size=(40, 4)).astype(np.float32)
    items = random.integers(-2, 3, size=(30, 4)).astype(np.float32)
    targets = [random.choice(30, size=3, replace=False).tolist() for _ in range(40)]
    seen = [[row for row in random.choice(30, size=5) if row not in wanted] for wanted in targets]
    report = turret.evaluate(users, items, targets, seen=seen, k=[5])
    recall, rank = [], []
    for user, wanted, used in zip(users, targets, seen, strict=True):
        allowed = [row for row in range(30) if row not in used]
        top = sorted(allowed, key=lambda row: (-float(items[row] @ user), row))[:5]
        hits = [position for position, row in enumerate(top, 1) if row in wanted]
        recall.append(len(hits) / 3)
        rank.append(1 / hits[0] if hits else 0.0)
    assert mean(report["recall@5"]) == pytest.approx(np.mean(recall))
    assert mean(report["mrr@5"]) == pytest.approx(np.mean(rank))
    assert mean(report["hr@5"]) == pytest.approx(np.mean(np.array(recall) > 0))


def mean(metric: dict[str, float] | float) -> float:
    assert isinstance(metric, dict)
    assert metric["low"] <= metric["mean"] <= metric["high"]
    return metric["mean"]


@pytest.mark.parametrize("given", [{"k": ()}, {"k": (10, 0)}, {"bootstrap": 0}])
def test_evaluation_refuses_no_ranks_and_no_resamples(given: dict[str, Any]) -> None:
    with pytest.raises(turret.TurretError, match="give whole numbers of at least 1"):
        turret.evaluate(np.eye(3), np.eye(3), [[0]] * 3, **given)


def test_evaluation_refuses_what_can_not_be_ranked() -> None:
    vectors = np.eye(3, dtype=np.float32)
    for wrong, message in [
        ((vectors, np.ones((3, 2)), [[0]] * 3), "don't fit"),
        ((vectors, vectors * np.nan, [[0]] * 3), "finite"),
        ((vectors, vectors.astype(float) * 1e39, [[0]] * 3), "finite in float32"),
        ((vectors * 1e20, vectors * 1e20, [[0]] * 3), r"users\[0\] has scores beyond float32"),
        ((vectors[2:] * [1, 1, -1e20], vectors * 1e20, [[0]]), r"users\[0\] has scores .* divide users or"),
        ((vectors, vectors, [[0]]), "1 lists for 3 users"),
        ((vectors, vectors, [[0], [], [1]]), "is empty"),
        ((vectors, vectors, [[0], [3], [1]]), "outside of 0 to 2"),
    ]:
        with pytest.raises(turret.TurretError, match=message):
            turret.evaluate(*wrong)


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
    with pytest.raises(turret.TurretError, match="don't fit"):
        turret.choose_index(vectors, vectors[:, :2])
    with pytest.raises(turret.TurretError, match=r"^--kind tree: "):
        turret.choose_index(vectors, vectors[:50], kind="tree")


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
