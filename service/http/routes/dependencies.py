"""The parts of the service that routes take as parameters."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel

from turret.service.background_tasks import BackgroundTasks
from turret.service.components import Components
from turret.service.observing.metrics import Metrics
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.versions.activation import Activator
from turret.service.versions.holder import ModelHolder
from turret.service.worker_context import WorkerContext

Schema = TypeVar("Schema", bound=BaseModel)


def _part(name: str) -> Any:
    """Depend on an attribute of the `Components`."""

    async def part(request: Request) -> Any:  # a coroutine, as FastAPI calls plain functions in a thread
        return getattr(request.app.state.components, name)

    return Depends(part)


async def _parts(request: Request) -> Any:
    return request.app.state.components


Parts = Annotated[Components, Depends(_parts)]
ActivatorPart = Annotated[Activator, _part("activator")]
BackgroundPart = Annotated[BackgroundTasks, _part("background")]
MetricsPart = Annotated[Metrics, _part("metrics")]
ModelHolderPart = Annotated[ModelHolder, _part("model_holder")]
OverlayPart = Annotated[ItemOverlayCache, _part("overlay")]
WorkerPart = Annotated[WorkerContext, _part("context")]


def reads(schema: type[Schema]) -> Callable[[Request], Awaitable[Schema]]:
    """Make a dependency that reads the body as `schema`.

    Not FastAPI's own reading, which validates long bodies in the event loop.
    """

    async def read(request: Request) -> Schema:
        body: Schema = await request.app.state.bodies.read(request.receive, schema)
        return body

    return read
