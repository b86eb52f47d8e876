"""The files of the log of answers, in a folder or in an object store: publishing, retention, forgetting."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turret.data.answers.files import SCHEMA
from turret.data.answers.form import minute_of
from turret.data.errors import SourceError
from turret.data.files import scratch_folder, sync
from turret.data.object_stores import Objects

_DAY = 86_400_000  # milliseconds
# The mark of a forgotten visitor stays so long, as late files may have answers from before it.
SETTLED_MS = 7_200_000
_FORGOTTEN = "forgotten/"
_log = logging.getLogger("turret.answers")


class Files(Protocol):
    """Files by names relative to one place, as `data.object_stores.Objects` has them."""

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file by name."""

    def upload(self, files: Mapping[str, Path]) -> None:
        """Write files with these names; each appears whole."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove files."""


class Folder:
    """The files of a folder, which is made for its user alone. Every method raises OSError."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(0o700, parents=True, exist_ok=True)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file by name, without those of hidden folders."""
        sizes = {}
        for folder in _entries(self.root):
            for file in _entries(folder) if folder.is_dir() else []:
                with suppress(FileNotFoundError):  # another service removes it, or it links to no file
                    sizes[f"{folder.name}/{file.name}"] = file.stat().st_size
        return sizes

    def upload(self, files: Mapping[str, Path]) -> None:
        """Move files, which are on the same file system, to their names."""
        for name, file in files.items():
            sync(file)
            (self.root / name).parent.mkdir(0o700, exist_ok=True)
            file.replace(self.root / name)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files, and folders that are empty then."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)
        for folder in {(self.root / name).parent for name in names}:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


class AnswerFiles:
    """The files of a log at a path or URL. Opening, and every method, may raise OSError or SourceError."""

    def __init__(self, place: str) -> None:
        """Raises MissingExtraError too."""
        # An address without a bucket is no folder of this name.
        self._files: Files = Objects(place) if "://" in place else Folder(Path(place))
        # Files become complete here: on the file system of the log, from which they are moved.
        self.scratch = self._files.root if isinstance(self._files, Folder) else None

    def publish(self, name: str, file: Path) -> None:
        """Let a complete file appear under its name."""
        self._files.upload({name: file})

    def mark(self, visitor: str, now: int) -> None:
        """Note that a visitor is to be forgotten: each `forget` until `SETTLED_MS` later removes the rows."""
        with scratch_folder(self.scratch) as work:
            (work / "mark").write_bytes(b"\n")  # some object stores have no empty objects
            self._files.upload({f"{_FORGOTTEN}{now}_{visitor}": work / "mark"})

    def expire(self, days: int | None, most_bytes: int | None, now: int) -> None:
        """Remove the files older than `days`, and the oldest ones until all take `most_bytes` at most."""
        sizes = self._sizes()
        total, gone = sum(sizes.values()), list[str]()
        for name in sorted(sizes):
            is_old = days is not None and (minute_of(Path(name)) or 0) < now - days * _DAY
            if not is_old and (most_bytes is None or total <= most_bytes):
                break
            gone.append(name)
            total -= sizes[name]
        self._files.remove(gone)

    def forget(self, now: int) -> None:
        """Remove the rows of marked visitors from all files, and drop the settled marks."""
        marks = [name for name in self._files.sizes() if name.startswith(_FORGOTTEN)]
        if not marks:
            return
        visitors = pa.array([name.rpartition("_")[2] for name in marks])
        faults = [self._without(name, size, visitors) for name, size in self._sizes().items()]
        if any(faults):
            return
        times = {name: name.removeprefix(_FORGOTTEN).partition("_")[0] for name in marks}
        old = [name for name, time in times.items() if not time.isdigit() or int(time) <= now - SETTLED_MS]
        self._files.remove(old)

    def _sizes(self) -> dict[str, int]:
        """The bytes of the files with answers, by name."""
        sizes = self._files.sizes()
        return {name: size for name, size in sizes.items() if minute_of(Path(name)) is not None}

    def _without(self, name: str, size: int, visitors: pa.Array) -> bool:
        """Remove the rows of some visitors from a file; return whether it can't be read."""
        with scratch_folder(self.scratch) as work:
            try:
                if isinstance(self._files, Objects):
                    self._files.download({name: size}, work)
                path = (self.scratch or work) / name
                has = pc.is_in(pq.read_table(path, columns=["visitor"])["visitor"], visitors)
                if not pc.any(has).as_py():
                    return False
                # Another program may have written the file again, with other types of the same columns.
                left = pq.read_table(path).select(SCHEMA.names).cast(SCHEMA).filter(pc.invert(has))
            except FileNotFoundError:  # expired meanwhile
                return False
            except (SourceError, OSError, pa.ArrowException, KeyError, ValueError) as error:
                _log.warning("%s of the log of answers can't be read (%s); remove it", name, error)
                return True
            if len(left):
                with new_writer(work / "left") as writer:
                    writer.write_table(left)
                self._files.upload({name: work / "left"})
            else:
                self._files.remove([name])
            return False


def new_writer(path: Path) -> pq.ParquetWriter:
    """Begin a file for its user alone."""
    path.touch(0o600, exist_ok=False)
    return pq.ParquetWriter(path, SCHEMA, compression="zstd")
