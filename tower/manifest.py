"""The manifest of a bundle: what it holds, what it measured, and the checksums that everything is held to."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from data.manifest import FileHash, hash_file
from tower.errors import BundleError
from tower.indexes.settings import FlatSettings, IndexSettings

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
# What training goes on from beside the model. Serving needs neither, and bundles of before have none.
EXPERIMENT, ITEM_FEATURES = "experiment.json", "item_features.json"
REQUIRED_FILES = frozenset(
    {
        "user_tower.onnx",
        "item_vectors.npy",
        "index.faiss",
        "vocabulary.json",
        "user_features.json",
        "catalogue.json",
        "popularity.npy",
        "golden.json",
        "model.safetensors",
    }
)
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Scoring(_Frozen):
    """Score = inner product / temperature; for `cosine` all item and user vectors are of length 1.

    `absolute`: the score is that quotient without its sign. `item_bias`: the last of an item vector's numbers
    is its bias, and of a user vector's 1; it is the others that are of length 1.
    """

    kind: Literal["cosine", "dot"]
    temperature: float = Field(gt=0, allow_inf_nan=False)
    absolute: bool = False
    item_bias: bool = False


class MeasuredRecall(_Frozen):
    """Share of the true best `k` that the index found when a share `selectivity` of the items was allowed."""

    k: int
    selectivity: float
    recall: float


class Tried(_Frozen):
    """One kind that was tried when an index was chosen, searched as cheaply as the recall allows.

    `recall`: the lowest of its table; `milliseconds`: the median of single searches for the 10 best, on the
    machine that made the index; both None where no search was faster than the exact one. `megabytes`: of its
    codes, besides the item vectors.
    """

    kind: str
    recall: float | None = None
    milliseconds: float | None = None
    megabytes: float
    reached: bool


class IndexChoice(_Frozen):
    """What an index was asked to reach, and why it became the one that it is.

    `recall` is what every row of the measured table reaches; `milliseconds` the longest that the median
    search may take, if that was asked. `queries`: how many user vectors it was measured with.
    """

    asked: str = "flat"
    recall: float = Field(default=1.0, gt=0, le=1)
    milliseconds: float | None = Field(default=None, gt=0)
    queries: int = 0
    words: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()


class Manifest(_Frozen):
    """`manifest.json`; lengths in rows, dimension D, N = item_count.

    `reads_times`: the user tower reads when items were used and when the request comes.
    """

    format_version: Literal[1] = 1
    version: str
    created: str
    dimension: int = Field(ge=1)
    item_count: int = Field(ge=1)
    scoring: Scoring
    history_length: int = Field(ge=1)
    reads_times: bool = False
    index: IndexSettings = FlatSettings()
    index_choice: IndexChoice | None = None
    recall: tuple[MeasuredRecall, ...] = ()
    metrics: dict[str, Any] = {}
    fingerprints: dict[str, str] = {}
    files: dict[FileName, FileHash]


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of the bundle in `folder`. Raises BundleError when it is missing or not one."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path} can't be read: {error.strerror}; this is no whole bundle") from None
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise BundleError(
            f"{path}: {where}: {first['msg']}; this version of turret reads bundles of format "
            f"{FORMAT_VERSION}, "
            "export the bundle again"
        ) from None


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compare every file with its size and SHA-256. Raises BundleError naming the first that differs."""
    missing = REQUIRED_FILES - set(manifest.files)
    if missing:
        raise BundleError(f"the manifest of {folder} lists no {sorted(missing)}; export the bundle again")
    for name, expected in manifest.files.items():
        try:
            found = hash_file(folder / name)
        except OSError as error:
            raise BundleError(f"{folder / name} can't be read: {error.strerror}; copy it again") from None
        if found != expected:
            raise BundleError(
                f"{folder / name} is not the file that was published: {found.bytes} bytes and SHA-256 "
                f"{found.sha256[:12]}... where {expected.bytes} and {expected.sha256[:12]}... were; copy "
                f"the bundle again"
            )
