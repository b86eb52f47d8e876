"""The page at /docs: the OpenAPI document as HTML without scripts.

FastAPI's own page loads scripts from a public network, which the content security policy forbids.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

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
# The sections by the tag of their calls, those that a client needs first.
_SECTIONS = {
    "recommend": "Recommendations",
    "histories": "Events and users",
    "items": "Items",
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
        heading: [one for one in calls if tag in one[2]["tags"]] for tag, heading in _SECTIONS.items()
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
    return template.render(document=document, sections=[one for one in sections.items() if one[1]])


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
