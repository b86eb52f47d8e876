"""Runs in a container of the service: writes its volumes as a tar file to standard output, or reads one.

`pack.py state` writes keys, histories in SQLite, routes and the names of the live versions, `bundles` the
versions; both end with the checksum of the file on standard error. `unpack` reads either into the volumes,
`empty` ends with status 3 if they hold anything, `clear` empties them.
"""

import hashlib
import io
import os
import shutil
import sqlite3
import sys
import tarfile
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

VAR = Path("/app/var")
BUNDLES = VAR / "bundles"
NOT_EMPTY = 3
_COPY = ".backup-"
_OF_A_RUN = ".turret-"  # what the workers of one run of the service share
_LEFT_SECONDS = 86_400  # the age of copies that a killed backup has left
_MAGIC = b"SQLite format 3\0"


class Hashed(io.RawIOBase):
    """Standard output, with the checksum of its content."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, content: Any) -> int:
        """Write `content` and add it to the checksum."""
        self.digest.update(content)
        return sys.stdout.buffer.write(content)


def state_files() -> list[Path]:
    """The files beside the versions: of the service, and in the folder of bundles."""
    found = [path for path in VAR.rglob("*") if BUNDLES not in path.parents and path.is_file()]
    named = [
        path for path in BUNDLES.iterdir() if path.is_file() or path.is_symlink() or path.name == ".gate"
    ]
    left_out = (_COPY, _OF_A_RUN)
    return [path for path in found if not path.relative_to(VAR).parts[0].startswith(left_out)] + named


def versions() -> list[Path]:
    """The published versions; a folder without a manifest is being written."""
    return [path for path in BUNDLES.iterdir() if (path / "manifest.json").is_file() and path.name[0] != "."]


def is_database(path: Path) -> bool:
    """Whether a file is a database of SQLite."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def copy_database(path: Path, folder: Path) -> Path:
    """Copy a database as it is at one moment, while the service writes to it."""
    copy = folder / path.name
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    copy.chmod(path.stat().st_mode & 0o777)
    return copy


def write_state() -> None:
    """Write the state; a database of SQLite as a copy, without the files beside it."""
    if os.environ.get("TURRET_STORE", "").startswith("redis"):
        raise OSError("the histories are in a Redis, which only the production profile backs up")
    for left in VAR.glob(f"{_COPY}*"):
        if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    paths = state_files()
    databases = {path for path in paths if is_database(path)}
    companions = {Path(f"{path}{suffix}") for path in databases for suffix in ("-wal", "-shm", "-journal")}
    with tempfile.TemporaryDirectory(prefix=_COPY, dir=VAR) as folder:
        copies = {path: copy_database(path, Path(folder)) for path in databases}
        write([path for path in paths if path not in companions], copies)


def write(paths: list[Path], copies: dict[Path, Path] | None = None) -> None:
    """Write a tar file of `paths`, or of their copies; one that vanishes meanwhile is left out."""
    output = Hashed()
    with tarfile.open(fileobj=output, mode="w|") as archive:
        for path in sorted(paths):
            try:
                archive.add((copies or {}).get(path, path), path.relative_to(VAR))
            except FileNotFoundError:
                print(f"{path.relative_to(VAR)} was removed during the backup", file=sys.stderr)
    sys.stdout.flush()
    print(f"sha256 {output.digest.hexdigest()}", file=sys.stderr)


def unpack() -> None:
    """Write the files of a tar file on standard input into the volumes."""
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        # Without the permission to write for others; early versions of Python 3.11 have no filters.
        filtered: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
        archive.extractall(VAR, **filtered)


def clear() -> None:
    """Delete all that the volumes hold."""
    for path in [*BUNDLES.iterdir(), *(path for path in VAR.iterdir() if path != BUNDLES)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def check_empty() -> int:
    """The exit status of `empty`."""
    others = (path for path in VAR.iterdir() if path != BUNDLES and not path.name.startswith(_OF_A_RUN))
    return NOT_EMPTY if versions() or any(others) else 0


ACTIONS = {
    "state": write_state,
    "bundles": lambda: write(versions()),
    "unpack": unpack,
    "clear": clear,
    "empty": check_empty,
}


def main(action: str) -> int:
    """Run one action; returns the exit status."""
    if action not in ACTIONS:
        print(f"pack.py: {action!r} is none of {', '.join(ACTIONS)}", file=sys.stderr)
        return 2
    try:
        return ACTIONS[action]() or 0
    except (OSError, tarfile.TarError, sqlite3.Error) as error:
        print(f"pack.py {action}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
