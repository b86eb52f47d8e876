"""The OpenAPI 3.1 document; `python -m turret.service.http.openapi.document` writes docs/openapi.json.

A running service describes its live version and its own keys. The committed document is valid for every
version, with every key.
"""

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from turret.data.vocabulary import ID_LENGTH
from turret.service.auth.access import needed_scope
from turret.service.http.openapi.live_schemas import live_schemas
from turret.service.http.openapi.openapi_errors import add_refusals
from turret.service.http.routes import (
    admin,
    catalog,
    events,
    item_map,
    items,
    probes,
    recommend,
    users,
    versions,
)
from turret.service.http.routes.responses import ErrorAnswer
from turret.service.schemas.fields import K_LIMIT
from turret.service.schemas.items import ItemBody
from turret.service.schemas.openapi_helpers import LATER, Described, reference
from turret.service.schemas.requests import (
    ActivateRequest,
    BatchRequest,
    EventsRequest,
    RecommendRequest,
    RoutesRequest,
)
from turret.tower.bundle.bundle import Bundle

PUBLIC: tuple[APIRouter, ...] = (
    recommend.router,
    catalog.router,
    item_map.router,
    items.router,
    events.router,
    users.router,
    versions.router,
    probes.router,
)
ADMIN: tuple[APIRouter, ...] = (admin.router,)
# Read by `dependencies.reads`, so FastAPI doesn't know them.
_READ: tuple[type[BaseModel], ...] = (
    ActivateRequest,
    BatchRequest,
    EventsRequest,
    ItemBody,
    RecommendRequest,
    RoutesRequest,
)
_PARAMETERS: dict[str, Described] = {
    "item_id": reference("ItemId"),
    "user_id": {"type": "string", "minLength": 1, "maxLength": ID_LENGTH},
    "k": {"type": "integer", "minimum": 1, "maximum": K_LIMIT, "default": 10},
    "query": {"type": "string", "maxLength": catalog.QUERY_LENGTH},
    "id": {"type": "array", "items": reference("ItemId"), "minItems": 1, "maxItems": catalog.PAGE_LIMIT},
    "field": {"type": "string", "minLength": 1},
    "point": {
        "type": "array",
        "items": {"type": "integer", "minimum": 0},
        "minItems": 1,
        "maxItems": item_map.MOST_ITEMS,
    },
    "limit": {"type": "integer", "minimum": 1, "maximum": catalog.PAGE_LIMIT, "default": 20},
    "cursor": {"type": "string", "pattern": "^[0-9]{1,4}$"},
}
_KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "`turret keys new` makes one. It needs the named scope: read, write or admin.",
}


def _release() -> str:
    try:
        return version("turret")
    except PackageNotFoundError:
        return "0"


RELEASE = _release()
# Whether a call needs a key, by its scope and path.
IsClosed = Callable[[str, str], bool]


def describe(app: FastAPI, is_closed: IsClosed, bundle: Bundle | None) -> Described:
    """Describe an application's calls, with the schemas of a bundle if given."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas |= _schemas() | live_schemas(bundle)
    document["components"]["securitySchemes"] = {"key": _KEY}
    calls = [(path, *named) for path, methods in document["paths"].items() for named in methods.items()]
    for path, method, call in calls:
        scope = needed_scope(method.upper(), path)
        needs_key = scope is not None and is_closed(scope, path)
        if needs_key:
            call["security"] = [{"key": [scope]}]
        for parameter in call.get("parameters", ()):
            parameter["schema"] = _PARAMETERS[parameter["name"]]
        add_refusals(call, needs_key)
    document["components"]["schemas"] = _used(document)
    return document


def whole() -> Described:
    """The committed document: every call, with every key, of no particular version."""
    app = FastAPI(title="Turret", version=RELEASE, description="What next?")
    for router in (*PUBLIC, *ADMIN):
        app.include_router(router)
    return describe(app, lambda _, path: path != "/metrics", None)


def _schemas() -> Described:
    described: tuple[type[BaseModel], ...] = (*_READ, ErrorAnswer)
    _, models = models_json_schema(
        [(schema, "validation") for schema in described],
        ref_template=reference("{model}")["$ref"],
    )
    definitions: Described = _with_references(models["$defs"])
    return definitions


def _with_references(part: Any) -> Any:
    """Replace the placeholders of `openapi_helpers.later` by references, dropping their siblings."""
    if isinstance(part, dict):
        if LATER in part:
            return reference(part[LATER])
        return {name: _with_references(inner) for name, inner in part.items()}
    return [_with_references(inner) for inner in part] if isinstance(part, list) else part


def _used(document: Described) -> Described:
    """The schemas that the calls reference, directly or indirectly."""
    schemas: Described = document["components"]["schemas"]
    used: Described = {}
    waiting = list(_references(document["paths"]))
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name] = schemas[name]
            waiting += _references(schemas[name])
    return dict(sorted(used.items()))


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].rpartition("/")[2]
        for inner in part.values():
            yield from _references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _references(inner)


def written() -> str:
    """The committed document as text."""
    return orjson.dumps(whole(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


if __name__ == "__main__":
    sys.stdout.write(written())
