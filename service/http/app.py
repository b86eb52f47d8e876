"""The application: routes inside of layers."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from turret.service import error_responses
from turret.service.components import Components
from turret.service.http.access import Authentication
from turret.service.http.admission import Admission, Capacity
from turret.service.http.bodies import BodyReader
from turret.service.http.documents import docs_page, openapi_document
from turret.service.http.edge import Edge
from turret.service.http.fast_path import RecommendPath
from turret.service.http.routes import (
    admin,
    comparison,
    histories,
    items,
    page,
    probes,
    recommend,
    versions,
)
from turret.service.http.routes.parameters import check_parameters
from turret.service.settings import Settings
from turret.service.stores.contract import Stores
from turret.service.versions.follower import UpToDate
from turret.service.worker_context import WorkerContext

ROUTERS: tuple[APIRouter, ...] = (
    recommend.router,
    items.router,
    histories.router,
    versions.router,
    probes.router,
    admin.router,
    comparison.router,
)
_log = logging.getLogger("turret.store")


def _release() -> str:
    try:
        return version("turret")
    except PackageNotFoundError:
        return "0"


RELEASE = _release()


class Application(FastAPI):
    """FastAPI inside of layers of our own.

    As FastAPI middleware they would stand behind its own layers. Those cost each request as much as all of
    ours, and responses that are made in front of the routes need none of them.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._outermost: ASGIApp = super().__call__

    def surround(self, layer: Callable[..., ASGIApp], **options: object) -> None:
        """Put `layer` around the application as it is."""
        self._outermost = layer(self._outermost, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer through all layers."""
        await self._outermost(scope, receive, send)


def create_app(
    settings: Settings, context: WorkerContext | None = None, stores: Stores | None = None
) -> Application:
    """Open the current bundle and the stores, and make the application that answers from them.

    With `settings.wait` it starts without a bundle, and answers 503 to requests that need one until a version
    is current. It answers on both ports, admin calls on the admin port alone. `context` is this worker among
    several, `stores` replace those that the settings name. Raises ServiceError or BundleError if a bundle or
    a store can't be opened.
    """
    components = Components(settings, context, stores)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        components.observation.logs.start()
        await components.follower.join()
        await _prepare(components)
        holder, background = components.model_holder, components.background
        background.start("record", components.follower.follow)
        if holder.version is None:
            background.start("first version", lambda: _tell_first(components))
        background.start("metrics", components.observation.follow)
        background.start("files", components.observation.watch_files)
        background.start("store warnings", lambda: _log_health_warnings(components))
        background.start("items", components.overlay.watch)
        background.start("keys", components.keyring.follow)
        yield
        await components.close()

    app = Application(
        title="Turret",
        version=RELEASE,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,  # `documents` has files for these, with a page that loads no scripts
        docs_url=None,
        redoc_url=None,
    )
    app.state.bodies, app.state.capacity = BodyReader(), Capacity(settings)
    components.metrics.refresh_with(partial(app.state.capacity.show, components.metrics))
    app.surround(RecommendPath, components=components, bodies=app.state.bodies)
    app.surround(UpToDate, follower=components.follower)
    return _add_layers(app, components, (*ROUTERS, page.router) if settings.page else ROUTERS)


async def _tell_first(components: Components) -> None:
    """Print the first version of a service that has waited for one, in one of its workers."""
    live = await components.model_holder.first()
    if components.context.number == 0:
        with suppress(OSError):  # standard output may be closed by now
            print(f"turret serves version {live.version}", flush=True)


async def _prepare(components: Components) -> None:
    """Read the overlays of the first versions before the first request, if the store answers."""
    holder, seconds = components.model_holder, components.settings.history_timeout
    live = holder.live if holder.version is not None else None
    for model in (live, holder.traffic.canary, holder.traffic.shadow):
        if model is not None:
            await components.overlay.within(model.bundle, seconds)


async def _log_health_warnings(components: Components) -> None:
    """Log the warnings of the history store, in one of the workers."""
    for warning in await components.histories.health_warnings() if components.context.number == 0 else ():
        _log.warning("%s", warning)


def _add_layers(app: Application, components: Components, routers: tuple[APIRouter, ...]) -> Application:
    app.state.components = components
    # The last is the outermost.
    app.surround(
        Admission,
        capacity=app.state.capacity,
        settings=components.settings,
        count=components.metrics.count_refusal,
    )
    app.surround(
        Authentication,
        keyring=components.keyring,
        metrics_open=components.settings.metrics_open,
        admin_port=components.admin_port,
        share=components.settings.workers,
    )
    traces, context = components.observation.traces, components.context
    app.surround(
        Edge,
        metrics=components.metrics,
        pictures=components.settings.page_pictures,
        is_draining=lambda: context.is_draining,
        trace=traces and traces.record,
    )
    # A request is compared with the routes one after the other, and probes come most often.
    for router in sorted(routers, key=lambda router: router is not probes.router):
        # Websites and mails append parameters of their own to the address of the page, orchestrators and
        # scrapers to those of probes and metrics.
        is_lenient = router in (page.router, probes.router)
        app.include_router(router, dependencies=() if is_lenient else (Depends(check_parameters),))
    for path, document in (("/openapi.json", openapi_document), ("/docs", docs_page)):
        app.add_api_route(path, document, methods=["GET", "HEAD"], include_in_schema=False)
    error_responses.install(app, routers)
    return app
