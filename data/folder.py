"""Writing prepared data: into a temporary folder beside the target, which then takes its name."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.arrays import save_array
from data.errors import DataError
from data.features import Features
from data.manifest import MANIFEST
from data.packing import Events
from data.vocabulary import Vocabulary


@contextmanager
def published_folder(target: Path, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` when the block ends without an error, and vanishes
    otherwise.

    Raises DataError when `target` exists, unless `overwrite` is true and it is prepared data (or empty): a
    mistyped path must not cost anybody another folder.
    """
    target = Path(target)
    _check_target(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        # mkdtemp makes folders that only their owner can read; prepared data is as readable as anything else.
        temporary.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_arrays(folder: Path, events: Events, offsets: NDArray[np.int64], splits: NDArray[np.int64]) -> None:
    """Write events that are in order, with their users' bounds and splits, into `folder`."""
    save_array(folder / "items.npy", events.items)
    save_array(folder / "times.npy", events.times)
    if events.weights is not None:
        save_array(folder / "weights.npy", events.weights)
    save_array(folder / "offsets.npy", offsets)
    save_array(folder / "splits.npy", splits)


def write_catalogues(
    folder: Path,
    users: Vocabulary,
    items: Vocabulary,
    user_features: Features,
    item_features: Features,
    fields: dict[str, list[Any]],
) -> None:
    """Write what is known of users and items into `folder`."""
    users.save(folder / "users.json")
    items.save(folder / "items.json")
    user_features.save(folder / "user_features")
    item_features.save(folder / "item_features")
    text = json.dumps({"fields": fields}, ensure_ascii=False, allow_nan=False)
    (folder / "catalogue.json").write_text(text, encoding="utf-8")


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise DataError(f"{target} exists already; choose another folder, or replace it with --overwrite")
    if not (target / MANIFEST).is_file():
        raise DataError(
            f"{target} is not prepared data, so --overwrite does not replace it; choose another folder"
        )
