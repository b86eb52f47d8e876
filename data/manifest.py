"""`manifest.json` of a prepared folder."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from turret.data.errors import DataError
from turret.data.files import map_ordered
from turret.data.kinds import Kind

MANIFEST = "manifest.json"


class _Record(BaseModel, frozen=True, extra="forbid"):
    pass


class Counts(_Record):
    """The size of the data."""

    events: int
    users: int
    items: int


class Columns(_Record):
    """The source columns by role, None for a missing column; time is None for file order.

    In a log without users, the column of the sessions is the column of the users too.
    """

    user: str
    item: str
    time: str | None
    weight: str | None = None
    quantity: str | None = None
    kind: str | None = None
    label: str | None = None
    negatives: str | None = None
    session: str | None = None
    answer: str | None = None


class FileHash(_Record):
    """Digest and size of a file."""

    sha256: str
    bytes: int


class BadRows(_Record):
    """Invalid source rows of one kind; `examples` are the first ones, with row numbers."""

    kind: str
    count: int
    examples: list[dict[str, Any]]


class Removed(_Record):
    """Rows removed by a filter."""

    filter: str
    events: int


class Time(_Record):
    """The values of `times.npy`: milliseconds since 1970 (UTC), numbers, or positions (0, 1, ...)."""

    kind: Literal["timestamp", "number", "position"]
    unit: Literal["milliseconds"] | None
    first: int | float
    last: int | float

    @property
    def until(self) -> str | None:
        """The newest time as ISO 8601 in UTC; None for data without timestamps."""
        if self.kind != "timestamp":
            return None
        newest = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.last)
        return newest.isoformat(timespec="milliseconds")


class Split(_Record):
    """The split, with the numbers of events, of targets among them, and of users with a target by part."""

    kind: Literal["last", "time", "files", "queries"]
    rule: str
    events: dict[str, int]
    targets: dict[str, int]
    users: dict[str, int]


class FeatureSummary(_Record):
    """One feature of users, items or contexts; `size` counts codes (1 for a number)."""

    name: str
    kind: str
    size: int


class DataManifest(_Record):
    """The contents of `manifest.json`.

    `fingerprint` is a SHA-256 over the names and content hashes of all other files of the folder, the kind of
    the times and the table of kinds: the same events prepared with the same settings have the same
    fingerprint. `settings` are all settings of the preparation, which `turret data append` applies to new
    events. `negatives` counts the given negatives of all events; None where the source has none.
    `repeat_share` is the share of training events whose user has used the item in an earlier visit,
    `visit_repeat_share` the share of training events that repeat an item of the same visit. `catalog_time` is
    the time at which the items file was written, ISO 8601 in UTC; None without a file. `kinds` has the kinds
    of the events in the order of their codes (`data.kinds`), and is empty where all events are alike; events
    without a kind have `default_kind`.
    """

    format_version: Literal[1] = 1
    counts: Counts
    columns: Columns
    settings: dict[str, Any]
    sources: dict[str, FileHash]
    bad_rows: list[BadRows]
    removed: list[Removed]
    time: Time
    split: Split
    has_weights: bool
    negatives: int | None = None
    kinds: dict[str, Kind] = {}
    default_kind: str | None = None
    repeat_share: float = 0.0
    visit_repeat_share: float = 0.0
    user_features: list[FeatureSummary]
    item_features: list[FeatureSummary]
    context_features: list[FeatureSummary] = []
    catalog_time: str | None = None
    files: dict[str, FileHash]
    fingerprint: str

    def save(self, folder: Path) -> None:
        """Write the manifest into `folder`; without contexts, it is that of releases that knew none."""
        text = self.model_dump_json(indent=2, exclude=None if self.context_features else {"context_features"})
        (folder / MANIFEST).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "DataManifest":
        """Read the manifest of `folder`. Raises DataError when this version can't read the file."""
        path = folder / MANIFEST
        try:
            return cls.model_validate_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            url = re.fullmatch("([a-z][a-z0-9]+:)/(.+)", str(folder))  # a URL that was taken for a path
            remedy = f"copy it here first: `turret data fetch {url[1]}//{url[2]}`" if url else ""
            raise DataError(
                f"{folder} is not prepared data: it has no {MANIFEST}; "
                + (remedy or "`turret data prepare` writes one")
            ) from None
        except ValidationError as error:
            first = error.errors()[0]
            location = ".".join(map(str, first["loc"])) or "the file"
            raise DataError(
                f"this version of turret can't read {path} ({location}: {first['msg']}); "
                "prepare the data again"
            ) from None


def hash_file(path: Path) -> FileHash:
    """Return the size and the SHA-256 of a file."""
    with path.open("rb") as stream:
        return FileHash(sha256=hashlib.file_digest(stream, "sha256").hexdigest(), bytes=path.stat().st_size)


Run = Callable[[Callable[[Path], bytes], Sequence[Path]], Iterable[bytes]]


def hash_all(paths: Sequence[Path], run: Run = map_ordered) -> dict[Path, FileHash]:
    """Hash files, several at a time; `run` calls a function for each value, as `map` does."""
    hashes = run(_hash_as_json, paths)
    return {path: FileHash.model_validate_json(hashed) for path, hashed in zip(paths, hashes, strict=True)}


def _hash_as_json(path: Path) -> bytes:
    return hash_file(path).model_dump_json().encode()


def hash_files(folder: Path) -> dict[str, FileHash]:
    """Hash every file below `folder` except the manifest itself, by its name relative to `folder`."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    return {path.relative_to(folder).as_posix(): hashed for path, hashed in hash_all(paths).items()}


def fingerprint(files: dict[str, FileHash], time_kind: str, kinds: dict[str, Kind]) -> str:
    """Return one SHA-256 for the content of a prepared folder; see `DataManifest`."""
    lines = [f"time {time_kind}", *(f"{name} {files[name].sha256}" for name in sorted(files))]
    lines += [f"kind {name} {kind.model_dump_json()}" for name, kind in kinds.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
