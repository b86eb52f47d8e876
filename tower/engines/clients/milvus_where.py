"""Filters as Milvus expressions.

Field number n is `f<n>`, a DOUBLE or an ARRAY of INT64 codes; `p<n>` says whether an item has a value.
"""

import math
import sys

from turret.tower.engines.where import AllMet, AnyCode, AnyMet, HasValue, InRange, NotMet, Where

# No item has such a row, and each has such a one.
_NOTHING, _ALL = "row < 0", "row >= 0"


def printed(where: Where | None) -> str:
    """The filter of a search; empty for none."""
    return "" if where is None else _printed(where)


def _printed(where: Where) -> str:
    match where:
        case AnyCode(field, codes):
            return f"array_contains_any(f{field}, {list(codes)})" if codes else _NOTHING
        case InRange(field, low, high, low_open, high_open):
            above = [] if low is None else [_compared(field, ">", low_open, low)]
            below = [] if high is None else [_compared(field, "<", high_open, high)]
            return f"({' and '.join([f'p{field} == true', *above, *below])})"
        case HasValue(field):
            return f"p{field} == true"
        case NotMet(inner):
            return f"not ({_printed(inner)})"
        case AllMet(inner):
            return f"({' and '.join(map(_printed, inner))})"
        case AnyMet(inner):
            return f"({' or '.join(map(_printed, inner))})"


def _compared(field: int, sign: str, is_open: bool, bound: float) -> str:
    """The comparison with a bound; in Milvus, which knows no infinity, with the largest number before it."""
    if math.isfinite(bound):
        return f"f{field} {sign}{'=' * (not is_open)} {bound!r}"
    largest = math.copysign(sys.float_info.max, bound)
    if (bound > 0) == (sign == ">"):
        return _NOTHING if is_open else f"f{field} {sign} {largest!r}"
    return f"f{field} {sign}= {largest!r}" if is_open else _ALL
