"""The settings of an index on a running vector engine."""

from typing import ClassVar, Literal

from pydantic import Field

from turret.tower.config import Settings
from turret.tower.format.index_settings import IndexSettings


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
        engine: the product, `milvus` or `redis`.
        url: the engine's address without credentials; `TURRET_ENGINE` names another one.
        collection: the collection of this version; searches name it, so that towers and vectors match.
        alias: the name that an activation of this version moves to its collection.
        efforts: the measured efforts, by rows and k; a search that they don't cover is exact.
        subset_rows: the largest number of allowed rows that are scored exactly in this process.
    """

    kind: Literal["engine"] = "engine"
    is_exact: Literal[False] = False
    engine: Literal["milvus", "redis"]
    url: str = Field(min_length=1, max_length=2000)
    collection: str = Field(pattern="^[A-Za-z][A-Za-z0-9_]{0,199}$")
    alias: str = Field(pattern="^[A-Za-z][A-Za-z0-9_]{0,199}$")
    efforts: tuple[EngineEffort, ...] = Field(min_length=1)
    subset_rows: int = Field(default=0, ge=0)

    is_remote: ClassVar[bool] = True
    is_stable: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The engine's name."""
        return self.engine

    def breadth(self, rows: int, k: int) -> int | None:
        """The effort of a search for `k` among `rows` rows; None where none is known to reach the recall.

        It is the larger one of those that were measured for the next fewer and the next more rows. Neither
        bounds the other: an engine needs more effort for fewer rows, until they are so few that it scores
        them all.
        """
        measured = [one for one in self.efforts if one.k >= k]
        below = [one for one in measured if one.rows <= rows]
        above = [one for one in measured if one.rows >= rows]
        if not below or not above:
            return None
        lower = min(below, key=lambda one: (-one.rows, one.k)).breadth
        upper = min(above, key=lambda one: (one.rows, one.k)).breadth
        return None if lower is None or upper is None else max(lower, upper)
