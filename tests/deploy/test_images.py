"""The images and their locks, checked without a container engine."""

import re
import tomllib
from importlib.metadata import requires
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.command_line import check_call
from tests.support.places import ROOT

LOCKS = ROOT / "deploy" / "locks"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TRAINING_ONLY = {"torch", "polars", "onnx", "onnxscript", "tensorboard", "safetensors", "optuna"}
EXTRAS = {"serve": ["serve"], "train": ["train", "history"]}
TARGETS = pytest.mark.parametrize("target", EXTRAS)
EVERY_LOCK = pytest.mark.parametrize("name", sorted(path.stem for path in LOCKS.glob("*.txt")))


def stages() -> dict[str, list[str]]:
    """The instructions of each stage of the Dockerfile, after those of its base stages."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if begins := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            here = found[begins[2]] = [*found.get(begins[1], [])]
        elif line and not line.startswith("#"):
            here.append(line)
    return found


STAGES = stages()


def instructions(target: str, name: str) -> list[str]:
    return [line for line in STAGES[target] if line.startswith(f"{name} ")]


def listed(target: str) -> list[Requirement]:
    """The requirements of an image: those of its extras, and of the extras that these name."""
    found = [Requirement(line) for line in PROJECT["dependencies"]]
    waiting = list(EXTRAS[target])
    while waiting:
        for needed in map(Requirement, PROJECT["optional-dependencies"][waiting.pop()]):
            if needed.name == "turret":
                waiting += needed.extras
            else:
                found.append(needed)
    return found


def installed_with(wanted: list[Requirement]) -> set[str]:
    """The packages that pip installs for some requirements, by the metadata of the installed ones."""
    found: set[tuple[str, str]] = set()
    waiting = [(one.name, extra) for one in wanted for extra in ("", *one.extras)]
    while waiting:
        name, extra = waiting.pop()
        if (canonicalize_name(name), extra) in found:
            continue
        found.add((canonicalize_name(name), extra))
        for needed in map(Requirement, requires(name) or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(needed.name, inner) for inner in ("", *needed.extras)]
    return {name for name, _ in found}


def locked(text: str) -> dict[str, str]:
    """The versions of a lock; +cpu is a build of the same version."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;+]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_the_serving_image_gets_nothing_of_training_and_the_other_nothing_that_serves() -> None:
    serving, training = (installed_with(listed(target)) for target in EXTRAS)
    assert {"fastapi", "uvicorn", "onnxruntime", "uvloop"} <= serving
    assert not serving & TRAINING_ONLY
    assert training >= TRAINING_ONLY
    assert not training & {"fastapi", "uvicorn", "pytest"}
    serving_lock = (LOCKS / "serve.txt").read_text("utf-8")
    assert not locked(serving_lock).keys() & TRAINING_ONLY


@TARGETS
def test_an_image_installs_its_own_lock_and_then_the_code_alone(target: str) -> None:
    *locks, code = [line for line in STAGES[target] if "pip install" in line]
    assert any(f"/{target}.txt" in line for line in locks)
    assert all("--no-deps --require-hashes" in line for line in locks)
    assert "--no-deps /tmp/wheel/*.whl" in code
    *copied, wheel = instructions(target, "COPY")
    assert wheel == "COPY --from=built /wheel /tmp/wheel"
    assert all("deploy/locks/" in line for line in copied)


@TARGETS
def test_an_image_runs_turret_as_a_user_who_is_not_root(target: str) -> None:
    """The same one in both, whom the folders of the volumes belong to."""
    assert instructions(target, "USER") == ["USER 1000:1000"]
    (made,) = instructions("base", "RUN")
    assert made in STAGES[target]
    assert "useradd --uid 1000" in made
    assert "chown -R turret: /app/var /app/work" in made
    assert 'ENTRYPOINT ["turret"]' in STAGES[target]
    (command,) = instructions(target, "CMD")
    words = yaml.safe_load(command.removeprefix("CMD"))
    if words != ["--help"]:
        check_call(words)
    # Last, as the version and the revision differ with each commit.
    assert STAGES[target][-1].startswith("LABEL ")
    assert '.version="$VERSION"' in STAGES[target][-1]
    assert '.revision="$REVISION"' in STAGES[target][-1]


def test_the_images_are_made_of_every_package_and_of_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    links = {path.name for path in (ROOT / "turret").iterdir() if path.is_symlink()}
    files = {"pyproject.toml", "README.md", "LICENSE", "deploy/locks"}
    assert "*" in lines
    assert let_in == links | files | {"turret"}


@EVERY_LOCK
def test_every_package_of_a_lock_has_the_hash_of_a_file_and_the_version_that_was_tested(name: str) -> None:
    """A change of constraints.txt needs `make lock`."""
    lines = (LOCKS / f"{name}.txt").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    entries = re.split(r"\n(?=\w)", text)
    versions, tested = locked(text), locked((ROOT / "constraints.txt").read_text("utf-8"))
    assert len(versions) == len(entries)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry) for entry in entries)
    both = versions.keys() & tested.keys()
    assert {one: versions[one] for one in both} == {one: tested[one] for one in both}
    assert both


@pytest.mark.parametrize(("target", "names"), [("serve", ["serve"]), ("train", ["train", "torch-cpu"])])
def test_the_locks_of_an_image_have_all_that_it_needs(target: str, names: list[str]) -> None:
    found = {one for name in names for one in locked((LOCKS / f"{name}.txt").read_text("utf-8"))}
    # Packages that only PyPI's torch, a build with CUDA, needs have another lock.
    cuda = locked((LOCKS / "torch-cuda.txt").read_text("utf-8")).keys() - {"torch"}
    assert installed_with(listed(target)) - cuda <= found
