"""The manifest of a bundle: its contents, measurements and checksums."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from turret.data.configuration import Duplicates, Pause
from turret.data.histories.duplicates import Merging
from turret.data.kinds import KindTable, Seen
from turret.data.manifest import FileHash, hash_file
from turret.tower.config import ScoringConfig, Settings
from turret.tower.errors import BundleError
from turret.tower.format.index_settings import AnyIndexSettings, FlatSettings
from turret.tower.format.safe_open import read_regular
from turret.tower.repeats import RepeatTerm

FORMAT_VERSION: Literal[4] = 4
MANIFEST, DIGEST = "manifest.json", "manifest.sha256"
MANIFEST_BYTES = 4_000_000
GOLDEN, QUERY_VECTORS = "golden.json", "query_vectors.npy"
ITEM_MAP = "item_map.npy"  # the item vectors in the plane, if they were projected
ITEM_WEIGHTS = "item_weights.npy"  # only where they differ from the numbers in popularity.npy
# Warm starts read these files beside the model; serving needs neither.
EXPERIMENT, ITEM_FEATURES = "experiment.json", "item_features.json"
ITEM_TOWER = "item_tower.onnx"  # only where the item tower reads features
REQUIRED_FILES = frozenset(
    {
        "user_tower.onnx",
        "item_vectors.npy",
        "vocabulary.json",
        "user_features.json",
        "catalog.json",
        "catalog.bin",
        "popularity.npy",
        "usual_gaps.npy",
        GOLDEN,
        QUERY_VECTORS,
        EXPERIMENT,
        ITEM_FEATURES,
        "model.safetensors",
    }
)
INDEX = "index.faiss"  # only where the kind of the index has a file
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]


class MeasuredRecall(Settings):
    """The share of the true best `k` that the index finds among a share `selectivity` of the items."""

    k: int
    selectivity: float
    recall: float

    @property
    def among(self) -> str:
        """The share of the items, in words."""
        return "all items" if self.selectivity == 1 else f"{self.selectivity:.4g} of the items"


class IndexChoice(Settings):
    """The request for an index, and the reasons (`words`) for the chosen one.

    `recall`: the least of every row of the measured table. `queries`: the number of user vectors that
    measured it.
    """

    asked: str = "flat"
    recall: float = Field(default=1.0, gt=0, le=1)
    queries: int = 0
    words: tuple[str, ...] = ()


class ModelCard(Settings):
    """The description of a model by its training; lengths are in rows.

    `reads_times`: the user tower reads the times of items and of the request. `reads_queries`: it reads
    queries in words, or their ready vectors, and no history. `reads_sets`: it reads each item of a history
    once, at its first use. `interests`: the number of vectors of a user, of which an item counts by the best
    one. `catalog_time`: when the file of its items was
    written, None without a file; changes of items after that are newer than the bundle. `data_until`: the
    time of the newest event of the data, ISO 8601 in UTC; None for data without times. `kinds`: the kinds of
    events by name, in the order of their codes (`data.kinds`), empty where all are alike; events without a
    kind have `default_kind`. `duplicates` and `session_gap`: the settings of the preparation by which events
    of a history become one (`data.histories.duplicates`). `reads_kinds`: the user tower reads the kind of
    each event. `context`: the features of the user tower that are of the request, and not of its user.
    `exclude_seen`: the default of requests that don't say which items of the history answers
    leave out. `repeats`: the gain of items of the history over their scores by the towers; None where they
    gain nothing. `keeps_html`: texts of items are read as they are, without
    `data.reading.markup.plain_text`.
    """

    version: str
    catalog_time: str | None = None
    data_until: str | None = None
    kinds: KindTable = Field(default={})
    default_kind: str | None = None
    duplicates: Duplicates = "keep"
    session_gap: Pause | None = None
    reads_kinds: bool = False
    context: tuple[str, ...] = ()
    scoring: ScoringConfig
    history_length: int = Field(ge=1)
    reads_times: bool = False
    reads_queries: bool = False
    reads_sets: bool = False
    interests: int = Field(default=1, ge=1)
    exclude_seen: Seen = True
    repeats: RepeatTerm | None = None
    keeps_html: bool = False
    metrics: dict[str, Any] = Field(default={})
    fingerprints: dict[str, str] = Field(default={})

    @property
    def merging(self) -> Merging:
        """The rule by which the events of a user with an item become one event."""
        return Merging.of(self.duplicates, self.session_gap, self.kinds)

    def fields_of(self, inputs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the inputs of the user tower as the fields of a request: `features` and `context`."""
        fields: dict[str, dict[str, Any]] = {"features": {}, "context": {}}
        for name, value in inputs.items():
            fields["context" if name in self.context else "features"][name] = value
        return fields

    @property
    def uses_times(self) -> bool:
        """Whether answers depend on the times of items and of the request."""
        return self.reads_times or (self.repeats is not None and self.repeats.reads_times)

    @property
    def uses_kinds(self) -> bool:
        """Whether answers depend on the kinds of items of the history."""
        return self.reads_kinds or (self.repeats is not None and self.repeats.reads_kinds)


class Manifest(ModelCard):
    """`manifest.json`; dimension D, N = item_count.

    `exported`: the time of the export, where a later reindexing `created` the bundle.
    """

    format_version: Literal[4] = FORMAT_VERSION
    created: str
    exported: str | None = None
    dimension: int = Field(ge=1)
    item_count: int = Field(ge=1)
    index: AnyIndexSettings = FlatSettings()
    index_choice: IndexChoice | None = None
    recall: tuple[MeasuredRecall, ...] = ()
    files: dict[FileName, FileHash]

    @property
    def required_files(self) -> frozenset[str]:
        """The files that every bundle with this kind of index has."""
        return REQUIRED_FILES | ({INDEX} if self.index.has_file else frozenset())


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of the bundle in `folder`.

    Raises BundleError when it is missing, invalid, of another format, or not the published one.
    """
    path = folder / MANIFEST
    text = read_regular(path, MANIFEST_BYTES)
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise BundleError(f"{path}: {_reason(error)}") from None
    if read_regular(folder / DIGEST, 1000) != digest_line(text):
        raise BundleError(
            f"{path} is not the file that was published: {DIGEST} says otherwise; copy the bundle again",
            "checksum",
        )
    return manifest


def manifest_digest(folder: Path) -> str:
    """The SHA-256 of `manifest.json`, which holds the checksums of all other files."""
    return hashlib.sha256(read_regular(folder / MANIFEST, MANIFEST_BYTES)).hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, with the checksums of the other files in `folder`, and its own beside it."""
    files = {path.name: hash_file(path) for path in sorted(folder.iterdir())}
    text = manifest.model_copy(update={"files": files}).model_dump_json(indent=2).encode()
    (folder / MANIFEST).write_bytes(text)
    (folder / DIGEST).write_bytes(digest_line(text))


def digest_line(text: bytes) -> bytes:
    """The content of `manifest.sha256` for a manifest of this text; `sha256sum -c` reads it."""
    return f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n".encode()


def _reason(error: ValidationError) -> str:
    first = error.errors()[0]
    formats = f"this release reads bundles of format {FORMAT_VERSION}"
    if first["loc"] == ("format_version",):
        version = str(first["input"])[:20]
        return f"it is of format {version}; {formats}: update turret, or export the bundle again"
    where = ".".join(map(str, first["loc"])) or "the whole file"
    return f"{where}: {first['msg']}; {formats}, export the bundle again"
