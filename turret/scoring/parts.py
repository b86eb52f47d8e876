"""A Parquet file that is written in parts beside it, so that a killed run goes on."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from turret.data.errors import ConfigurationError, DataError, brief
from turret.data.files import new_file, sync, tried_lock

_STATE = "run.json"


class Parts:
    """The parts of the file `target`, in the hidden folder `.NAME.parts` beside it until they are joined.

    A part appears complete, by a rename. A later run with the same settings goes on after the complete parts.
    `begun` is the time at which the run first began, in milliseconds since 1970.
    """

    def __init__(self, target: Path, folder: Path, begun: int) -> None:
        self._target = target
        self.folder = folder
        self.begun = begun

    def has_any(self) -> bool:
        """Whether any part has been written."""
        return any(self.folder.glob("*.parquet"))

    def clear(self) -> None:
        """Remove all files of the folder."""
        for path in self.folder.iterdir():
            path.unlink()

    def is_complete(self, number: int) -> bool:
        """Whether a part has been written."""
        return self._path(number).exists()

    def write(self, number: int, table: pl.DataFrame) -> None:
        """Write a part and sync it to disk. Raises DataError on a full disk."""
        path = self._path(number)
        draft = path.with_suffix(".new")
        with polars_errors_told(draft):
            table.write_parquet(draft)
        sync(draft)
        draft.rename(path)

    def join(self, metadata: Mapping[str, str] | None = None) -> int:
        """Join all parts into the file, which appears complete, with this metadata; return its rows.

        Rows are streamed, so memory holds some of them.
        """
        parts = sorted(self.folder.glob("*.parquet"))
        with new_file(self._target, 0o600) as fresh, polars_errors_told(fresh):
            pl.scan_parquet(parts, glob=False).sink_parquet(fresh, metadata=dict(metadata or {}))
        shutil.rmtree(self.folder)
        return int(pl.scan_parquet(self._target, glob=False).select(pl.len()).collect().item())

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08}.parquet"


@contextmanager
def opened(target: Path, settings: Mapping[str, Any], begun: int) -> Iterator[Parts]:
    """Open the parts of `target`, or those of a run with these settings that was killed.

    A run that ends without a complete part leaves nothing behind.

    Raises ConfigurationError for a target that is no Parquet file in a folder that exists, for parts of other
    settings, and while another run writes them; OSError where the folder isn't writable.
    """
    check_target(target)
    folder = target.with_name(f".{target.name}.parts")
    folder.mkdir(0o700, exist_ok=True)  # the answers are personal data
    with tried_lock(folder) as is_locked:
        if is_locked is False:
            raise ConfigurationError(f"another run writes {target}; wait for its end, or name another file")
        state, parts = folder / _STATE, Parts(target, folder, begun)
        settings = json.loads(json.dumps(settings))
        if parts.has_any():
            stored = _read(state)
            _check_same(folder, stored["settings"], settings)
            parts.begun = stored["begun"]
        else:
            parts.clear()  # a list of users without a part may be of another run
            draft = state.with_suffix(".new")
            draft.write_text(json.dumps({"settings": settings, "begun": begun}), encoding="utf-8")
            draft.rename(state)
        try:
            yield parts
        except BaseException:
            if not parts.has_any():  # a refused file of users would else refuse the mended one
                shutil.rmtree(folder)
            raise


def check_target(target: Path) -> None:
    """Raise ConfigurationError for a target that is no Parquet file in a folder that exists."""
    if target.suffix != ".parquet":
        raise ConfigurationError(f"{target}: the table is a Parquet file; give it a name like scores.parquet")
    check_place(target)


def check_place(target: Path) -> None:
    """Raise ConfigurationError for a target that is a folder, or in no folder that exists."""
    if target.is_dir():
        raise ConfigurationError(f"{target} is a folder; name a file in it")
    if not target.parent.is_dir():
        raise ConfigurationError(f"{target.parent} is no folder; make it, or name another file")


def _read(state: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))
        return {"settings": dict(stored["settings"]), "begun": int(stored["begun"])}
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{state} is damaged; delete its folder, and the run begins anew") from None


def _check_same(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if names:
        name, *_ = names
        raise ConfigurationError(
            f"{folder} holds parts of a run with {name} = {brief(before.get(name))}, and this one has "
            f"{brief(now.get(name))}; repeat the settings of that run, or delete the folder to begin anew"
        )


@contextmanager
def polars_errors_told(path: Path) -> Iterator[None]:
    """Raise DataError for errors of Polars, which wraps some of the operating system's: a full disk, say."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = getattr(error, "strerror", None) or brief(str(error).partition("\n")[0], 200)
        raise DataError(
            f"{path} can't be written ({reason}); make room, and the same command goes on"
        ) from None
