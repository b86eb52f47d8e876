"""The registry of index kinds: the settings of each, and where its class is.

A package adds a kind by an entry point of the group `turret.indexes` that names an `IndexKind`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from turret.data.entry_points import kind_of, registry
from turret.tower.errors import TowerError
from turret.tower.format.engine_settings import EngineSettings
from turret.tower.format.index_settings import (
    FlatSettings,
    HnswSettings,
    IndexSettings,
    IvfPqSettings,
    IvfSettings,
    RabitqSettings,
    ScalarSettings,
)

GROUP = "turret.indexes"


@dataclass(frozen=True)
class IndexKind:
    """An entry of the registry of indexes.

    Attributes:
        settings: subclass of `IndexSettings`; its `kind` is the name in manifests and of `--kind`.
        index: the subclass of `tower.index.index.Index` as `module:Class`, imported with the first index of
            this kind: reading a manifest imports no search engine.
    """

    settings: type[IndexSettings]
    index: str

    @property
    def name(self) -> str:
        """The kind. Raises TowerError where the settings don't name exactly one."""
        settings: object = self.settings
        is_settings = isinstance(settings, type) and issubclass(settings, IndexSettings)
        if not is_settings:
            raise TowerError(f"IndexKind.settings is {settings!r}, not a subclass of IndexSettings")
        name = kind_of(self.settings)
        if self.settings.model_fields["kind"].default != name:
            raise TowerError(
                f"{self.settings.__name__}.kind has no default; write kind: Literal[{name!r}] = {name!r}"
            )
        return name


# In the order in which `auto` tries them.
OURS = (
    IndexKind(FlatSettings, "turret.tower.index.index:ExactIndex"),
    IndexKind(IvfPqSettings, "turret.tower.index.inverted:IvfPqIndex"),
    IndexKind(ScalarSettings, "turret.tower.index.scalar:ScalarIndex"),
    IndexKind(IvfSettings, "turret.tower.index.inverted:IvfIndex"),
    IndexKind(HnswSettings, "turret.tower.index.hnsw:HnswIndex"),
    IndexKind(RabitqSettings, "turret.tower.index.inverted:RabitqIndex"),
    IndexKind(EngineSettings, "turret.tower.engines.engine_index:EngineIndex"),
)


INDEX_KINDS = registry(OURS, GROUP, IndexKind, TowerError)

if TYPE_CHECKING:
    AnyIndexSettings = IndexSettings
else:
    AnyIndexSettings = Annotated[
        Union[tuple(kind.settings for kind in INDEX_KINDS.values())],  # noqa: UP007 # known at runtime only
        Field(discriminator="kind"),
    ]
