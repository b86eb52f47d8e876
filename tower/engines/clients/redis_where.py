"""Filters in the query language of Redis search (dialect 2).

Field number n is `f<n>`, its numbers NUMERIC and its codes TAG; `p<n>` is the TAG 1 of an item with a value.
"""

from turret.tower.engines.where import AllMet, AnyCode, AnyMet, HasValue, InRange, NotMet, Where

# A tag that no item has.
_NOTHING = "x"


def printed(where: Where | None) -> str:
    """The part of a query in front of its KNN clause."""
    return "*" if where is None else f"({_printed(_flat(where))})"


def _flat(where: Where, is_negated: bool = False) -> Where:
    """The same condition, or its negation, without a negation inside another one.

    Redis search loses items, and adds others, where a negation that holds another one is intersected.
    """
    match where:
        case NotMet(inner):
            return _flat(inner, not is_negated)
        case AllMet(inner) | AnyMet(inner) if not is_negated or any(map(_has_negation, inner)):
            combine = AllMet if isinstance(where, AllMet) != is_negated else AnyMet
            return combine(tuple(_flat(one, is_negated) for one in inner))
    return NotMet(where) if is_negated else where


def _has_negation(where: Where) -> bool:
    match where:
        case NotMet():
            return True
        case AllMet(inner) | AnyMet(inner):
            return any(map(_has_negation, inner))
    return False


def _printed(where: Where) -> str:
    match where:
        case AnyCode(field, codes):
            return f"@f{field}:{{{'|'.join(map(str, codes)) or _NOTHING}}}"
        case InRange(field, low, high, low_open, high_open):
            return f"@f{field}:[{_bound(low, '-inf', low_open)} {_bound(high, '+inf', high_open)}]"
        case HasValue(field):
            return f"@p{field}:{{1}}"
        case NotMet(inner):
            return f"-({_printed(inner)})"
        case AllMet(inner):
            return f"({' '.join(map(_printed, inner))})"
        case AnyMet(inner):
            return f"({'|'.join(f'({_printed(one)})' for one in inner)})"


def _bound(value: float | None, missing: str, is_open: bool) -> str:
    if value is None:
        return missing
    return f"{'(' * is_open}{value!r}"
