"""Folders that appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import DataError


@contextmanager
def new_folder(target: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside `target` that becomes `target` by rename when the block ends.

    When the block raises, the folder is removed and `target` is as it was. An existing `target` is refused
    with a `DataError`, or replaced if `overwrite` is given.
    """
    if target.exists() and not overwrite:
        raise DataError(f"{target} exists already; choose another folder, or replace it with --overwrite")
    target.parent.mkdir(parents=True, exist_ok=True)
    # A plain mkdir rather than mkdtemp, which would leave a folder that nobody else can read.
    fresh = target.parent / f".{target.name}.{os.getpid()}.new"
    try:
        fresh.mkdir()
        yield fresh
        _replace(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _replace(fresh: Path, target: Path) -> None:
    if not target.exists():
        fresh.rename(target)
        return
    old = target.parent / f".{target.name}.{os.getpid()}.old"
    target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old)
