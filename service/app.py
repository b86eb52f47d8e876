"""The application: what is served, and under which paths."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, FastAPI

from service import documents, refusals
from service.fast_path import RecommendPath
from service.file_watch import watch_files
from service.metrics import MetricsMiddleware
from service.routes import admin, events, items, probes, recommend, users, versions
from service.seat import Seat
from service.settings import Settings
from service.state import State

_PUBLIC = (recommend.router, items.router, events.router, users.router, versions.router, probes.router)


def create_app(settings: Settings, seat: Seat | None = None) -> FastAPI:
    """Open the current bundle and the store, and make the application that answers from them.

    With `settings.wait` it begins without a bundle, and answers 503 where it needs one until one is current.
    With `settings.admin_port` the admin calls are left to `create_admin_app`. `seat` is the place of one
    worker among several. Raises ServiceError or BundleError with a sentence when something can't be opened.
    """
    state = State(settings, seat)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            watching = watch_files(state.slot, state.metrics, settings.watch_seconds)
            beside = [tasks.create_task(one) for one in (_fill(state), watching, _say_notes(state))]
            yield
            for task in beside:
                task.cancel()
        await state.close()

    app = FastAPI(
        title="Turret",
        version=_version(),
        description="What next?",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.add_middleware(RecommendPath, state=state)  # inside of what is added later
    return _furnish(app, state, _PUBLIC if settings.admin_port is not None else (*_PUBLIC, admin.router))


def create_admin_app(app: FastAPI) -> FastAPI:
    """Make the application of the admin port, beside an `app` that was made with `settings.admin_port`."""
    return _furnish(FastAPI(title="Turret admin", version=_version()), app.state.service, (admin.router,))


async def _fill(state: State) -> None:
    if state.slot.version is None and await state.slot.fill():
        print(f"turret serves version {state.slot.live.version}", flush=True)


async def _say_notes(state: State) -> None:
    """Tell the operator what the store has to say, from one of the workers."""
    for note in await state.store.notes() if state.seat.number == 0 else ():
        print(f"turret: {note}", file=sys.stderr, flush=True)


def _furnish(app: FastAPI, state: State, routers: tuple[APIRouter, ...]) -> FastAPI:
    app.state.service = state
    app.add_middleware(MetricsMiddleware, metrics=state.metrics)
    for router in routers:
        app.include_router(router)
    documents.install(app)
    refusals.install(app)
    return app


def _version() -> str:
    try:
        return version("turret")
    except PackageNotFoundError:
        return "0"
