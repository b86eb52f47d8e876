"""The settings of each kind of index: the part of a manifest that describes an index."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from turret.tower.config import Settings


class SearchParams(Settings):
    """The search parameters of an approximate index for up to `k` rows.

    `breadth`: the number of lists that are read, 1 for an index that reads every code, or the ef of a graph.
    `candidates`: the number of best approximations that are scored exactly, at least k.
    """

    k: int = Field(ge=1)
    breadth: int = Field(default=1, ge=1)
    candidates: int = Field(ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.candidates < self.k:
            raise ValueError(
                f"candidates = {self.candidates} is less than k = {self.k}, so a search would find too few "
                "rows; set at least k"
            )
        return self


class IndexSettings(Settings):
    """The part of a manifest that describes an index. A subclass names its `kind` as a `Literal`."""

    kind: str
    is_exact: bool

    # The subclass of `tower.index.index.Index` as `module:Class`, imported with the first index of this kind:
    # reading a manifest imports no search engine.
    index_class: ClassVar[str]
    # Whether the index has a file of its own, beside the item vectors.
    has_file: ClassVar[bool] = False
    # Whether another process or host does the search: `turret serve` then searches in threads, and the exact
    # search answers recorded queries, as an engine that merges its files may change its answers.
    is_remote: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The kind, and the parameters that tell one proposal from another."""
        return self.kind


class FlatSettings(IndexSettings):
    """Every vector is compared with the query: recall is 1."""

    kind: Literal["flat"] = "flat"
    is_exact: Literal[True] = True

    index_class: ClassVar[str] = "turret.tower.index.index:ExactIndex"


class ApproximateSettings(IndexSettings):
    """Codes in `lists` cells of spherical k-means, read in the order of their centres' inner products.

    A search for `k` rows takes its parameters from `efforts`, by rising k; a larger k than the last is
    searched for exactly. So is a search among at most `subset_rows` allowed rows, where exact scores of them
    cost less. `augmented`: stored vectors have one more column, which makes all equally long. `biased`: the
    last column of an item vector is its bias, which is no part of its direction.
    """

    is_exact: Literal[False] = False
    efforts: tuple[SearchParams, ...] = Field(min_length=1)
    subset_rows: int = Field(default=0, ge=0)
    lists: int = Field(ge=1)
    augmented: bool = False
    biased: bool = False

    index_class: ClassVar[str] = "turret.tower.index.approximate:ApproximateIndex"
    has_file: ClassVar[bool] = True

    @property
    def reads_all(self) -> bool:
        """Whether every code is read, in no lists."""
        return False

    @property
    def is_rotated(self) -> bool:
        """Whether codes are of rotated vectors."""
        return False

    def width(self, dimension: int) -> int:
        """The number of columns that are stored of vectors of `dimension` columns."""
        return dimension + self.augmented


class IvfSettings(ApproximateSettings):
    """Lists of the vectors as eight bits a coordinate."""

    kind: Literal["ivf"] = "ivf"


class IvfPqSettings(ApproximateSettings):
    """Lists of product codes: `parts` of four bits each, of the rotated vector, read many at a time.

    One list of codes may be of unrotated vectors, which spares a query its rotation: unless `rotated`.
    """

    kind: Literal["ivf_pq"] = "ivf_pq"
    parts: int = Field(ge=1)
    rotated: bool = False

    @property
    def reads_all(self) -> bool:
        """Whether there is one list, of vectors that are equally long."""
        return self.lists == 1 and not self.biased and not self.augmented

    @property
    def is_rotated(self) -> bool:
        """Whether codes are of rotated vectors, as they always are in several lists."""
        return self.rotated or not self.reads_all

    def width(self, dimension: int) -> int:
        """The number of stored columns, a multiple of `parts`: product codes need parts of one size."""
        needed = dimension + self.augmented
        return needed + -needed % self.parts

    @property
    def label(self) -> str:
        """The kind with the number of lists."""
        rotated = ", rotated" if self.reads_all and self.rotated else ""
        return f"{self.kind} of {self.lists:,} list{'s' * (self.lists > 1)}{rotated}"


class HnswSettings(ApproximateSettings):
    """A graph of near neighbours (Malkov & Yashunin 2016), `links` a node and level; `breadth` is its ef."""

    kind: Literal["hnsw"] = "hnsw"
    lists: Literal[1] = 1
    links: int = Field(default=16, ge=2, le=128)
    ef_construction: int = Field(default=200, ge=8, le=2000)


EngineName = Literal["milvus", "redis"]


class EngineEffort(Settings):
    """The effort that reached the recall for up to `k` rows where `rows` items are allowed.

    `breadth` is None where no effort reached it. `recall`: of the engine's own answers with this effort,
    or with the largest one, when it was tuned.
    """

    rows: int = Field(ge=1)
    k: int = Field(ge=1)
    breadth: int | None = Field(default=None, ge=1)
    recall: float = Field(ge=0, le=1)


class EngineSettings(IndexSettings):
    """A collection of a running vector engine; the bundle keeps its vectors for exact searches.

    Attributes:
        engine: the product, `milvus` or `redis`; `TURRET_ENGINE` names its address.
        collection: the collection of this version; searches name it, so that towers and vectors match.
        efforts: the measured efforts, by rows and k; a search that they don't cover is exact.
        subset_rows: the largest number of allowed rows that are scored exactly in this process.
    """

    kind: Literal["engine"] = "engine"
    is_exact: Literal[False] = False
    engine: EngineName
    collection: str = Field(pattern="^[A-Za-z][A-Za-z0-9_]{0,199}$")
    efforts: tuple[EngineEffort, ...] = Field(min_length=1)
    subset_rows: int = Field(default=0, ge=0)

    index_class: ClassVar[str] = "turret.tower.engines.engine_index:EngineIndex"
    is_remote: ClassVar[bool] = True

    def breadth(self, rows: int, k: int) -> int | None:
        """The effort of a search for `k` among `rows` rows; None where none is known to reach the recall.

        It is the larger of the efforts that were measured for the next fewer and for the next more rows.
        Neither bounds the other: an engine needs more effort for fewer rows, until they are so few that it
        scores them all.
        """
        measured = [effort for effort in self.efforts if effort.k >= k]
        below = [effort for effort in measured if effort.rows <= rows]
        above = [effort for effort in measured if effort.rows >= rows]
        if not below or not above:
            return None
        lower = min(below, key=lambda effort: (-effort.rows, effort.k)).breadth
        upper = min(above, key=lambda effort: (effort.rows, effort.k)).breadth
        return None if lower is None or upper is None else max(lower, upper)


AnyIndexSettings = Annotated[
    FlatSettings | IvfPqSettings | IvfSettings | HnswSettings | EngineSettings, Field(discriminator="kind")
]
