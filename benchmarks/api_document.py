"""The OpenAPI 3.1 document of all calls, which is valid for every version and with every key.

`make docs` writes the calls, their parameters, bodies, keys and refusals, as the code has them. The name of
an answer is written in the document by hand; its schema is that of the client (`turret.client.answers`), as
the service makes answers without models. The tests compare the answers of every call with the document.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import orjson
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from markupsafe import Markup
from pydantic import BaseModel, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from turret.client import answers
from turret.data.features.texts import SEPARATORS
from turret.data.manifest import FileHash
from turret.service.calls import CALLS
from turret.service.http.app import RELEASE, ROUTERS
from turret.service.http.routes.dependencies import Reads
from turret.service.http.routes.probes import STATIC
from turret.service.versions.folder_commands import CheckedVersion
from turret.service.versions.record import Activation
from turret.tower.catalog.columns import LARGEST
from turret.tower.catalog.filters import MAX_CONDITIONS, MAX_VALUES
from turret.tower.format.manifest import FileName, Manifest

Described = dict[str, Any]
TEMPLATES = Path(__file__).parent / "templates"
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "{} characters or more",
    "maxLength": "up to {} characters",
    "minItems": "{} or more",
    "maxItems": "up to {}",
    "minProperties": "{} names or more",
    "maxProperties": "up to {} names",
}
# The sections by the tag of their calls; the sections that a client needs come first.
_SECTIONS = {
    "recommend": "Recommendations",
    "histories": "Events and users",
    "items": "Items",
    "rules": "Rules",
    "versions": "Versions",
    "admin": "Administration",
    "probes": "Probes and metrics",
}


def api_page(document: Described) -> str:
    """Format a document as HTML: the contents, the calls by section, the bodies."""
    calls = [
        (method, path, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    ]
    sections = {
        heading: [call for call in calls if tag in call[2]["tags"]] for tag, heading in _SECTIONS.items()
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "anchor": _anchor,
        "body": lambda described: _describe(_content(described)),
        "describe": _describe,
    }
    template = environment.get_template("docs.html.j2")
    return template.render(
        document=document, sections=[section for section in sections.items() if section[1]]
    )


def _anchor(text: str) -> str:
    return re.sub(r"\W+", "_", text)


def _content(described: Described) -> Described:
    first: Described = next(iter(described.get("content", {}).values()), {})
    schema: Described = first.get("schema", {})
    return schema


def _describe(schema: Described) -> Markup:
    if "$ref" in schema:
        return Markup('<a href="#{0}">{0}</a>').format(schema["$ref"].rpartition("/")[2])
    choices: list[Described] = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if choices:
        return Markup(" or ").join(map(_describe, choices))
    return Markup(", ").join(_parts(schema))


def _parts(schema: Described) -> Iterator[str]:
    if "const" in schema or "enum" in schema:
        values: list[Any] = schema.get("enum", [schema.get("const")])
        yield Markup(" or ").join(map(_code, values))
    else:
        yield str(schema.get("type", "any value"))
    if isinstance(schema.get("items"), dict):
        yield Markup("of {}").format(_describe(schema["items"]))
    if "x-line" in schema:
        yield Markup("each line: {}").format(_describe(schema["x-line"]))
    if isinstance(schema.get("additionalProperties"), dict):
        yield Markup("by name: {}").format(_describe(schema["additionalProperties"]))
    yield from (bound.format(schema[name]) for name, bound in _BOUNDS.items() if name in schema)
    if "pattern" in schema:
        yield _code(schema["pattern"])
    if "format" in schema:
        yield schema["format"]
    if schema.get("default") is not None:
        yield Markup("by default {}").format(_code(schema["default"]))


def _code(value: object) -> Markup:
    return Markup("<code>{}</code>").format(value)


DOCUMENT = STATIC / "openapi.json"
_KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "`turret keys new` makes one. It needs the named scope: read, write, rules or admin.",
}
_SECONDS: Described = {
    "description": "Seconds to wait before a retry.",
    "required": True,
    "schema": {"type": "integer", "minimum": 0},
}
_SCHEME: Described = {
    "description": "The authentication scheme.",
    "required": True,
    "schema": {"type": "string", "const": "Bearer"},
}
_MEANINGS = {
    "400": "The body is not JSON, or is nested too deep.",
    "401": "The key is missing or wrong.",
    "403": "The key lacks the scope of this call.",
    "404": "There is no such item or version.",
    "409": "The current state doesn't allow the request; the message has the reason and the remedy.",
    "413": "The body is too large.",
    "415": "The content type is not JSON, or the body is compressed.",
    "422": "A field or a parameter is unknown or has an invalid value; `field` names it.",
    "429": "Too many requests with this key.",
    "503": "Unavailable: overload, no live version, a store that doesn't answer, or shutdown; retry later.",
    "4XX": "Any other client error: an unknown path or method, or a request that arrived too slowly.",
    "5XX": "An internal error; the log of the service has the details.",
}
_HEADERS: dict[str, Described] = {
    "401": {"WWW-Authenticate": _SCHEME},
    "429": {"Retry-After": _SECONDS},
    "503": {"Retry-After": _SECONDS},
}
_OPEN = ("/metrics",)  # unless the operator closes them
_TEXT = {"type": "string"}
# Statuses of the answers of a call that no rule below adds.
_OWN = ("200", "404", "409")


class VersionAnswer(Manifest):
    """The live version: its manifest without the files, and since when it is live."""

    files: dict[FileName, FileHash] = Field(exclude=True)
    since: str


class VersionsAnswer(BaseModel):
    """The live version, if there is one yet, and every bundle in the folder, oldest first."""

    live: str | None
    versions: tuple[CheckedVersion, ...]


class ActivationsAnswer(BaseModel):
    """The latest activations and refusals, newest first."""

    activations: tuple[Activation, ...]


def api_document() -> Described:
    """Describe every call; the answer of a new call has no schema until it is written by hand."""
    written = orjson.loads(DOCUMENT.read_bytes())
    app = FastAPI()
    bodies: dict[tuple[str, str], Reads[Any]] = {}
    for router in sorted(ROUTERS, key=lambda router: "probes" in router.tags):  # probes last
        app.include_router(router)
        bodies |= dict(_bodies(router))
    document = get_openapi(title="Turret", version=RELEASE, description="What next?", routes=app.routes)
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            scope = None if path in _OPEN else CALLS[method.upper(), path].scope
            if scope is not None:
                call["security"] = [{"key": [scope]}]
            for parameter in call.get("parameters", ()):
                parameter["schema"] = _without_null(parameter["schema"])
            if (reader := bodies.get((method.upper(), path))) is not None:
                call["requestBody"] = {"required": True, "content": _content_of(reader)}
            known = written["paths"].get(path, {}).get(method, call)["responses"]
            call["responses"] = {status: known[status] for status in known if status in _OWN}
            _add_refusals(call)
    document["components"] = {
        "securitySchemes": {"key": _KEY},
        "responses": {status: _refusal(status) for status in _MEANINGS},
    }
    document["components"]["schemas"] = _used(
        document, _schemas({reader.schema for reader in bodies.values()})
    )
    return document


def as_text() -> str:
    """The document as it is in the file."""
    return orjson.dumps(api_document(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _without_null(schema: Described) -> Described:
    """The schema of an optional parameter without null: it may be left out, and can't be null."""
    choices = [choice for choice in schema.pop("anyOf", ()) if choice != {"type": "null"}]
    return {**schema, **choices[0]} if choices else schema


