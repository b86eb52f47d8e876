"""Runs in a container of the service: writes its volumes as a tar file to standard output, or reads one.

`pack.py state` writes keys, routes and the names of the live versions, `bundles` the versions; `unpack` reads
either into the volumes, `empty` fails if they hold anything, `clear` empties them.
"""

import shutil
import sys
import tarfile
from pathlib import Path

VAR = Path("/app/var")
BUNDLES = VAR / "bundles"


def state_files() -> list[Path]:
    """The files beside the versions: of the service, and in the folder of bundles."""
    found = [path for path in VAR.rglob("*") if BUNDLES not in path.parents and path.is_file()]
    named = [
        path for path in BUNDLES.iterdir() if path.is_file() or path.is_symlink() or path.name == ".gate"
    ]
    return found + named


def versions() -> list[Path]:
    """The published versions; a folder without a manifest is being written."""
    return [path for path in BUNDLES.iterdir() if (path / "manifest.json").is_file() and path.name[0] != "."]


def write(paths: list[Path]) -> None:
    """Write a tar file of `paths`; one that vanishes meanwhile is left out."""
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for path in sorted(paths):
            try:
                archive.add(path, path.relative_to(VAR))
            except FileNotFoundError:
                print(f"{path.relative_to(VAR)} was removed during the backup", file=sys.stderr)


def clear() -> None:
    """Delete all that the volumes hold."""
    for path in [*BUNDLES.iterdir(), *(path for path in VAR.iterdir() if path != BUNDLES)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def main(action: str) -> int:
    """Run one action; returns the exit status."""
    if action == "state":
        write(state_files())
    elif action == "bundles":
        write(versions())
    elif action == "unpack":
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            # Without the permission to write for others; early versions of Python 3.11 have no filters.
            archive.extractall(VAR, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
    elif action == "clear":
        clear()
    elif action == "empty":
        return int(bool(versions() or [path for path in VAR.iterdir() if path != BUNDLES]))
    else:
        print(f"pack.py: {action!r} is none of state, bundles, unpack, clear, empty", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
