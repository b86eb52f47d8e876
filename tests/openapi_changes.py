"""What in a new OpenAPI document breaks clients that were written for an old one."""

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]
_METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


def breaking(old: Document, new: Document) -> list[str]:
    """Name every call, field and value that clients of `old` rely on and `new` doesn't have, in words.

    A request breaks by what it may no longer hold or now has to hold, an answer by what it no longer holds.
    """
    return list(_Comparison(old, new).calls())


class _Comparison:
    def __init__(self, old: Document, new: Document) -> None:
        self._old = old
        self._new = new

    def calls(self) -> Iterator[str]:
        for path, methods in self._old["paths"].items():
            for method in (name for name in _METHODS if name in methods):
                there = self._new["paths"].get(path, {}).get(method)
                if there is None:
                    yield f"{method.upper()} {path} is gone"
                else:
                    yield from self._call(f"{method.upper()} {path}", methods[method], there)

    def _call(self, name: str, old: Document, new: Document) -> Iterator[str]:
        known = {(one["in"], one["name"]) for one in old.get("parameters", ())}
        for one in new.get("parameters", ()):
            if one.get("required") and (one["in"], one["name"]) not in known:
                yield f"{name} now needs the parameter {one['name']}"
        for one in known - {(one["in"], one["name"]) for one in new.get("parameters", ())}:
            yield f"{name} has lost the parameter {one[1]}"
        yield from self._request(
            f"{name}, request", _body(old.get("requestBody")), _body(new.get("requestBody"))
        )
        for status, answer in old.get("responses", {}).items():
            if status not in new.get("responses", {}):
                yield f"{name} no longer answers {status}"
            else:
                there = new["responses"][status]
                yield from self._answer(f"{name}, answer {status}", _body(answer), _body(there))

    def _request(self, where: str, old: Document, new: Document, depth: int = 0) -> Iterator[str]:
        old, new = self._whole(self._old, old), self._whole(self._new, new)
        if depth > 12 or not old:
            return
        lost = _types(old) - _types(new)
        if lost and _types(new):
            yield f"{where} may no longer be {', '.join(sorted(lost))}"
        for bound in _UPPER:
            if bound in new and new[bound] < old.get(bound, float("inf")):
                yield f"{where} is now held to {bound} {new[bound]}"
        for bound in _LOWER:
            if bound in new and new[bound] > old.get(bound, float("-inf")):
                yield f"{where} is now held to {bound} {new[bound]}"
        for name in set(new.get("required", ())) - set(old.get("required", ())):
            yield f"{where} now needs {name}"
        for name, schema in old.get("properties", {}).items():
            if name not in new.get("properties", {}):
                yield f"{where} may no longer hold {name}"
            else:
                yield from self._request(f"{where}, {name}", schema, new["properties"][name], depth + 1)
        if "items" in old and "items" in new:
            yield from self._request(f"{where}, entry", old["items"], new["items"], depth + 1)

    def _answer(self, where: str, old: Document, new: Document, depth: int = 0) -> Iterator[str]:
        old, new = self._whole(self._old, old), self._whole(self._new, new)
        if depth > 12 or not old:
            return
        more = _types(new) - _types(old)
        if more and _types(old):
            yield f"{where} may now be {', '.join(sorted(more))}"
        for name in set(old.get("required", ())) - set(new.get("required", ())):
            yield f"{where} need no longer hold {name}"
        for name, schema in old.get("properties", {}).items():
            if name not in new.get("properties", {}):
                yield f"{where} no longer holds {name}"
            else:
                yield from self._answer(f"{where}, {name}", schema, new["properties"][name], depth + 1)
        if "items" in old and "items" in new:
            yield from self._answer(f"{where}, entry", old["items"], new["items"], depth + 1)

    def _whole(self, document: Document, schema: Document) -> Document:
        """The schema itself where it is only referred to; of one kind and null, that kind."""
        while "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        others = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        if len(others) == 1 and "$ref" in others[0]:
            return self._whole(document, others[0])
        return schema


def _body(described: Document | None) -> Document:
    content: Document = (described or {}).get("content", {}).get("application/json", {})
    schema: Document = content.get("schema", {})
    return schema


def _types(schema: Document) -> set[str]:
    """The types that a value may be of; of values that are listed, these."""
    if "enum" in schema:
        return {repr(one) for one in schema["enum"]}
    if "const" in schema:
        return {repr(schema["const"])}
    if "anyOf" in schema:
        return {name for one in schema["anyOf"] for name in _types(one)}
    return {schema["type"]} if "type" in schema else set()
