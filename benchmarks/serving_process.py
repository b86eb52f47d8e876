"""The service and a bare FastAPI application, each on a port of its own, in one process on one processor."""

import asyncio
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import orjson
import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel

from benchmarks.load import keep_to
from turret.service.http.app import create_app
from turret.service.process.server import COLLECTED, config_of, reserve, url_of
from turret.service.settings import read_settings

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


async def _serve(arguments: dict[str, Any]) -> None:
    settings = read_settings(bundles=Path(arguments["bundles"]), port=0, store="memory://")
    bare = uvicorn.Config(
        bare_route(arguments["answer"].encode()), ws="none", log_level="error", access_log=False
    )
    servers = [uvicorn.Server(config) for config in (config_of(settings, create_app(settings)), bare)]
    with reserve("127.0.0.1", 0) as ours, reserve("127.0.0.1", 0) as theirs:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTED)  # as in a worker
        print(url_of(ours), url_of(theirs), flush=True)
        await asyncio.gather(servers[0].serve(sockets=[ours]), servers[1].serve(sockets=[theirs]))


def main() -> None:
    """Serve until killed; the bundles, the answer and the processor are read from standard input as JSON."""
    settings = json.load(sys.stdin)
    keep_to(settings["cpu"])
    import uvloop

    uvloop.run(_serve(settings))


if __name__ == "__main__":
    main()
