"""The types of the calls for TypeScript, made from the OpenAPI document: `make docs` writes turret.d.ts."""

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from benchmarks.api_document import DOCUMENT

TYPES = DOCUMENT.with_name("turret.d.ts")
_PLAIN = {
    "boolean": "boolean",
    "integer": "number",
    "null": "null",
    "number": "number",
    "object": "Record<string, unknown>",
    "string": "string",
}
Described = dict[str, Any]


def as_types(document: Described) -> str:
    """The declarations of all schemas, and of `Calls`, which has the body and the answer of each call."""
    release = document["info"]["version"]
    head = f"/** The types of the calls of Turret {release}; `make docs` makes them from openapi.json. */"
    schemas = document["components"]["schemas"].items()
    declarations = [declaration(name, schema) for name, schema in schemas]
    calls = [
        f'  "{method.upper()} {path}": {described_call(call)};'
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    ]
    listed = "\n".join(["/** Each call by its method and path. */", "export interface Calls {", *calls, "}"])
    return "\n\n".join([head, *declarations, listed]) + "\n"


def declaration(name: str, schema: Described) -> str:
    """An interface for an object with fields, an alias for anything else."""
    text = comment(schema.get("description", ""))
    if "properties" not in schema:
        return f"{text}export type {name} = {type_of(schema)};"
    return f"{text}export interface {name} {{\n" + "\n".join(fields(schema)) + "\n}"


def fields(schema: Described) -> Iterator[str]:
    """The lines of an object's fields; a field that may be left out has a question mark."""
    required = set(schema.get("required", ()))
    for name, field in schema["properties"].items():
        key = name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name)
        text = comment(field.get("description", ""), "  ")
        yield f"{text}  {key}{'' if name in required else '?'}: {type_of(field)};"
    if isinstance(schema.get("additionalProperties"), dict):
        yield "  [name: string]: unknown;"


def comment(text: str, indent: str = "") -> str:
    """A description in front of what it describes."""
    if not text:
        return ""
    lines = textwrap.wrap(" ".join(text.replace("*/", "* /").split()), 105)
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    return "".join([f"{indent}/**\n", *(f"{indent} * {line}\n" for line in lines), f"{indent} */\n"])


def type_of(schema: Described) -> str:
    """The type of a schema; bounds and patterns have no form in TypeScript."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    for choice, mark in (("anyOf", " | "), ("oneOf", " | "), ("allOf", " & ")):
        if choice in schema:
            return mark.join(dict.fromkeys(grouped(type_of(each), mark) for each in schema[choice]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_PLAIN[each] for each in kind))
    if kind == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(type_of(each) for each in schema['prefixItems'])}]"
        return f"{grouped(type_of(schema.get('items', {})), '[]')}[]"
    if kind == "object":
        return object_type(schema)
    return _PLAIN.get(kind or "", "unknown")


def object_type(schema: Described) -> str:
    """An object within another type."""
    if "properties" in schema:
        return "{ " + " ".join(line.strip() for line in fields(schema)) + " }"
    values = schema.get("additionalProperties")
    return f"Record<string, {type_of(values)}>" if isinstance(values, dict) else _PLAIN["object"]


def grouped(text: str, mark: str) -> str:
    """A type in brackets where `mark` binds it closer than its own parts."""
    is_loose = (" | " in text and mark != " | ") or (" & " in text and mark == "[]")
    return f"({text})" if is_loose and not re.fullmatch(r"Record<.*>|\{.*\}", text) else text


def described_call(call: Described) -> str:
    """The parameters, the body and the answer of a call."""
    parts = []
    for place in ("path", "query"):
        named = [one for one in call.get("parameters", ()) if one["in"] == place]
        if named:
            listed = " ".join(
                f"{one['name']}{'' if one.get('required') else '?'}: {type_of(one['schema'])};"
                for one in named
            )
            parts.append(f"{place}: {{ {listed} }}")
    if "requestBody" in call:
        parts.append(f"body: {content_type(call['requestBody']['content'])}")
    parts.append(f"answer: {content_type(call['responses']['200']['content'])}")
    return f"{{ {'; '.join(parts)} }}"


def content_type(content: Described) -> str:
    """The type of a body: of JSON its schema, of bytes an ArrayBuffer, of anything else a text."""
    types = {"application/octet-stream": "ArrayBuffer"}
    return " | ".join(
        type_of(form["schema"]) if name == "application/json" else types.get(name, "string")
        for name, form in sorted(content.items())
    )
