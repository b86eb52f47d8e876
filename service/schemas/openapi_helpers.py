"""OpenAPI descriptions of bodies and answers, for routes that read and write them without FastAPI."""

from typing import Any

from pydantic import BaseModel

Described = dict[str, Any]


def reference(model: str) -> Described:
    """Refer to a schema of the document."""
    return {"$ref": f"#/components/schemas/{model}"}


def body_of(schema: type[BaseModel]) -> Described:
    """Describe a request's body, for a route's `openapi_extra`."""
    content = {"application/json": {"schema": reference(schema.__name__)}}
    return {"requestBody": {"required": True, "content": content}}


def answers(schema: type[BaseModel], *refusals: int) -> dict[int | str, Described]:
    """Describe a call's answers, for a route's `responses`.

    `refusals` are its particular error statuses; `benchmarks.api_document` adds those that follow from its
    body, parameters and scope.
    """
    return {200: {"model": schema}, **{status: {} for status in refusals}}
