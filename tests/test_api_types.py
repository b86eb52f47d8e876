"""The types for TypeScript: the forms of a schema, and a compiler that accepts right calls alone."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.api_types import TYPES, as_types, type_of
from tests.support.places import ROOT
from tests.support.tools import TSC, require

PAGE = (ROOT / "docs" / "client.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer", "maximum": 3}, "number"),
        ({"type": ["integer", "string"]}, "number | string"),
        ({"$ref": "#/components/schemas/Item"}, "Item"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]}, "number | null"),
        (
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            "(string | number)[]",
        ),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"const": 1}]}, "[string, 1]"),
        ({"type": "array"}, "unknown[]"),
        ({"enum": ["a", None]}, '"a" | null'),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "Record<string, number>"),
        ({"type": "object", "properties": {"a-b": {"type": "string"}}}, '{ "a-b"?: string; }'),
        ({"allOf": [{"$ref": "#/x/A"}, {"anyOf": [{"$ref": "#/x/B"}, {"type": "null"}]}]}, "A & (B | null)"),
        ({}, "unknown"),
    ],
)
def test_a_schema_has_the_type_of_its_values(schema: dict[str, Any], expected: str) -> None:
    assert type_of(schema) == expected


def test_a_call_has_its_parameters_its_body_and_its_answer() -> None:
    shown = {"application/json": {"schema": {"type": "object", "properties": {"id": {"type": "string"}}}}}
    call = {
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "k", "in": "query", "schema": {"type": "integer"}},
        ],
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/x/Body"}}}},
        "responses": {"200": {"content": {**shown, "text/plain": {}}}},
    }
    document = {
        "info": {"version": "9"},
        "components": {
            "schemas": {"Body": {"description": "A body. */", "properties": {"k": {}}, "required": ["k"]}}
        },
        "paths": {"/v1/x/{id}": {"put": call}},
    }
    text = as_types(document)
    assert "/** A body. * / */\nexport interface Body {\n  k: unknown;\n}" in text
    assert (
        '"PUT /v1/x/{id}": { path: { id: string; }; query: { k?: number; }; body: Body; '
        "answer: { id?: string; } | string };"
    ) in text


def compiled(folder: Path, program: str) -> list[str]:
    """The complaints of tsc about a program beside the types."""
    (folder / "turret.d.ts").write_text(TYPES.read_text("utf-8"))
    (folder / "shop.ts").write_text(program)
    options = ["--noEmit", "--strict", "--skipLibCheck", "false", "--target", "es2022", "--module", "es2022"]
    command = [
        str(TSC),
        *options,
        "--moduleResolution",
        "bundler",
        "--lib",
        "es2022,dom",
        "shop.ts",
        "turret.d.ts",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return re.findall(r"error (TS\d+)", done.stdout)


@pytest.mark.process
def test_the_types_compile_with_the_example_of_the_page(tmp_path: Path) -> None:
    require("tsc")
    (program,) = re.findall(r"^```ts\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert compiled(tmp_path, program) == []


@pytest.mark.process
def test_a_misspelt_field_and_a_wrong_value_do_not_compile(tmp_path: Path) -> None:
    require("tsc")
    program = """
import type { RecommendAnswer, RecommendRequest } from "./turret";
export const misspelt: RecommendRequest = { user: "me" };
export const wrong: RecommendRequest = { k: "5" };
export const among: RecommendRequest = { among: "old" };
export const titleOf = (answer: RecommendAnswer): string => answer.items[0].title;
"""
    assert compiled(tmp_path, program) == ["TS2353", "TS2322", "TS2322", "TS2339"]
