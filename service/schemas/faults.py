"""The refusal of a field or parameter that pydantic finds invalid: its name, its value and a remedy."""

from typing import Any

from pydantic_core import ErrorDetails

from turret.service.errors import InvalidFieldError

_REMEDIES = {
    "missing": "this field is required",
    "bool_type": "send true or false",
    "list_type": "send a list",
    "dict_type": "send an object",
    "model_type": "send an object",
    "string_type": "send a text",
    "string_too_short": "send a text that is not empty",
    "too_short": "send a list that is not empty",
    "int_parsing": "send a whole number",
    "float_type": "send a number",
    "float_parsing": "send a number",
    "none_required": "leave this out; a comparison has one page, of two given versions",
    "finite_number": "send a number that is finite",
    "string_pattern_mismatch": "send it unchanged from an answer, or leave it out",
}
_BOUNDS = {
    "greater_than": "above",
    "greater_than_equal": "from",
    "less_than_equal": "up to",
    "less_than": "below",
}


def field_error(error: ErrorDetails, name: str | None = None) -> InvalidFieldError:
    """The refusal of a field that violates its schema, or of the parameter `name`."""
    path = [name] if name is not None else [str(part) for part in error["loc"]]
    context = error.get("ctx", {})
    value = error["input"]
    if error["type"] == "unknown_field":
        path.append(context["name"])
        value = value.get(context["name"])
    if error["type"] == "missing":
        value = None
    message = _REMEDIES.get(error["type"]) or _bound(error) or _too_long(path, context) or error["msg"]
    return InvalidFieldError(".".join(path) or "body", value, message)


def _bound(error: ErrorDetails) -> str | None:
    relation = _BOUNDS.get(error["type"])
    (bound,) = error.get("ctx", {}).values() if relation else ("",)
    return f"send a number {relation} {bound:g}" if relation else None


def _too_long(path: list[str], context: dict[str, Any]) -> str | None:
    if "max_length" not in context:
        return None
    newest = "the newest" if path[-1] == "history" else "at most"
    return f"this is too long; send {newest} {context['max_length']}"
