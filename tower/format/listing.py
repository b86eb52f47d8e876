"""The versions of a folder: their names, the current version, and how a version appears there."""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from turret.data.files import GRACE_SECONDS, new_file, sweep, sync, temporary_folder
from turret.tower.config import Settings
from turret.tower.errors import BundleError
from turret.tower.format.manifest import MANIFEST, MeasuredRecall, read_manifest
from turret.tower.format.safe_open import check_folder, read_regular

CURRENT = "current"
PREFIX = ".publishing-"
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
    if not os.path.lexists(root / CURRENT):
        return None
    try:
        # A link is not followed, as an error message shows a part of the content.
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
    """Make `version` the current one by a rename that is synced to disk."""
    check_version(version)
    try:
        with new_file(root / CURRENT) as fresh:
            fresh.write_text(version + "\n", encoding="utf-8")
    except OSError as error:
        raise BundleError(f"the pointer {root / CURRENT} can't be written: {error.strerror}") from None


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that becomes it, read-only and synced, when the block ends well.

    Raises BundleError when `target` is there already, or it can't be written.
    """
    with draft_folder(target) as draft:
        yield draft
        for path in draft.iterdir():
            os.chmod(path, 0o444)
        for path in (*draft.iterdir(), draft, target.parent):
            sync(path)
        draft.rename(target)
        sync(target.parent)


@contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """Yield an empty hidden folder beside `target`, which the end of the block removes if it is still there.

    A writer that dies leaves a folder that `remove_stale_dirs` removes. Raises BundleError when it can't be
    written.
    """
    try:
        with temporary_folder(target.parent / f"{PREFIX}{target.name}-{uuid.uuid4().hex}") as draft:
            yield draft
    except OSError as error:
        raise BundleError(f"the bundle {target} can't be written: {error}") from None


def remove_stale_dirs(root: Path, now: float | None = None) -> list[Path]:
    """Remove folders of dead publications from `root`, and return them.

    A folder stays while its writer lives, while it is younger than a minute, and if it can't be removed.
    `now` is in seconds since 1970.
    """
    return sweep(root, f"{PREFIX}*/", GRACE_SECONDS, now)


class VersionSummary(Settings):
    """One bundle in a folder of bundles; `error`: why its manifest can't be read."""

    version: str
    is_current: bool
    created: str | None = None
    data_until: str | None = None
    item_count: int | None = None
    dimension: int | None = None
    metrics: dict[str, Any] = Field(default={})
    recall: tuple[MeasuredRecall, ...] = ()
    error: str | None = None


def version_folder(root: Path, version: str) -> Path:
    """Return the folder of a version.

    Raises BundleError, naming the existing versions, when it doesn't exist or is a link.
    """
    check_version(version)
    folder = root / version
    if not folder.is_dir():
        known = ", ".join(summary.version for summary in versions(root)[-10:]) or "none"
        raise BundleError(f"there is no version {version!r} in {root}; there are: {known}", "unknown")
    check_folder(folder)
    return folder


def versions(root: Path) -> list[VersionSummary]:
    """List the bundles under `root`, oldest first. Raises BundleError when `root` is not a folder."""
    try:
        names = sorted(path.name for path in root.iterdir() if path.is_dir() and is_version(path.name))
    except OSError as error:
        raise BundleError(f"{root} can't be listed: {error.strerror}; name a folder of bundles") from None
    live = current(root)
    summaries = (_summary(root / name, name == live) for name in names)
    return sorted(summaries, key=lambda summary: summary.created or "")


def bundle_folder(path: Path) -> Path:
    """The bundle at `path`, or the current one of the bundles in it. Raises BundleError for anything else."""
    if (path / MANIFEST).is_file():
        return path
    live = current(path) if path.is_dir() else None
    if live is None:
        raise BundleError(
            f"{path}: there is no bundle, and no folder of bundles with a current one; name one such as "
            "DIR/VERSION (`turret export` makes them, `turret versions` lists them)"
        )
    return path / live


_SHOWN = {"created", "data_until", "item_count", "dimension", "metrics", "recall"}


def _summary(folder: Path, is_current: bool) -> VersionSummary:
    try:
        check_folder(folder)
        shown = read_manifest(folder).model_dump(include=_SHOWN)
    except BundleError as error:
        shown = {"error": str(error)}
    return VersionSummary(version=folder.name, is_current=is_current, **shown)
