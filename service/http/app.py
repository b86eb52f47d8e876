"""The application: routes inside of layers."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, HTTPException
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from turret.service.components import Components, WorkerContext
from turret.service.http.access import Authentication
from turret.service.http.admission import Admission
from turret.service.http.edge import Edge
from turret.service.http.routes import histories, items, page, probes, recommend, versions
from turret.service.settings import Settings
from turret.service.stores.contract import Stores

RELEASE = version("turret")
ROUTERS: tuple[APIRouter, ...] = (
    probes.router,
    recommend.router,
    items.router,
    histories.router,
    versions.stored_rules,
    versions.router,
    versions.admin,
)
_log = logging.getLogger("turret.store")


class Application(FastAPI):
    """FastAPI inside of our own `layers`, without FastAPI's layers, which cost as much as all of ours.

    The `calls` of an application, by method and name, are found by `service.calls`, and never by the
    framework, whose patterns read some paths in another way.
    """

    layers: ASGIApp
    calls: Mapping[tuple[str, str], APIRoute]

    def build_middleware_stack(self) -> ASGIApp:
        """Build a stack of the routes alone, as `Edge` answers errors."""
        return AsyncExitStackMiddleware(self._answer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer through all layers; the messages of the server's start and end pass by the layers."""
        if scope["type"] == "http":
            await self.layers(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call by its route. Raises HTTPException for an unknown path or method."""
        if scope["type"] != "http":
            await self.router(scope, receive, send)
            return
        call = scope["turret"].call
        route = self.calls.get((scope["method"], call.name))
        if route is None:
            allowed = ", ".join(sorted(method for method, name in self.calls if name == call.name))
            raise HTTPException(405, headers={"Allow": allowed}) if allowed else HTTPException(404)
        scope.update(route=route, endpoint=route.endpoint, path_params=dict(call.parameters))
        await route.app(scope, receive, send)


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
        await _start(components)
        yield
        await components.close()

    app = Application(
        title="Turret",
        version=RELEASE,
        lifespan=lifespan,
        openapi_url=None,  # `probes` serves files instead, with a page that loads no scripts
        docs_url=None,
        redoc_url=None,
    )
    app.state.components = components
    routers = (*ROUTERS, page.router) if settings.page else ROUTERS
    app.calls = {
        (method, route.path): route
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    app.layers = _layers(app, components)
    return app


def _layers(app: Application, components: Components) -> ASGIApp:
    """Put the layers around FastAPI, the innermost first."""
    settings, metrics, context = components.settings, components.metrics, components.context
    layers: ASGIApp = partial(FastAPI.__call__, app)
    layers = recommend.Innermost(layers, components)
    layers = admission = Admission(layers, settings, metrics.count_refusal)
    metrics.refresh_with(partial(admission.show, metrics))
    layers = Authentication(
        layers, components.keyring, settings.metrics_open, components.admin_port, settings.workers
    )
    traces, logs = components.observation.traces, components.observation.logs
    trace, log = traces.record if traces else None, logs.answered if settings.access_log else None
    pictures, is_draining = settings.page_pictures, lambda: context.is_draining
    return Edge(layers, metrics, settings.bundles, pictures, is_draining, trace, log)


async def _start(components: Components) -> None:
    """Read the state that the first answers need, and start the background tasks."""
    components.observation.logs.start()
    if components.answer_log is not None:
        components.answer_log.start()
    await components.follower.join()
    holder, background = components.model_holder, components.background
    live = holder.live if holder.version is not None else None
    for model in (live, holder.traffic.canary, holder.traffic.shadow):
        if model is not None:
            await components.overlay.for_answer(model.bundle)
    background.start("record", components.follower.follow)
    background.start("metrics", components.observation.follow)
    background.start("items", components.overlay.watch)
    background.start("keys", components.keyring.follow)
    background.start("popular", components.popular.follow)

    async def warn() -> None:
        for warning in await components.histories.health_warnings():
            _log.warning("%s", warning)

    async def tell_first() -> None:
        live = await holder.first()
        with suppress(OSError):  # standard output may be closed by now
            print(f"turret serves version {live.version}", flush=True)

    if components.context.number == 0:  # one of the workers tells the operator
        background.start("store warnings", warn)
        if holder.version is None:
            background.start("first version", tell_first)
