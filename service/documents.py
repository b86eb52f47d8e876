"""What `/docs` needs to know of calls that read and write their bodies by hand."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.schemas import (
    ActivateRequest,
    BatchRequest,
    ErrorAnswer,
    EventsRequest,
    RecommendRequest,
    RoutesRequest,
)

REQUESTS: tuple[type[BaseModel], ...] = (
    ActivateRequest,
    BatchRequest,
    EventsRequest,
    RecommendRequest,
    RoutesRequest,
)
_COMPONENT = "#/components/schemas/{model}"


def body_of(schema: type[BaseModel]) -> dict[str, Any]:
    """Describe a request's body, for a route's `openapi_extra`."""
    content = {"application/json": {"schema": {"$ref": _COMPONENT.format(model=schema.__name__)}}}
    return {"requestBody": {"required": True, "content": content}}


def answers(schema: type[BaseModel] | None = None) -> dict[int | str, dict[str, Any]]:
    """Describe a call's answers, for a route's `responses`."""
    refused: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorAnswer, "description": "Refused"}}
    return refused if schema is None else {200: {"model": schema}, **refused}


def install(app: FastAPI) -> None:
    """Make `app` describe the request bodies too."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _, definitions = models_json_schema(
                [(schema, "validation") for schema in REQUESTS], ref_template=_COMPONENT
            )
            components = described.setdefault("components", {}).setdefault("schemas", {})
            components |= definitions["$defs"]
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend the schema
