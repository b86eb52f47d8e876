"""The registry of index kinds: the settings of each, and where its class is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

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
        """The kind."""
        return str(self.settings.model_fields["kind"].default)


# In the order in which `auto` tries them.
_KINDS = (
    IndexKind(FlatSettings, "turret.tower.index.index:ExactIndex"),
    IndexKind(IvfPqSettings, "turret.tower.index.inverted:IvfPqIndex"),
    IndexKind(ScalarSettings, "turret.tower.index.approximate:ScalarIndex"),
    IndexKind(IvfSettings, "turret.tower.index.inverted:IvfIndex"),
    IndexKind(HnswSettings, "turret.tower.index.hnsw:HnswIndex"),
    IndexKind(RabitqSettings, "turret.tower.index.inverted:RabitqIndex"),
    IndexKind(EngineSettings, "turret.tower.engines.engine_index:EngineIndex"),
)

INDEX_KINDS = {kind.name: kind for kind in _KINDS}

if TYPE_CHECKING:
    AnyIndexSettings = IndexSettings
else:
    AnyIndexSettings = Annotated[
        Union[tuple(kind.settings for kind in _KINDS)],  # noqa: UP007 # known at runtime only
        Field(discriminator="kind"),
    ]
