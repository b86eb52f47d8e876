import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.bundle_damage import change_manifest, rewrite
from turret.data.features import Feature
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.bundle.golden import check_golden
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.format.manifest import REQUIRED_FILES

Make = Callable[..., BundleContents]

# Of the same shape in two models of one size; only the checksum tells them apart.
NOT_CROSS_CHECKED = {"model.safetensors", "popularity.npy", "catalogue.json", "catalogue.bin"}


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
        ("format_version", 3),
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


def test_a_bundle_that_fails_its_recorded_queries_is_not_loaded(bundles: Path, make_contents: Make) -> None:
    publish(bundles, make_contents("v2", seed=1))
    rewrite(bundles / "v2", "golden.json", (bundles / "v1" / "golden.json").read_bytes())
    with pytest.raises(BundleError, match="different models"):
        load(bundles, "v2")


def test_an_unknown_version_is_answered_with_the_known_ones(bundles: Path) -> None:
    with pytest.raises(BundleError, match="there are: v1"):
        load(bundles, "v9")


def test_a_renamed_bundle_is_refused(bundles: Path) -> None:
    (bundles / "v1").rename(bundles / "v7")
    with pytest.raises(BundleError, match="rename"):
        load(bundles, "v7")


LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from turret.tower.bundle.bundle import load
status = Path("/proc/self/status").read_text()
taken = int(status.split("VmSize:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (taken + 512_000_000,) * 2)
load(Path(sys.argv[1]), "v1")
"""


@pytest.mark.fault(52)
@pytest.mark.skipif(sys.platform != "linux", reason="the system tells and limits this otherwise")
def test_a_small_bundle_is_opened_where_little_memory_may_be_asked_for(bundles: Path) -> None:
    """Under `ulimit -v`: what is asked for counts, also where it is never used."""
    subprocess.run([sys.executable, "-c", LITTLE_MEMORY, bundles], check=True, timeout=60)


def test_a_file_written_to_during_the_recorded_queries_is_refused(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_and_touch(bundle: Bundle) -> None:
        check_golden(bundle)
        (bundle.folder / "popularity.npy").touch()

    monkeypatch.setattr("turret.tower.bundle.bundle.check_golden", check_and_touch)
    with pytest.raises(BundleError, match="files of version v1 changed since it was opened"):
        load(bundles, "v1")
