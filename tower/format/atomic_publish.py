"""Atomic publication of a folder, and the removal of folders that killed publications left."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turret.data.files import GRACE_SECONDS, sweep, sync, temporary_folder
from turret.tower.errors import BundleError

PREFIX = ".publishing-"


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that becomes it, read-only and synced, when the block ends well.

    A writer that dies leaves a folder that `remove_stale_dirs` removes. Raises BundleError when
    `target` exists or can't be written.
    """
    if target.exists():
        raise BundleError(f"{target} exists, and a published bundle is never changed; choose another version")
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
