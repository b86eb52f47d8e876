"""Runs the tests of a fault in a copy of the repository that has it."""

import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from tests.mutations.faults import ROOT, Fault

_COPIED = ("turret", "data", "tower", "training", "service", "tests", "benchmarks", "docs", "deploy")
_SECONDS = 240
# pytest's exit status when tests ran and some failed.
_FAILED = (1,)
# Tests that load the machine would fail without a fault.
_USUAL = "not nightly"


@dataclass(frozen=True)
class Outcome:
    """`is_caught`: some test failed; `is_error`: the tests could not be run."""

    fault: Fault
    is_caught: bool
    is_error: bool
    output: str


class FaultRunner:
    """Runs tests in copies of the repository, one below `folder` for each thread that calls it.

    A copy serves one fault after the other, so that numba compiles its functions only once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = threading.local()

    def run(self, fault: Fault) -> Outcome:
        """Put `fault` into the copy, run its tests until the first failure, and restore the file."""
        copy = self._copy()
        fault.check(copy)
        path, original = copy / fault.file, copy / ".original"
        # copy2 keeps the time of modification, by which numba tells whether its cache is valid.
        shutil.copy2(path, original)
        try:
            fault.apply(copy)
            return _test(fault, copy)
        finally:
            shutil.copy2(original, path)

    def _copy(self) -> Path:
        if not hasattr(self._own, "copy"):
            self._own.copy = Path(mkdtemp(dir=self._folder))
            _copy(self._own.copy)
        own: Path = self._own.copy
        return own


def run_without(fault: Fault) -> Outcome:
    """Run the tests of `fault` on the code as it is: they have to pass."""
    return _test(fault, ROOT)


def _copy(copy: Path) -> None:
    for name in _COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, copy)


def _test(fault: Fault, root: Path) -> Outcome:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header"]
    # The copy goes before an editable install of the repository. Two faults of one size within a second would
    # share their bytecode.
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*command, "-m", _USUAL, *fault.tests],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(fault, is_caught=True, is_error=False, output=f"no end within {_SECONDS} seconds")
    is_caught = done.returncode in _FAILED
    is_error = not is_caught and done.returncode != 0
    return Outcome(fault, is_caught, is_error, done.stdout[-2000:] + done.stderr[-2000:])
