"""The settings of an index on a running vector engine."""

from typing import ClassVar, Literal

from pydantic import Field

from turret.tower.config import Settings
from turret.tower.format.index_settings import IndexSettings


class EngineEffort(Settings):
    """The effort that reached the recall for up to `k` rows among a share `selectivity` of the items."""

    selectivity: float = Field(gt=0, le=1)
    k: int = Field(ge=1)
    breadth: int = Field(ge=1)


class EngineSettings(IndexSettings):
    """A collection of a running vector engine; the bundle keeps its vectors for exact searches.

    Attributes:
        engine: the product, `milvus` or `redis`.
        url: the engine's address without credentials; `TURRET_ENGINE` names another one.
        collection: the collection of this version; searches name it, so that towers and vectors match.
        alias: the name that an activation of this version moves to its collection.
        efforts: the measured efforts; a search without one that covers it is exact.
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

    def breadth(self, share: float, k: int) -> int | None:
        """The effort of a search for `k` rows among a share of the items; None where none was measured.

        The measured selectivity at or below the share decides: fewer allowed rows need more effort.
        """
        covering = [one for one in self.efforts if one.selectivity <= share and one.k >= k]
        if not covering:
            return None
        nearest = max(one.selectivity for one in covering)
        return min((one for one in covering if one.selectivity == nearest), key=lambda one: one.k).breadth
