"""deploy/restore refuses what it can't bring back; `make test-compose` brings back a real backup."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.process

# A stand-in for the container engine, of the profile without a Redis: it notes what changes something.
DOCKER = r"""#!/usr/bin/env bash
case "$*" in
  *" config --services") echo service ;;
  *" empty") exit 3 ;;
  *) echo "${*: -1}" >>"$LOG"; cat >/dev/null ;;
esac
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A backup."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("state.tar", "bundles.tar"):
        (folder / name).write_text("tar")
    digest = hashlib.sha256(b"tar").hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  state.tar\n{digest}  bundles.tar\n")
    return folder


def restored(folder: Path, *options: str) -> tuple[int, str, list[str]]:
    """Restore: the exit status, the complaints, and what was changed."""
    docker, log = folder.parent / "docker", folder.parent / "log"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    environment = {"PATH": f"{docker.parent}:{os.environ['PATH']}", "LOG": str(log)}
    command = [str(ROOT / "deploy" / "restore"), *options, str(folder)]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stderr, log.read_text().splitlines() if log.exists() else []


@pytest.mark.fault(74)
def test_a_damaged_backup_is_refused_before_anything_is_touched(copy: Path) -> None:
    sums = copy / "SHA256SUMS"
    for path, content, words in (
        (copy / "bundles.tar", "tas", "is damaged: bundles.tar differs from its checksum"),
        (copy / "bundles.tar", None, "lacks bundles.tar"),
        (sums, sums.read_text().splitlines()[0] + "\n", "doesn't name bundles.tar"),
        (sums, None, "is not a complete backup: it has no SHA256SUMS"),
    ):
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        status, said, changed = restored(copy, "--replace")
        assert (status, changed) == (1, [])
        assert words in said


def test_a_restore_into_volumes_that_hold_something_needs_a_word(copy: Path) -> None:
    status, said, changed = restored(copy)
    assert (status, changed) == (1, [])
    assert "the volumes var and bundles are not empty. Nothing was changed" in said
    assert restored(copy, "--replace") == (0, "", ["service", "clear", "unpack", "unpack", "-d"])
