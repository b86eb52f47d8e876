"""The images, their locks and their bill of materials, checked without a container engine."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires, version
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy import sbom
from tests.support.places import ROOT
from tests.test_imports import MODULES, package_of, reached

LOCKS = ROOT / "deploy" / "locks"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TRAINING_ONLY = {"torch", "polars", "onnx", "onnxscript", "tensorboard", "safetensors", "optuna"}
EXTRAS = {"serve": ["serve", "answers"], "train": ["train", "history", "answers"]}
# Drivers of object stores have dependencies of their own: an image that needs one installs it.
NOT_IN_THE_IMAGE = {"fsspec"}


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


def test_the_images_run_as_a_user_who_is_not_root() -> None:
    """The same one in both, whom the folders of the volumes belong to."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert text.count("USER 1000:1000") == text.count("\nCMD [") == len(EXTRAS)
    assert "useradd --uid 1000" in text
    assert "chown -R turret: /app/var /app/work" in text


def test_the_serving_image_gets_nothing_of_training_and_the_other_nothing_that_serves() -> None:
    serving, training = (installed_with(listed(target)) for target in EXTRAS)
    assert {"fastapi", "uvicorn", "onnxruntime", "uvloop"} <= serving
    assert training >= TRAINING_ONLY
    assert not training & {"fastapi", "uvicorn", "pytest"}
    assert not (serving | locked((LOCKS / "serve.txt").read_text("utf-8")).keys()) & TRAINING_ONLY


def test_the_serving_image_has_every_package_that_a_module_of_the_service_imports() -> None:
    """Inside functions too: a documented setting, such as TURRET_ANSWER_LOG, must not refuse to start."""
    service = [module for module in MODULES if package_of(module) == "service"]
    imported = set().union(*map(reached, service)) - sys.stdlib_module_names
    locks, packages = locked((LOCKS / "serve.txt").read_text("utf-8")), packages_distributions()
    missing = {name for name in imported if not locks.keys() & map(canonicalize_name, packages[name])}
    assert missing == NOT_IN_THE_IMAGE
    assert "pyarrow" in imported


@pytest.mark.parametrize("name", sorted(path.stem for path in LOCKS.glob("*.txt")))
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


def test_the_bill_of_materials_names_every_package_with_its_version_and_follows_the_schema_of_cyclonedx(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = subprocess.CompletedProcess([], 0, "libc6\t2.36-9+deb12u9\tamd64\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: listed)
    assert sbom.main("turret:serve", "sha256:0") == 0
    written = capsys.readouterr().out
    components = json.loads(written)["components"]
    by_name = {one["name"].lower(): one for one in components}
    assert by_name["numpy"]["version"] == version("numpy")
    assert by_name["pydantic"]["purl"] == f"pkg:pypi/pydantic@{version('pydantic')}"
    assert by_name["libc6"]["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64"
    references = [one["bom-ref"] for one in components]
    assert len(references) == len(set(references))
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(written) is None
