"""The parts of the service that routes take as parameters."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Request

from turret.service.background_tasks import BackgroundTasks
from turret.service.compare.comparison import Comparison
from turret.service.keys.keyring import Keyring
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.overlay.item_writer import ItemWriter
from turret.service.ranking.recommender import Recommender
from turret.service.search.catalog_search import CatalogSearch
from turret.service.settings import Settings
from turret.service.stores.guarded import Breaker
from turret.service.telemetry.metrics import Metrics
from turret.service.versions.activation import Activator
from turret.service.versions.holder import ModelHolder
from turret.service.wire.body import Schema
from turret.service.worker_context import WorkerContext


def _part(name: str) -> Any:
    """Depend on an attribute of the `Components`."""

    async def part(request: Request) -> Any:  # a coroutine, as FastAPI calls plain functions in a thread
        return getattr(request.app.state.components, name)

    return Depends(part)


CatalogSearchPart = Annotated[CatalogSearch, _part("catalog_search")]
ActivatorPart = Annotated[Activator, _part("activator")]
BackgroundPart = Annotated[BackgroundTasks, _part("background")]
ComparisonPart = Annotated[Comparison, _part("comparison")]
HistoriesPart = Annotated[Breaker, _part("histories")]
ItemWriterPart = Annotated[ItemWriter, _part("item_writer")]
KeyringPart = Annotated[Keyring, _part("keyring")]
MetricsPart = Annotated[Metrics, _part("metrics")]
ModelHolderPart = Annotated[ModelHolder, _part("model_holder")]
OverlayPart = Annotated[ItemOverlayCache, _part("overlay")]
RecommenderPart = Annotated[Recommender, _part("recommender")]
SettingsPart = Annotated[Settings, _part("settings")]
WorkerPart = Annotated[WorkerContext, _part("context")]


def reads(schema: type[Schema]) -> Callable[[Request], Awaitable[Schema]]:
    """Make a dependency that reads the body as `schema`.

    Not FastAPI's own reading: that lets repeated keys pass, and validates long bodies in the event loop.
    """

    async def read(request: Request) -> Schema:
        body: Schema = await request.app.state.components.bodies.read(request.receive, schema)
        return body

    return read
