"""The page at /docs: the OpenAPI document as HTML without scripts.

FastAPI's own page loads scripts from a public network, which the content security policy forbids.
"""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

Described = dict[str, Any]
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code { font: 13px ui-monospace, monospace; background: #8882; padding: 1px 4px; border-radius: 3px }
section { border-top: 1px solid #8886; margin-top: 1.5rem; overflow-x: auto } nav li { margin: 2px 0 }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: 2px 12px 2px 0 } p { white-space: pre-line }
:root { color-scheme: light dark }
"""
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
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{title}</title><style>{_STYLE}</style>'
    )
    machine = '<p>For programs: <a href="openapi.json">/openapi.json</a> (OpenAPI 3.1).</p>'
    refusals = document["components"]["responses"]
    contents = calls = ""
    for tag, heading in _SECTIONS.items():
        found = [
            (method, path, call)
            for path, methods in document["paths"].items()
            for method, call in methods.items()
            if tag in call["tags"]
        ]
        if found:
            contents += f"<h3>{heading}</h3><ul>{''.join(_entry(*each) for each in found)}</ul>"
            calls += f"<h2>{heading}</h2>{''.join(_call(*each, refusals) for each in found)}"
    schemas = "".join(
        f'\n<section id="{escape(name)}"><h3>{escape(name)}</h3>{_schema(schema)}</section>'
        for name, schema in document["components"]["schemas"].items()
    )
    bodies = '<h2 id="bodies">Bodies</h2>'
    contents = f'<nav><h2>Contents</h2>{contents}<h3><a href="#bodies">Bodies</a></h3></nav>'
    return f"{head}<h1>{title}</h1>{machine}{contents}{calls}{bodies}{schemas}</html>\n"


def _anchor(method: str, path: str) -> str:
    return re.sub(r"\W+", "_", method + path)


def _entry(method: str, path: str, call: Described) -> str:
    effect = escape(call.get("description", "").partition("\n")[0])
    return f'\n<li><a href="#{_anchor(method, path)}">{method.upper()} {escape(path)}</a> {effect}'


def _call(method: str, path: str, call: Described, refusals: Described) -> str:
    scopes = [scope for keys in call.get("security", ()) for names in keys.values() for scope in names]
    key = f"<p>Needs a key of the scope {escape(', '.join(scopes))}.</p>" if scopes else ""
    rows = [(part["name"], part["in"], _describe(part["schema"])) for part in call.get("parameters", ())]
    if "requestBody" in call:
        rows.append(("body", "JSON", _describe(_content(call["requestBody"]))))
    parameters = _table("<th>parameter<th>in<th>schema", rows)
    responses = {
        status: refusals[status] if "$ref" in each else each for status, each in call["responses"].items()
    }
    answers = [
        (status, escape(response.get("description", "")), _describe(_content(response)))
        for status, response in sorted(responses.items())
    ]
    return (
        f'\n<section id="{_anchor(method, path)}">'
        f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
        f"<p>{escape(call.get('description', ''))}</p>{key}{parameters}"
        f"{_table('<th>status<th>meaning<th>body', answers)}</section>"
    )


def _content(described: Described) -> Described:
    first: Described = next(iter(described.get("content", {}).values()), {})
    schema: Described = first.get("schema", {})
    return schema


def _schema(schema: Described) -> str:
    described = f"<p>{escape(schema.get('description', ''))}</p>" if "description" in schema else ""
    if "properties" not in schema:
        return f"{described}<p>{_describe(schema)}</p>"
    needed = schema.get("required", ())
    rows = [
        (name, "required" if name in needed else "", _describe(member))
        for name, member in schema["properties"].items()
    ]
    return described + _table("<th>field<th><th>schema", rows)


def _table(head: str, rows: list[tuple[str, str, str]]) -> str:
    lines = "".join(f"\n<tr><td><code>{escape(name)}</code><td>{kind}<td>{text}" for name, kind, text in rows)
    return f"<table><tr>{head}{lines}</table>" if rows else ""


def _describe(schema: Described) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    choices: list[Described] = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if choices:
        return " or ".join(map(_describe, choices))
    return ", ".join(_parts(schema))


def _parts(schema: Described) -> Iterator[str]:
    if "const" in schema or "enum" in schema:
        values: list[Any] = schema.get("enum", [schema.get("const")])
        yield " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    else:
        yield escape(str(schema.get("type", "any value")))
    if isinstance(schema.get("items"), dict):
        yield f"of {_describe(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        yield f"by name: {_describe(schema['additionalProperties'])}"
    yield from (bound.format(schema[name]) for name, bound in _BOUNDS.items() if name in schema)
    if "pattern" in schema:
        yield f"<code>{escape(schema['pattern'])}</code>"
    if "format" in schema:
        yield escape(schema["format"])
    if schema.get("default") is not None:
        yield f"by default <code>{escape(str(schema['default']))}</code>"
