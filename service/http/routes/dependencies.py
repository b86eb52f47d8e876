"""What the functions of routes depend on: the parts of the service, and bodies."""

from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel

from turret.service.components import Components

Schema = TypeVar("Schema", bound=BaseModel)


async def _parts(request: Request) -> Components:  # a coroutine, as FastAPI calls plain functions in a thread
    parts: Components = request.app.state.components
    return parts


Parts = Annotated[Components, Depends(_parts)]


class Reads(Generic[Schema]):
    """A dependency that reads the body as `schema`; the OpenAPI document finds the schema here.

    Not FastAPI's own reading, which validates long bodies in the event loop.
    """

    def __init__(self, schema: type[Schema]) -> None:
        self.schema = schema

    async def __call__(self, request: Request) -> Schema:
        """Read the body of a request. Raises RequestError."""
        body: Schema = await request.app.state.bodies.read(request.receive, self.schema)
        return body
