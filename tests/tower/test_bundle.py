import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.features import Feature
from data.manifest import hash_file
from data.vocabulary import Vocabulary
from tower.bundle import Bundle, activate, load
from tower.contents import BundleContents
from tower.errors import BundleError
from tower.listing import versions
from tower.manifest import MANIFEST, REQUIRED_FILES, Scoring, read_manifest
from tower.pointer import current
from tower.publishing import publish

Make = Callable[..., BundleContents]

# Of the same shape in two models of one size; only the checksum tells them apart.
NOT_CROSS_CHECKED = {"model.safetensors", "popularity.npy", "catalogue.json"}


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and make the manifest agree: damage that no checksum sees."""
    for path in (folder / name, folder / MANIFEST):
        path.chmod(0o644)
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = hash_file(folder / name).model_dump()
    (folder / MANIFEST).write_text(json.dumps(manifest))


def change_manifest(folder: Path, **changes: Any) -> None:
    path = folder / MANIFEST
    path.chmod(0o644)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_is_published_is_whole_and_read_only(tmp_path: Path, make_contents: Make) -> None:
    folder = publish(tmp_path / "new" / "root", make_contents())
    assert {path.name for path in folder.iterdir()} == {*REQUIRED_FILES, MANIFEST}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o444}
    assert [path.name for path in sorted(folder.parent.iterdir())] == ["current", "v1"]


def test_what_is_opened_is_what_was_published(
    tmp_path: Path, make_contents: Make, user_features: tuple[Feature, ...]
) -> None:
    contents = make_contents(ids=["a", "b", "c", "d"], features=user_features)
    bundle = Bundle.open(publish(tmp_path, contents))
    assert np.array_equal(bundle.vectors, contents.item_vectors)
    assert np.array_equal(bundle.popularity, contents.popularity)
    assert bundle.vocabulary.ids(range(4)) == ["a", "b", "c", "d"]
    assert (bundle.fields, bundle.user_features) == (contents.fields, contents.user_features)
    assert bundle.manifest.metrics == {"recall@10": 0.5}
    assert (bundle.manifest.version, bundle.manifest.history_length) == ("v1", 5)


def test_a_bundle_holds_what_training_goes_on_from(
    tmp_path: Path, make_contents: Make, user_features: tuple[Feature, ...]
) -> None:
    """If it is given; the files are checked as all others are, and a service has no use for them."""
    contents = replace(make_contents(), experiment={"training": {"epochs": 3}}, item_features=user_features)
    folder = publish(tmp_path, contents)
    names = {path.name for path in folder.iterdir()}
    assert names == {*REQUIRED_FILES, MANIFEST, "experiment.json", "item_features.json"}
    assert json.loads((folder / "experiment.json").read_text()) == {"training": {"epochs": 3}}
    stored = json.loads((folder / "item_features.json").read_text())
    assert [Feature.model_validate(one) for one in stored] == list(user_features)
    (folder / "experiment.json").chmod(0o644)
    (folder / "experiment.json").write_text("{}")
    with pytest.raises(BundleError, match=r"experiment\.json is not the file that was published"):
        Bundle.open(folder)


def test_recall_is_measured_for_the_manifest(bundles: Path) -> None:
    manifest = read_manifest(bundles / "v1")
    assert [(one.k, one.selectivity, one.recall) for one in manifest.recall] == [(10, 1.0, 1.0)]


def test_a_bundle_without_signs_is_recorded_and_measured_so(tmp_path: Path, make_contents: Make) -> None:
    """It answers its recorded queries, finds all that is best, and says in its manifest how it is scored."""
    publish(tmp_path, make_contents(absolute=True))
    manifest = load(tmp_path, "v1").manifest
    assert manifest.scoring.absolute
    assert [(one.k, one.selectivity, one.recall) for one in manifest.recall] == [(10, 1.0, 1.0)]


def test_answers_by_another_scoring_stop_the_publication(tmp_path: Path, make_contents: Make) -> None:
    """A model that was trained without signs is not published as one with them, nor the other way."""
    absolute = make_contents(absolute=True)
    for scored, answered in ((absolute, make_contents()), (make_contents(), absolute)):
        with pytest.raises(BundleError, match="answered differently"):
            publish(tmp_path, replace(scored, expected=answered.expected))


def test_only_the_first_bundle_becomes_current_by_itself(tmp_path: Path, make_contents: Make) -> None:
    publish(tmp_path, make_contents("v1"))
    publish(tmp_path, make_contents("v2", seed=1))
    assert current(tmp_path) == "v1"


def test_an_existing_version_is_not_overwritten(bundles: Path, make_contents: Make) -> None:
    with pytest.raises(BundleError, match="choose another version"):
        publish(bundles, make_contents(seed=9))
    load(bundles, "v1")


@pytest.mark.parametrize("part", ["item_vectors", "scoring", "expected"])
def test_an_answer_that_is_not_trainings_stops_the_publication(
    tmp_path: Path, make_contents: Make, part: str
) -> None:
    contents = make_contents()
    changes: dict[str, Any] = {
        "item_vectors": np.roll(contents.item_vectors, 1, axis=0),
        "scoring": Scoring(kind="cosine", temperature=0.6),
        "expected": [(rows[::-1], scores) for rows, scores in contents.expected],
    }
    with pytest.raises(BundleError, match="recorded query 0"):
        publish(tmp_path, replace(contents, **{part: changes[part]}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "../v1"},
        {"recorded": [], "expected": []},
        {"expected": []},
        {"recorded": [{"history": [1]}] * 3},
        {"vocabulary": Vocabulary([100, 101])},
        {"fields": {"title": ["only one"]}},
        {"user_tower": b"nonsense"},
    ],
    ids=["version", "no queries", "no answers", "unknown items", "vocabulary", "fields", "tower"],
)
def test_contents_that_do_not_fit_leave_nothing_behind(
    tmp_path: Path, make_contents: Make, changes: dict[str, Any]
) -> None:
    with pytest.raises(BundleError):
        publish(tmp_path, replace(make_contents(), **changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(REQUIRED_FILES))
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_to_any_file_is_refused(bundles: Path, name: str, damage: str) -> None:
    path = bundles / "v1" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    if damage == "flip":
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    with pytest.raises(BundleError, match=name):
        Bundle.open(bundles / "v1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format_version", 2),
        ("item_count", 61),
        ("dimension", 9),
        ("files", {}),
        ("unknown", 1),
        ("version", None),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(bundles: Path, name: str, value: object) -> None:
    change_manifest(bundles / "v1", **{name: value})
    with pytest.raises(BundleError):
        Bundle.open(bundles / "v1")


@pytest.mark.parametrize("name", sorted(REQUIRED_FILES - NOT_CROSS_CHECKED))
def test_a_file_of_another_model_is_refused_even_with_a_right_checksum(
    bundles: Path, make_contents: Make, user_features: tuple[Feature, ...], name: str
) -> None:
    """The mix of tower, vectors, index and vocabulary that checksums over each file do not see."""
    other = make_contents("v2", ids=[*range(101, 160), 7], features=user_features, seed=5)
    publish(bundles, other)
    rewrite(bundles / "v1", name, (bundles / "v2" / name).read_bytes())
    with pytest.raises(BundleError):
        load(bundles, "v1")


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 3.0])
def test_vectors_that_can_not_be_ranked_by_are_refused(bundles: Path, value: float) -> None:
    path = bundles / "v1" / "item_vectors.npy"
    vectors = np.load(path)
    vectors[5] = value
    path.chmod(0o644)
    np.save(path, vectors)
    with pytest.raises(BundleError, match="row 5"):
        Bundle.open(bundles / "v1", verify=False)


def test_versions_are_listed_with_what_is_wrong_with_them(bundles: Path, make_contents: Make) -> None:
    publish(bundles, make_contents("v2", seed=1))
    (bundles / "broken").mkdir()
    (bundles / ".publishing-v3-abc").mkdir()
    (bundles / "admin.key").write_text("key")
    found = {one.version: one for one in versions(bundles)}
    assert set(found) == {"broken", "v1", "v2"}
    assert [name for name, one in found.items() if one.is_current] == ["v1"]
    assert "manifest.json" in (found["broken"].error or "")
    assert (found["v2"].item_count, found["v2"].metrics) == (60, {"recall@10": 0.5})


def test_listing_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="name a folder"):
        versions(tmp_path / "missing")


def test_activation_moves_the_pointer(bundles: Path, make_contents: Make) -> None:
    publish(bundles, make_contents("v2", seed=1))
    activate(bundles, "v2")
    assert current(bundles) == "v2"


def test_a_bundle_that_fails_its_recorded_queries_is_not_activated(
    bundles: Path, make_contents: Make
) -> None:
    publish(bundles, make_contents("v2", seed=1))
    rewrite(bundles / "v2", "golden.json", (bundles / "v1" / "golden.json").read_bytes())
    with pytest.raises(BundleError, match="different models"):
        activate(bundles, "v2")
    assert current(bundles) == "v1"


def test_an_unknown_version_is_answered_with_the_known_ones(bundles: Path) -> None:
    with pytest.raises(BundleError, match="there are: v1"):
        activate(bundles, "v9")


def test_a_renamed_bundle_is_refused(bundles: Path) -> None:
    (bundles / "v1").rename(bundles / "v7")
    with pytest.raises(BundleError, match="rename"):
        load(bundles, "v7")
