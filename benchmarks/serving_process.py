"""The service with a bare FastAPI route beside it in one process, on one processor: what the route costs is
what the framework costs."""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import orjson
from fastapi import FastAPI, Response
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.load import keep_to
from service.app import create_app
from service.serving import listen, make_server, url_of
from service.settings import read_settings

BARE = "/bare"


class Question(BaseModel):
    """The body of the bare route."""

    history: list[int | str]
    k: int = 10


def bare_route(answer: bytes) -> FastAPI:
    """An application whose one route reads a question into a model, and writes the same answer every time."""
    app = FastAPI()
    parsed = orjson.loads(answer)

    @app.post(BARE)
    async def bare(question: Question) -> Response:
        return Response(orjson.dumps(parsed), media_type="application/json")

    return app


class Beside:
    """Sends the calls of the bare route to it, past everything that is the service's, and all others on."""

    def __init__(self, app: ASGIApp, bare: ASGIApp) -> None:
        self._app = app
        self._bare = bare

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call."""
        app = self._bare if scope.get("path") == BARE else self._app
        await app(scope, receive, send)


async def _serve(given: dict[str, Any]) -> None:
    settings = read_settings(bundles=Path(given["bundles"]), port=0, store="memory://")
    app = create_app(settings)
    beside: Any = Beside(app, bare_route(given["answer"].encode()))
    server = make_server(settings, beside, "on")
    with listen("127.0.0.1", 0) as listening:
        print(url_of(listening), flush=True)
        await server.serve(sockets=[listening])


def main() -> None:
    """Serve until killed; what to serve is read from standard input as JSON."""
    given = json.load(sys.stdin)
    keep_to(given["cpu"])
    import uvloop

    uvloop.run(_serve(given))


if __name__ == "__main__":
    main()
