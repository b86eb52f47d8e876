"""Filters as Milvus expressions.

Field number n is `f<n>`, a DOUBLE or an ARRAY of INT64 codes; `p<n>` says whether an item has a value.
"""

from turret.tower.engines.where import AllMet, AnyCode, AnyMet, HasValue, InRange, NotMet, Where

# No item has such a row.
_NOTHING = "row < 0"


def printed(where: Where | None) -> str:
    """The filter of a search; empty for none."""
    return "" if where is None else _printed(where)


def _printed(where: Where) -> str:
    match where:
        case AnyCode(field, codes):
            return f"array_contains_any(f{field}, {list(codes)})" if codes else _NOTHING
        case InRange(field, low, high, low_open, high_open):
            above = [] if low is None else [f"f{field} {'>' if low_open else '>='} {low!r}"]
            below = [] if high is None else [f"f{field} {'<' if high_open else '<='} {high!r}"]
            return f"({' and '.join([f'p{field} == true', *above, *below])})"
        case HasValue(field):
            return f"p{field} == true"
        case NotMet(inner):
            return f"not ({_printed(inner)})"
        case AllMet(inner):
            return f"({' and '.join(map(_printed, inner))})"
        case AnyMet(inner):
            return f"({' or '.join(map(_printed, inner))})"
