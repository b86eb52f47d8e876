"""The `current` pointer of a folder of bundles."""

import os
import re
from pathlib import Path

from turret.data.files import new_file
from turret.tower.errors import BundleError
from turret.tower.format.safe_open import read_regular

CURRENT = "current"
_LIMIT = 1_000
# Names with another meaning in a folder of bundles.
_RESERVED = {CURRENT, "admin.key", "activations.jsonl", "record.json"}
_VERSION = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


def is_version(name: str) -> bool:
    """Whether `name` can name a version: up to 64 of A-Z a-z 0-9 . _ - and no dot in front."""
    return _VERSION.fullmatch(name) is not None and name not in _RESERVED


def check_version(name: str) -> None:
    """Raise BundleError when `name` can't name a version (see `is_version`)."""
    if not is_version(name):
        raise BundleError(
            f"{name[:80]!r} can't name a version: use up to 64 letters, digits, '.', '_' or '-', no dot "
            f"in front, and none of {sorted(_RESERVED)}"
        )


def current(root: Path) -> str | None:
    """Return the version that `<root>/current` names, or None if there is no pointer.

    Raises BundleError when the pointer is a link, or its content can't name a version.
    """
    try:
        os.lstat(root / CURRENT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BundleError(f"{root / CURRENT} can't be read: {error.strerror}") from None
    try:
        # Not through a link: an error message shows a part of the content.
        name = read_regular(root / CURRENT, _LIMIT).decode("utf-8", "replace").strip()
    except BundleError as error:
        fault = str(error).partition(";")[0]
        raise BundleError(f"{fault}; delete it, and activate a version") from None
    if not is_version(name):
        raise BundleError(
            f"{root / CURRENT} names no version but holds {name[:80]!r}; write the name of one into it, or "
            "activate one, which replaces it"
        )
    return name


def point(root: Path, version: str) -> None:
    """Make `version` the current one: by rename, synced to disk."""
    check_version(version)
    try:
        with new_file(root / CURRENT) as fresh:
            fresh.write_text(version + "\n", encoding="utf-8")
    except OSError as error:
        raise BundleError(f"the pointer {root / CURRENT} can't be written: {error.strerror}") from None
