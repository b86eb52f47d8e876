"""Linters find nothing in the Dockerfile and in the shell scripts."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.tools import require

pytestmark = pytest.mark.process
SCRIPTS = ("backup", "restore", "roll", "sbom", "setup", "*.sh", "production/**/*.sh")


def check(tool: str, *words: str) -> None:
    require(tool)
    command = [str(Path(sys.executable).with_name(tool)), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    """Those of containers read a file that is only there, /deploy/secret.sh (SC1091)."""
    paths = [str(path) for pattern in SCRIPTS for path in ROOT.glob(f"deploy/{pattern}")]
    check("shellcheck", "--external-sources", "--exclude", "SC1091", *paths)


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    """The wheel of the code is made here, so its version is that of the code (DL3013)."""
    check("hadolint", "--ignore", "DL3013", str(ROOT / "Dockerfile"))
