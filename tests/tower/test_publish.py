"""Publication of bundles, and new versions of them with another index."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import turret.cli
from tests.conftest import USER_FEATURES, contents
from tests.support.bundle_damage import change_manifest
from tests.support.item_towers import item_tower, with_item_tower
from turret.data.features.feature import Feature
from turret.data.vocabulary import Vocabulary
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load
from turret.tower.bundle.publish import BundleContents, publish, query_vectors, reindex
from turret.tower.commands import print_version
from turret.tower.errors import BundleError
from turret.tower.format.listing import bundle_folder, current
from turret.tower.format.manifest import DIGEST, MANIFEST, REQUIRED_FILES, read_manifest
from turret.tower.index.approximate import ApproximateIndex
from turret.tower.index.index import ExactIndex
from turret.tower.tuning.choice import IndexRequest
from turret.tower.tuning.search_params import _FACTORS

ITEMS = 3000


def test_what_is_published_is_whole_and_read_only(tmp_path: Path) -> None:
    """The first version becomes current by itself, and holds the model that a training goes on from."""
    folder = publish(tmp_path / "new" / "root", contents())
    assert {path.name for path in folder.iterdir()} == {*REQUIRED_FILES, MANIFEST, DIGEST}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o444}
    made = replace(contents("v2"), experiment={"training": {"epochs": 3}}, item_features=USER_FEATURES)
    second = publish(folder.parent, made)
    assert json.loads((second / "experiment.json").read_text()) == {"training": {"epochs": 3}}
    stored = json.loads((second / "item_features.json").read_text())
    assert [Feature.model_validate(one) for one in stored] == list(USER_FEATURES)
    assert current(folder.parent) == "v1"
    assert [path.name for path in sorted(folder.parent.iterdir())] == ["current", "v1", "v2"]


def other_answers(made: BundleContents) -> dict[str, Any]:
    queries = tuple(one.model_copy(update={"items": one.items[::-1]}) for one in made.golden.queries)
    return {"golden": made.golden.model_copy(update={"queries": queries})}


QUERIES = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
MISFITS: dict[str, tuple[Any, str]] = {
    "other answers": (other_answers, "recorded query 0: row"),
    "another item tower": (lambda made: {"item_tower": item_tower(8, turn=0.5)}, "recorded item 101"),
    "version": (lambda made: {"card": made.card.model_copy(update={"version": "../v1"})}, "can't name"),
    "vocabulary": (lambda made: {"vocabulary": Vocabulary([100, 101])}, "2 items"),
    "fields": (lambda made: {"fields": {"title": ["only one"]}}, "1 values for 60 items"),
    "narrow queries": (lambda made: {"query_vectors": QUERIES[:, :7]}, "shape"),
    "no queries": (lambda made: {"query_vectors": QUERIES[:0]}, "shape"),
    "queries of NaN": (lambda made: {"query_vectors": QUERIES * np.float32(np.nan)}, "not finite"),
}


@pytest.mark.parametrize(("changes", "words"), MISFITS.values(), ids=MISFITS)
def test_contents_that_do_not_fit_leave_nothing_behind(tmp_path: Path, changes: Any, words: str) -> None:
    """Nor do those whose answers are not training's."""
    made = with_item_tower(contents())
    with pytest.raises(BundleError, match=words):
        publish(tmp_path, replace(made, **changes(made)))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One bundle, v1, of 3,000 items, with 200 user vectors."""
    root = tmp_path_factory.mktemp("shop")
    vectors: NDArray[np.float64] = np.random.default_rng(5).standard_normal((200, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    made = replace(contents(ids=tuple(range(ITEMS))), query_vectors=vectors.astype(np.float32))
    folder = publish(root, made)
    assert np.array_equal(query_vectors(Bundle.open(folder)), made.query_vectors)
    return root


@pytest.mark.parametrize("kind", ["ivf", "ivf_pq", "hnsw"])
def test_a_new_version_has_the_index_that_was_asked_for(shop: Path, kind: str) -> None:
    """Beside the old one, which stays as it was and current; it passes every check that a service makes."""
    before = {path.name: path.read_bytes() for path in (shop / "v1").iterdir()}
    target = reindex(shop / "v1", IndexRequest(kind, 0.9))
    assert target == shop / f"v1-{kind}"
    assert current(shop) == "v1"
    assert {path.name: path.read_bytes() for path in (shop / "v1").iterdir()} == before
    bundle = load(shop, target.name)
    assert isinstance(bundle.index, ApproximateIndex)
    manifest = bundle.manifest
    assert (manifest.version, manifest.index.kind, manifest.index.is_exact) == (target.name, kind, False)
    measured = {(one.k, one.selectivity) for one in manifest.recall}
    assert measured == {(10, 1.0), (100, 1.0), (1000, 1.0), (10, 0.1), (100, 0.1), (10, 0.01)}
    assert min(one.recall for one in manifest.recall) >= 0.9
    assert manifest.index_choice is not None
    assert (manifest.index_choice.asked, manifest.index_choice.recall) == (kind, 0.9)
    assert manifest.fingerprints["reindexed"] == "v1"
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o444}
    assert all(path.stat().st_nlink == 1 for path in target.iterdir()), "damage of one would damage the other"


def test_a_bundle_can_be_reindexed_again_and_back(shop: Path) -> None:
    first = reindex(shop / "v1", IndexRequest("ivf", 0.9), "there")
    back = reindex(first, IndexRequest("flat"), "back")
    exported = read_manifest(shop / "v1").created
    assert [read_manifest(folder).exported for folder in (first, back)] == [exported, exported]
    assert isinstance(load(shop, "back").index, ExactIndex)
    old, new = (json.loads((folder / "golden.json").read_text()) for folder in (shop / "v1", back))
    assert [query["items"] for query in old["queries"]] == [query["items"] for query in new["queries"]]


def test_an_index_that_misses_the_recall_leaves_nothing(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_FACTORS, "ivf_pq", (1,))
    before = sorted(path.name for path in shop.iterdir())
    told = r"ivf_pq index finds 0\.\d+ of the true best .* was requested; nothing was published.*--recall"
    with pytest.raises(BundleError, match=told):
        reindex(shop / "v1", IndexRequest("ivf_pq", 0.999), "missing")
    assert sorted(path.name for path in shop.iterdir()) == before


def test_a_version_is_neither_overwritten_nor_put_elsewhere(shop: Path) -> None:
    for version, words in (("v1", "name another --version"), ("../v1", "can't name a version")):
        with pytest.raises(BundleError, match=words):
            reindex(shop / "v1", IndexRequest("flat"), version)


def test_the_command_makes_a_version_and_says_why_to_people_and_programs(bundles: Path) -> None:
    run = CliRunner().invoke(turret.cli.app, ["index", str(bundles), "--kind", "auto", "--version", "new"])
    assert run.exit_code == 0, run.output
    assert "60 items of 8 numbers" in run.stdout
    assert "Recall against exact search" in run.stdout
    assert "100 %" in run.stdout
    assert run.stdout.splitlines()[-1] == str(bundles / "new")
    load(bundles, "new")
    run = CliRunner().invoke(
        turret.cli.app, ["index", str(bundles / "v1"), "--kind", "ivf", "--recall", "0.5", "--json"]
    )
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    assert said["bundle"] == str(bundles / "v1-ivf")
    assert said["index"]["kind"] == "ivf"
    assert said["index_choice"]["recall"] == 0.5
    assert {one["k"] for one in said["recall"]} == {10}


def test_a_folder_stands_for_its_current_bundle(bundles: Path, tmp_path: Path) -> None:
    assert bundle_folder(bundles) == bundles / "v1"
    assert bundle_folder(bundles / "v1") == bundles / "v1"
    for other in (tmp_path / "nothing", tmp_path):
        with pytest.raises(BundleError, match="DIR/VERSION"):
            bundle_folder(other)


def test_a_recall_that_no_activation_accepts_is_said(
    bundles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = {"kind": "ivf", "lists": 1, "efforts": [{"k": 10, "candidates": 20}]}
    recall = [{"k": 10, "selectivity": 1.0, "recall": 0.91}]
    change_manifest(bundles / "v1", index=index, recall=recall)
    print_version(bundles / "v1", as_json=True)
    said = capsys.readouterr().err
    assert "refuses a recall of 0.9100, unless TURRET_RECALL_MINIMUM (0.95) is lower" in said
    assert "index again with --recall 0.95" in said
