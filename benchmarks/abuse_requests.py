"""Hostile requests to every call of a service, derived from the document of its API.

A call without a line in `GIVEN` is attacked with values that its schema allows.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

Json = Any
Schema = dict[str, Any]
JSON_TYPE, LINES_TYPE = "application/json", "application/x-ndjson"
# Bytes of a text without a limit of its own, of a text that fills an item, and of one that fills a body.
HEAD_TEXT, ITEM_TEXT, BODY_TEXT = 4_000, 46_000, 950_000
_MARK = "@place@"
_FILTER = {"category": {"under": "Food > Coffee"}, "price": {"gte": 1}, "tags": {"any_of": ["t1"]}}
_CHOICE = {"filter": _FILTER, "cap": {"brand": 5}, "rules": ["in stock"]}
_HISTORY = [{"item": "i0001", "kind": "view"}, "i0002", "i0003"]
_USER = {"history": _HISTORY, "features": {"country": "Kenya"}, "context": {}, **_CHOICE}
_ITEM = {
    "features": {"title": "Cedar Beans", "category": "Food > Coffee > Beans", "tags": ["t1"], "price": 7.5},
    "fields": {"title": "Cedar Beans", "category": "Food > Coffee > Beans", "tags": ["t1"], "price": 7.5},
}
RULES = {"in stock": {"filter": {"stock": {"gte": 0}}, "cap": {"brand": 100}}}
# Values that the shop of the benchmark knows: by the name of a schema, and by the name of a parameter.
GIVEN: dict[str, dict[str, Json]] = {
    "RecommendRequest": _USER,
    "ComparedRequest": _USER,
    "SearchRequest": {"query": "cedar beans", **_CHOICE},
    "SimilarRequest": _CHOICE,
    "ItemBody": _ITEM,
    "ItemPatchBody": _ITEM,
    "ItemLine": {"id": "i0001", "method": "PUT", **_ITEM},
    "EventBody": {"event_id": "e1", "user_id": "u00007", "item_id": "i0001", "kind": "view"},
    "RulesRequest": {"rules": RULES},
    "RouteBody": {"version": "second", "share": 0.1},
    "RoutesRequest": {"shadow": {"version": "second", "share": 0.1}},
}
PARAMETERS = {"item_id": "i0001", "user_id": "u00007", "field": "brand", "version": "second", "point": "1"}

# The units are separators, quotes, brackets, digits and blanks; then a no-break space, accents, a direction
# mark, letters that grow when they are folded or normalised, and controls.
_UNITS = [*",>/|:@~.-_%&#?*+=;\"'\\[]{}()<>09aA \t\n\r", "//", " > ", "a ", "a,", '":', "%0A", "\\u", "../"]
_UNITS += [*"\u00a0\u2003\u0301\u202e\u0130\ufdfa\uac01\U0001f600\0\x1f\x7f\u2028\ufeff", "e\u0301"]
_LARGE = {",", ">", "/", " ", '"', "\\", "a ", "\u0301", "\ufdfa"}  # units that also fill a whole body
_HEAD, _TAIL = "x://", "a:x"  # around many credentials
_NINES, _KEYS = "9" * 100_000, ",".join(f'"{number:07d}":1' for number in range(19_000))
_TOKENS = (
    f"1e400 -1e400 NaN Infinity -0.0 1e-400 1e30 253402300799.9 -1 0 true null {_NINES} 0.{_NINES}".split()
)
_TOKENS += f'"\\ud800" "" "null" [] {{}} {"[" * 100_000} {"[" * 31 + "]" * 31} {{{_KEYS}}}'.split()
_TOKENS += ["9223372036854775808", "-9223372036854775809", '{"a":' * 100_000, '"' + "\\udfff" * 1_000 + '"']
_TOKENS += [f"[{unit * 9_999}1]" for unit in ("null,", "[],", '"a",', "{},", "1e400,", "1,")]
_ENCODED = [(word if len(word) < 20 else f"{word[:8]}... of {len(word)}", word.encode()) for word in _TOKENS]
# Endings that may turn a path into another one, or that only some readers of the path ignore.
_CODES = "0A 0D 0D%0A 00 20 09 0B 85 C2%85 E2%80%A8 C2%A0 FF 2F 2E 5C 3F 23 3B 250A 0A%0A 0A/similar"
ENDINGS = [f"%{code}" for code in _CODES.split(" ")] + ["/", "//", ".", "/.", "/..", ";a", "/%0A", "/x"]
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "put", "QUERY")


class Request(NamedTuple):
    """A request with its `target` as it is written on the wire; `label` names the hostile value."""

    place: str
    label: str
    method: str
    target: str
    parts: tuple[bytes, ...] = ()  # parts of the body; many requests share a large one
    kind: str = JSON_TYPE

    @property
    def body(self) -> bytes | None:
        """The body, None for a request without one."""
        return b"".join(self.parts) if self.parts else None

    @property
    def size(self) -> int:
        """Bytes of the target and the body."""
        return len(self.target) + sum(map(len, self.parts))


def json_request(method: str, target: str, body: Json = None) -> Request:
    """A request with a body of JSON."""
    return Request("", "", method, target, () if body is None else (_text(body),))


class Call(NamedTuple):
    """A call of the document: the scope of its key (None: public), its parameters, and its body, if any."""

    method: str
    path: str
    scope: str | None
    parameters: tuple[Schema, ...]
    body: Schema | None
    kind: str
    schemas: Mapping[str, Schema]

    @property
    def name(self) -> str:
        """The method and path of the call."""
        return f"{self.method} {self.path}"

    def normal(self) -> Request:
        """A request that means no harm."""
        parts = () if self.body is None else (_text(_example(self.body, self.schemas)),)
        return Request("", "normal", self.method, self._target({}), parts, self.kind)

    def hostile(self) -> Iterator[Request]:
        """The normal request with each value replaced by each hostile one in turn."""
        normal = self.normal()
        for parameter in self.parameters:
            schema = _resolved(parameter["schema"], self.schemas)
            length = schema.get("maxLength") or schema.get("items", {}).get("maxLength") or HEAD_TEXT
            for label, value in _parameter_values(length):
                target = self._target({parameter["name"]: value})
                yield normal._replace(place=parameter["name"], label=label, target=target)
        if self.body is not None:
            example = _example(self.body, self.schemas)
            for path, schema, value in _places(self.body, example, self.schemas):
                before, after = json.dumps(_placed(example, path)).split(f'"{_MARK}"')
                is_key = path[-1:] == (_MARK,)
                longest = ITEM_TEXT if "ItemBody" in str(self.body) or "fields" in path else BODY_TEXT
                for label, text in _values(schema, value, longest, is_key):
                    parts = (before.encode(), text, after.encode())
                    yield normal._replace(place=".".join(map(str, path)), label=label, parts=parts)

    def _target(self, hostile: Mapping[str, str]) -> str:
        """The path and the query as they are on the wire, with `hostile` values in place of normal ones."""
        target, query = self.path, []
        for parameter in self.parameters:
            name, place = parameter["name"], parameter["in"]
            value = hostile.get(name) or quote(str(PARAMETERS.get(name, "1")), safe="")
            if place == "path":
                # A deleted item or user is none that the other calls use.
                value = value + "9" if self.method == "DELETE" and name not in hostile else value
                target = target.replace(f"{{{name}}}", value)
            elif name in hostile or parameter.get("required"):
                query.append(f"{name}={value}")
        return target + "?" * bool(query) + "&".join(query)


def calls(document: Schema) -> list[Call]:
    """All calls of an OpenAPI document."""
    schemas = document["components"]["schemas"]
    result = []
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            content = call.get("requestBody", {}).get("content", {})
            kind, body = next(iter(content.items()), (JSON_TYPE, {"schema": None}))
            schema = body["schema"]
            scopes = [scope for key in call.get("security", []) for names in key.values() for scope in names]
            scope, parameters = next(iter(scopes), None), tuple(call.get("parameters", ()))
            schema = schema and schema.get("x-line", schema)
            result.append(Call(method.upper(), path, scope, parameters, schema, kind, schemas))
    return result


def _resolved(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """The schema with its reference followed, and merged with its alternatives: it allows all of them."""
    merged: Schema = {}
    for part in (schema, *schema.get("anyOf", ())):
        name = part.get("$ref", "").rpartition("/")[2]
        known = _resolved(schemas[name], schemas) | {"name": name} if name else part
        merged = known | merged if part is not schema or name else dict(known)
    return merged


def _example(schema: Schema, schemas: Mapping[str, Schema]) -> Json:
    """A valid value: that of GIVEN for its schema, else one with the required properties."""
    schema = _resolved(schema, schemas)
    properties = schema.get("properties")
    if properties is not None:
        example = dict(GIVEN.get(schema.get("name", ""), {}))
        for name in [*schema.get("required", ()), *schema.get("properties", ())]:
            if name not in example and (name in schema.get("required", ()) or name in PARAMETERS):
                example[name] = PARAMETERS.get(name) or _example(properties[name], schemas)
        return example
    if "items" in schema:
        return [_example(schema["items"], schemas)]
    if schema.get("type") == "object":
        return {}
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    return {"integer": 1, "number": 1, "boolean": True}.get(schema.get("type", ""), "a")


def _places(
    schema: Schema, value: Json, schemas: Mapping[str, Schema], path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Schema, Json]]:
    """Each value of an example, each absent property, and a key of each free object: path, schema, value."""
    schema = _resolved(schema, schemas)
    yield path, schema, value
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        free = others if isinstance(others, dict) else {}
        for name, below in value.items():
            yield from _places(properties.get(name, free), below, schemas, (*path, name))
        for name in properties.keys() - value.keys():
            yield (*path, name), _resolved(properties[name], schemas), None
        if others is not False:
            yield (*path, _MARK), schema.get("propertyNames", {}), None
    elif isinstance(value, list) and value:
        yield from _places(schema.get("items", {}), value[0], schemas, (*path, 0))


def _placed(example: Json, path: tuple[str | int, ...]) -> Json:
    """The example with the mark at a path; where the last step is the mark, it becomes a key."""
    if not path:
        return _MARK
    changed = copy.deepcopy(example)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = next(iter(inner.values()), "a") if path[-1] == _MARK else _MARK
    return changed


def _values(schema: Schema, value: Json, longest: int, is_key: bool) -> Iterator[tuple[str, bytes]]:
    """The hostile values of a place by their labels, as JSON."""
    limit = schema.get("maxLength")
    for unit in _UNITS:
        yield repr(unit), _filled(unit, limit or ITEM_TEXT, bool(limit))
        if not limit and unit in _LARGE and longest > ITEM_TEXT:
            yield f"{unit!r} of a body", _filled(unit, longest, False)
    yield "x://", _text(_HEAD + "a," * (((limit or ITEM_TEXT) - 7) // 2) + _TAIL)
    if is_key:
        return
    yield from _ENCODED
    for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if bound in schema:
            yield bound, _text(schema[bound])
    for count in {schema[name] for name in ("maxItems", "maxProperties") if name in schema}:
        yield from _many(count, min(512, longest // count - 8))
        if isinstance(value, list):
            yield f"{count} of them", _text(value[:1] * count)


@cache
def _filled(unit: str, length: int, is_characters: bool) -> bytes:
    """A text of a unit repeated, as JSON in UTF-8; `length` counts characters, or bytes."""
    size = len(unit) if is_characters else len(json.dumps(unit, ensure_ascii=False).encode()) - 2
    return _text((unit * -(-length // size))[: length if is_characters else None])


@cache
def _many(count: int, width: int) -> list[tuple[str, bytes]]:
    """Lists and objects of `count` values."""
    words = [f"{number:0{width}d}" for number in range(count)]
    values = {"numbers": list(range(count)), "equal texts": ["a"] * count, "texts": words}
    return [(f"{count} {name}", _text(value)) for name, value in values.items()] + [
        (f"{count} keys", _text(dict.fromkeys(words, 1)))
    ]


@cache
def _parameter_values(length: int) -> list[tuple[str, str]]:
    """Hostile values of a parameter, written for a path or a query; a head has 16 KiB."""
    texts = {repr(unit): (unit * length)[:length] for unit in _UNITS}
    texts |= {"x://": _HEAD + "a," * ((length - 7) // 2) + _TAIL, "1e400": "1e400", "-1": "-1"}
    texts |= {"wide": "\uff11", "nines": "9" * length, "underscores": "1" + "_1" * (length // 2 - 1)}
    written = {label: quote(text, safe="") for label, text in texts.items()}
    written |= {"surrogate": "%ED%A0%80" * 100, "bytes": "%FF" * 500, "blank": "%20"}
    # A head has 16 KiB, so a longer text is cut, before an encoded character.
    return [
        (label, text[: text.rfind("%", 0, 12_000) if len(text) > 12_000 else None])
        for label, text in written.items()
    ]


def _text(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
