"""Linters find nothing in the Dockerfile and in the shell scripts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
# Linters of the environment, or of the machine.
SEARCHED = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
SHELLCHECK, HADOLINT = (shutil.which(name, path=SEARCHED) for name in ("shellcheck", "hadolint"))
SCRIPTS = ["backup", "demo.sh", "restore", "roll", "sbom", "setup", "volumes.sh"]


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name: str) -> None:
    command = [str(SHELLCHECK), "--external-sources", f"deploy/{name}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("path", sorted((DEPLOY / "production").rglob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_finds_nothing_in_what_containers_run(path: Path) -> None:
    """They read a file of the container, /deploy/secret.sh (SC1091)."""
    command = [str(SHELLCHECK), "--exclude", "SC1091", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    """The wheel of the code is made here, so its version is that of the code (DL3013)."""
    command = [str(HADOLINT), "--ignore", "DL3013", str(ROOT / "Dockerfile")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
