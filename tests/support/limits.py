"""Places where little is allowed: a small file system, small files, and no right beyond those of files."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.tools import missing, require

# In front of a command: root without capabilities is bound by the rights of files, as every other user is.
BOUND = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


@contextmanager
def small_disk(place: Path, size: str = "1m") -> Iterator[Path]:
    """Mount an empty file system of `size` on the new folder `place`, or skip the test."""
    require("root")
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        missing("root", f"a small file system can't be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Let no file of this process grow beyond `most` bytes, as on a full disk; it needs no rights."""
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
