"""The comparison that tests/service/test_openapi.py relies on sees what breaks a client, and nothing else."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.openapi_changes import Document, breaking

OLD: Document = {
    "paths": {
        "/things": {
            "post": {
                "parameters": [{"in": "query", "name": "dry", "required": False}],
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}
                },
                "responses": {
                    "200": {
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
                    }
                },
            }
        }
    },
    "components": {
        "schemas": {
            "Thing": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                    "tags": {"type": "array", "maxItems": 9, "items": {"type": "string", "minLength": 1}},
                    "size": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                },
            },
            "Answer": {
                "type": "object",
                "required": ["stored", "source"],
                "properties": {"stored": {"type": "integer"}, "source": {"enum": ["a", "b"]}},
            },
        }
    },
}


def post(document: Document) -> Any:
    return document["paths"]["/things"]["post"]


def thing(document: Document) -> Any:
    return document["components"]["schemas"]["Thing"]


def answer(document: Document) -> Any:
    return document["components"]["schemas"]["Answer"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda new: new["paths"].clear(), "POST /things is gone"),
        (lambda new: post(new).update(parameters=[]), "lost the parameter dry"),
        (
            lambda new: post(new)["parameters"].append({"in": "query", "name": "x", "required": True}),
            "needs the parameter x",
        ),
        (lambda new: post(new)["responses"].clear(), "no longer answers 200"),
        (lambda new: thing(new)["required"].append("size"), "now needs size"),
        (lambda new: thing(new)["properties"].pop("tags"), "may no longer hold tags"),
        (lambda new: thing(new)["properties"].update(name={"type": "string"}), "may no longer be integer"),
        (lambda new: thing(new)["properties"]["tags"].update(maxItems=5), "maxItems 5"),
        (lambda new: thing(new)["properties"]["tags"]["items"].update(minLength=2), "minLength 2"),
        (lambda new: answer(new)["required"].remove("stored"), "need no longer hold stored"),
        (lambda new: answer(new)["properties"].pop("stored"), "no longer holds stored"),
        (lambda new: answer(new)["properties"]["source"]["enum"].append("c"), "may now be 'c'"),
        (lambda new: answer(new)["properties"].update(stored={"type": "string"}), "may now be string"),
    ],
)
def test_what_breaks_a_client_is_named(change: Callable[[Document], object], words: str) -> None:
    new = copy.deepcopy(OLD)
    change(new)
    (found,) = breaking(OLD, new)
    assert words in found


@pytest.mark.parametrize(
    "change",
    [
        lambda new: new["paths"].update({"/more": {}}),
        lambda new: thing(new)["properties"].update(more={"type": "string"}),
        lambda new: thing(new)["required"].clear(),
        lambda new: thing(new)["properties"]["tags"].update(maxItems=20),
        lambda new: answer(new)["properties"].update(more={"type": "string"}),
        lambda new: answer(new)["properties"]["source"]["enum"].remove("b"),
        lambda new: post(new)["parameters"].append({"in": "query", "name": "x", "required": False}),
    ],
)
def test_what_is_only_added_or_allowed_breaks_nothing(change: Callable[[Document], object]) -> None:
    new = copy.deepcopy(OLD)
    change(new)
    assert breaking(OLD, new) == []
