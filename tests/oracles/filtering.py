"""What a filter means, said once more for one item at a time."""

import operator
import re
from collections.abc import Mapping
from typing import Any

COMPARE = {"gte": operator.ge, "gt": operator.gt, "lte": operator.le, "lt": operator.lt}


def holds(condition: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Whether an item's fields are as a filter's JSON asks."""
    results = []
    for key, value in condition.items():
        if key == "all":
            results.append(all(holds(one, item) for one in value))
        elif key == "any":
            results.append(any(holds(one, item) for one in value))
        elif key == "not":
            results.append(not holds(value, item))
        else:
            results.append(field_holds(value, item[key]))
    return all(results)


def field_holds(operators: Mapping[str, Any], stored: Any) -> bool:
    values = stored if isinstance(stored, list) else [stored]
    values = [one for one in values if one is not None and one == one]
    bounds = {name: bound for name, bound in operators.items() if name in COMPARE}
    if bounds and not any(inside(one, bounds) for one in values):
        return False
    typed = {(kind_of(one), one) for one in values}
    asked = {name: {(kind_of(one), one) for one in operators.get(name, ())} for name in ("any_of", "none_of")}
    if "equals" in operators and (kind_of(operators["equals"]), operators["equals"]) not in typed:
        return False
    if ("any_of" in operators and not asked["any_of"] & typed) or asked["none_of"] & typed:
        return False
    if "under" in operators and not any(is_below(one, operators["under"]) for one in values):
        return False
    return "not_null" not in operators or operators["not_null"] == bool(values)


def kind_of(value: Any) -> str:
    """Only values of one kind are equal, or in an order."""
    return "text" if isinstance(value, str) else "boolean" if isinstance(value, bool) else "number"


def is_below(value: Any, path: str) -> bool:
    """Whether a text of levels begins with those of `path`."""
    wanted, found = (re.split(r"\s*[>/|]\s*", str(text)) for text in (path, value))
    return isinstance(value, str) and found[: len(wanted)] == wanted


def inside(value: Any, bounds: Mapping[str, Any]) -> bool:
    return all(
        kind_of(value) == kind_of(bound) and COMPARE[name](value, bound) for name, bound in bounds.items()
    )