def reference(model: str) -> Described:
    """Refer to a schema of the document."""
    return {"$ref": f"#/components/schemas/{model}"}


def _add_refusals(call: Described) -> None:
    """Refer to the error responses of a call: its own, and those of its body and its key."""
    answers = call["responses"]
    statuses = {"422", "429", "503", "4XX", "5XX", *(answers.keys() - {"200"})}
    if "security" in call:
        statuses |= {"401", "403"}
    if "requestBody" in call:
        statuses |= {"400", "413", "415"}
    answers |= {status: {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}


def _refusal(status: str) -> Described:
    content = {"application/json": {"schema": reference("ErrorAnswer")}}
    headers = {"headers": _HEADERS[status]} if status in _HEADERS else {}
    return {"description": _MEANINGS[status], "content": content, **headers}


def _content_of(reader: Reads[Any]) -> Described:
    schema = reference(reader.schema.__name__)
    if reader.most is None:
        return {"application/json": {"schema": schema}}
    # OpenAPI 3.1 has no schema for the lines of a text.
    described = f"JSON lines, at most {reader.most:,} of them."
    return {"application/x-ndjson": {"schema": {**_TEXT, "description": described, "x-line": schema}}}


def _bodies(router: APIRouter) -> Iterator[tuple[tuple[str, str], Reads[Any]]]:
    """The reader of each call's body, which FastAPI does not know."""
    for route in router.routes:
        assert isinstance(route, APIRoute)
        for inner in route.dependant.dependencies:
            if isinstance(inner.call, Reads):
                for method in route.methods or ():
                    yield (method, route.path_format), inner.call


def _schemas(bodies: set[type[BaseModel]]) -> Described:
    """The schemas of bodies and answers; pydantic has none for filters and excluded pairs."""
    # The client's models of versions have fewer fields than these three of the service.
    of_service = (VersionAnswer, VersionsAnswer, ActivationsAnswer)
    schemas = {
        **_defined(answers.Answer.__subclasses__(), "validation"),
        **_defined(of_service, "serialization"),
        **_defined(bodies, "validation"),
    }
    times = {"not": _holds("history_times", history_times={"type": "array"}, history={"type": "null"})}
    for name in ("RecommendRequest", "ComparedRequest", "SearchRequest", "SimilarRequest"):
        schemas[name]["properties"]["filter"] = {"anyOf": [reference("Filter"), {"type": "null"}]}
        schemas[name]["allOf"] = [
            *([times] if "history_times" in schemas[name]["properties"] else []),
            # Pages follow the order of the scores.
            {"not": _holds("cursor", "diversity", cursor=_TEXT, diversity={"exclusiveMinimum": 0})},
            {"not": _holds("cursor", "cap", cursor=_TEXT, cap={"minProperties": 1})},
        ]
    schemas["SearchRequest"]["anyOf"] = [
        _holds("query", query=_TEXT),
        _holds("features", features={"minProperties": 1}),
    ]
    schemas["ItemPatchBody"]["anyOf"] = [
        _holds(part, **{part: {"minProperties": 1}}) for part in ("features", "fields")
    ]
    schemas["RuleBody"]["properties"]["filter"] = {"anyOf": [reference("Filter"), {"type": "null"}]}
    schemas["RuleBody"]["anyOf"] = [
        _holds("filter", filter={"type": "object", "minProperties": 1}),
        _holds("cap", cap={"minProperties": 1}),
    ]
    return schemas | {"Filter": _filter(), "FieldFilter": _condition()}


def _defined(models: Iterable[type[BaseModel]], mode: JsonSchemaMode) -> Described:
    _, schemas = models_json_schema(
        [(model, mode) for model in models], ref_template=reference("{model}")["$ref"]
    )
    defined: Described = schemas["$defs"]
    return defined


def _holds(*required: str, **properties: Described) -> Described:
    """The schema of an object that has the `required` properties, and for which these `properties` hold."""
    return {"required": list(required), "properties": properties}


def _filter() -> Described:
    filters = {"type": "array", "maxItems": MAX_CONDITIONS, "items": reference("Filter")}
    return {
        "type": "object",
        "title": "Filter",
        "description": "Conditions on catalog fields, all of which have to hold; docs/filters.md has the "
        "operators. At most 8 levels, 100 conditions, 1000 values.",
        "properties": {"all": filters, "any": filters, "not": reference("Filter")},
        "additionalProperties": reference("FieldFilter"),
    }


def _condition() -> Described:
    number = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
    bound = {"anyOf": [{"type": "string"}, number]}
    value = {"anyOf": [*bound["anyOf"], {"type": "boolean"}]}
    values = {"type": "array", "items": value, "maxItems": MAX_VALUES}
    operators = {"equals": value, "any_of": values, "none_of": values, "not_null": {"type": "boolean"}}
    operators["under"] = {"type": "string", "pattern": f"[^ {SEPARATORS}]"}
    operators |= dict.fromkeys(("gte", "gt", "lte", "lt"), bound)
    return {"type": "object", "properties": operators, "minProperties": 1, "additionalProperties": False}


def _used(document: Described, schemas: Described) -> Described:
    """The schemas that the calls reference, directly or indirectly."""
    used: Described = {}
    waiting = list(_references([document["paths"], document["components"]["responses"]]))
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name] = schemas[name]
            waiting += _references(schemas[name])
    return dict(sorted(used.items()))


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if str(part.get("$ref", "")).startswith("#/components/schemas/"):
            yield part["$ref"].rpartition("/")[2]
        for inner in part.values():
            yield from _references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _references(inner)
