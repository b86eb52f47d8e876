"""The locks of the images: complete, with hashes, and with the versions that were tested."""

import re
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.test_deploy import installed_with, listed

ROOT = Path(__file__).parent.parent.parent
LOCKS = ROOT / "deploy" / "locks"


def versions(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


TESTED = versions((ROOT / "constraints.txt").read_text("utf-8"))


@pytest.mark.parametrize("path", sorted(LOCKS.glob("*.txt")), ids=lambda path: path.stem)
def test_every_package_of_a_lock_has_the_hash_of_a_file(path: Path) -> None:
    text = "\n".join(line for line in path.read_text("utf-8").splitlines() if not line.startswith("#"))
    entries = re.split(r"\n(?=\w)", text)
    assert len(versions(text)) == len(entries)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry) for entry in entries)


@pytest.mark.parametrize("path", sorted(LOCKS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_lock_has_the_versions_that_were_tested(path: Path) -> None:
    """A change of constraints.txt needs `make lock`; +cpu is a build of the same version."""
    locked = {name: version.split("+")[0] for name, version in versions(path.read_text("utf-8")).items()}
    both = locked.keys() & TESTED.keys()
    assert {name: locked[name] for name in both} == {name: TESTED[name] for name in both}
    assert both


@pytest.mark.parametrize(
    ("extras", "names"), [(["serve"], ["serve"]), (["train", "history"], ["train", "torch-cpu"])]
)
def test_the_locks_of_an_image_have_all_that_it_needs(extras: list[str], names: list[str]) -> None:
    locked = {name for one in names for name in versions((LOCKS / f"{one}.txt").read_text("utf-8"))}
    # Packages that only PyPI's torch, a build with CUDA, needs have another lock.
    cuda = set(versions((LOCKS / "torch-cuda.txt").read_text("utf-8"))) - {"torch"}
    assert {canonicalize_name(name) for name in installed_with(listed(*extras))} - cuda <= locked


def test_the_serving_lock_has_no_package_of_training() -> None:
    assert (
        not {"torch", "polars", "onnx", "pytest"} & versions((LOCKS / "serve.txt").read_text("utf-8")).keys()
    )
