"""The columns of an items or users file as features: as named, or as their values suggest."""

import re
from pathlib import Path
from typing import get_args

import polars as pl

from turret.data.configuration import FeatureKind
from turret.data.errors import ColumnError
from turret.data.preparing.encoding import (
    are_json_lists,
    are_lists,
    are_paths,
    as_lists,
    as_numbers,
    days,
    element_type,
    is_printable,
    json_lists,
    numbers,
    truths,
    without_nulls,
)
from turret.data.preparing.vectors import is_vector
from turret.data.reading.columns import Role, require
from turret.data.reading.schema import EVERY, FeatureColumns, FormatSettings, nulls_of

# Names that say more than values do.
_USUAL: dict[FeatureKind, tuple[str, ...]] = {
    "text": ("title", "name", "headline", "description"),
    "category": ("category", "genre", "gender", "age", "age_group", "occupation", "country"),
    "multi": ("genres", "categories", "tags"),
}
_KIND_OF_NAME = {name: kind for kind, names in _USUAL.items() for name in names}
# brand_id, brandId, EAN, zip code, type_no.
_IDS = r"ids?|codes?|key|no|nr|sku|ean|gtin|isbn|asin|upc|zip"
_ID_NAME = re.compile(rf"(?:^|[\W_])(?i:{_IDS})$|[a-z](?:Id|ID|Code|Key|No|Nr)$")
# Values that an item tower would read long after they have changed.
_STOCK = r"(?:in_?|is_?)?(?:stock|available|unavailable|availability|inventory|quantity|qty|on_?sale|sale)"
CHANGING = re.compile(
    rf"(?:^|[\W_])(?i:{_STOCK}(?:_?(?:level|count|left|qty|status))?)$|[a-z](?:Stock|Available|Availability|Quantity)$"
)
# A column of more distinct values than this share of its rows says nothing about the others.
_MOST_VALUES = 0.5
_FEWEST_ROWS = 20
# More distinct ages are years, not groups.
_AGE_GROUPS = 20
_DISTINCT = "nearly every row has another"

# The features of one column: none for a reason, one, or the two of a date.
Guess = list[tuple[FeatureKind, pl.Series]] | str


def read_features(
    frame: pl.DataFrame, chosen: FeatureColumns, where: Path, role: Role, settings: FormatSettings
) -> tuple[pl.DataFrame, FeatureColumns, str | None]:
    """Read the chosen columns of `frame`, whose rows are items or users, and guess which others are features.

    Returns the frame with values of the types of their features, all features by kind, and a sentence on the
    guesses. Raises ColumnError for a chosen column that does not exist, or whose values are not of its kind.
    """
    for name in (name for name in chosen.ignore if name != EVERY):
        require(name, frame.columns, str(where), "ignored feature")
    for kind, name in chosen.by_kind():
        require(name, frame.columns, str(where), f"{kind} feature")
        if kind == "vector":
            continue
        values = without_nulls(frame[name], nulls_of(settings.nulls, name))
        if kind == "number":
            values = _named_numbers(values, where, role, settings.decimal)
        elif kind == "multi":
            values = _lists(values, settings.list_separator)
        elif kind == "category":
            values = truths(values)
        frame = frame.with_columns(values)
    if EVERY in chosen.ignore:
        return frame, chosen, None
    named = {name for _, name in chosen.by_kind()} | set(chosen.ignore)
    kinds: dict[FeatureKind, list[str]] = {kind: [] for kind in get_args(FeatureKind)}
    left_out = []
    for name in [name for name in frame.columns if name not in named]:
        if role == "item" and CHANGING.search(name):
            left_out.append(f"{name} (it changes from day to day: a field for answers and filters)")
            continue
        guess = _guess(truths(without_nulls(frame[name], nulls_of(settings.nulls, name))), role, settings)
        features = guess if isinstance(guess, str) else [one for one in guess if _varies(*one)]
        if isinstance(features, str) or not features:
            left_out.append(f"{name} ({features or 'one value only'})")
            continue
        for kind, values in features:
            kinds[kind].append(values.name)
            frame = frame.with_columns(values)
    guessed = FeatureColumns(**{kind: tuple(names) for kind, names in kinds.items()})
    return frame, chosen.over(guessed), _note(guessed, left_out, where, role)


def _note(guessed: FeatureColumns, left_out: list[str], where: Path, role: Role) -> str | None:
    told = ", ".join(f"{name} ({kind})" for kind, name in guessed.by_kind())
    if not told and not left_out:
        return None
    rest = f"; left out: {', '.join(left_out)}" if left_out else ""
    kinds = (*(["text"] if role == "item" else []), "category", "multi", "path", "number", "vector", "ignore")
    options = ", ".join(f"--{role}-{kind}" for kind in kinds)
    return (
        f"{where.name}: read as features are {told or 'no columns'}{rest}; name them yourself with {options}"
    )


def _guess(values: pl.Series, role: Role, settings: FormatSettings) -> Guess:
    known, name = values.drop_nulls(), values.name.lower()
    if is_vector(values.dtype):
        return [("vector", values)]
    if isinstance(values.dtype, pl.List):
        known = known.filter(known.list.len() > 0)
    if not is_printable(element_type(values.dtype)):
        return "nested records" if values.dtype.is_nested() else f"values of the type {values.dtype}"
    if not len(known):
        return "no value"
    usual = _KIND_OF_NAME.get(name)
    separator = settings.list_separator
    if values.dtype == pl.String and usual not in ("text", "multi") and not separator and are_paths(values):
        return [("path", values)]
    is_separated = values.dtype == pl.String and are_lists(values, separator or "|")
    if isinstance(values.dtype, pl.List) or usual == "multi" or (is_separated and usual != "text"):
        return [("multi", _lists(values, separator))]
    if usual == "text":
        return [("text", values)] if role == "item" else "texts of users"
    if usual == "category" and (name != "age" or known.n_unique() <= _AGE_GROUPS):
        return [("category", values)]
    if values.dtype == pl.Boolean:
        return [("category", values)]
    if (dates := days(values)) is not None:
        return _date_features(dates, values.name)
    if values.dtype.is_numeric():
        return _guess_number(as_numbers(values), values)
    texts, known = values.cast(pl.String), known.cast(pl.String)
    found = numbers(texts, settings.decimal)
    has_zeros_in_front = known.str.contains(r"^0\d+$").any()
    if found.null_count() == texts.null_count() and not has_zeros_in_front:
        return _guess_number(found, texts)
    if not _are_distinct(known, len(values)):
        return [("category", texts)]
    if role == "item" and _words(known) >= 2.0:
        return [("text", texts)]
    return f"texts, {_DISTINCT}"


def _guess_number(found: pl.Series, values: pl.Series) -> Guess:
    known = found.drop_nulls()
    if not (known == known.floor()).all():
        return [("number", found)]
    if found.n_unique() > 0.9 * len(found) >= 0.9 * _FEWEST_ROWS:
        return f"whole numbers, {_DISTINCT}"
    if not _ID_NAME.search(values.name):
        return [("number", found)]
    return f"codes, {_DISTINCT}" if _are_distinct(known, len(values)) else [("category", values)]


def _are_distinct(known: pl.Series, count: int) -> bool:
    return known.n_unique() > max(2.0, _MOST_VALUES * count)


def _named_numbers(values: pl.Series, where: Path, role: Role, decimal: str) -> pl.Series:
    if (dates := days(values)) is not None:
        return dates.alias(values.name)
    if values.dtype != pl.String:
        return as_numbers(values)
    found = numbers(values, decimal)
    unreadable = values.filter(values.is_not_null() & found.is_null())
    if len(unreadable):
        raise ColumnError(
            f"{where}: column {values.name!r} holds {unreadable[0]!r}, which is not a number; name the "
            f"column with --{role}-category, the text as one for no value with --null, or the decimal mark "
            "with --decimal"
        )
    return found


def _lists(values: pl.Series, separator: str) -> pl.Series:
    if values.dtype == pl.String and not separator and are_json_lists(values):
        values = json_lists(values)
    return as_lists(values, separator or "|")


def _varies(kind: FeatureKind, column: pl.Series) -> bool:
    """Whether a feature differs between rows; no value is a value of each kind but numbers and vectors."""
    if kind == "vector":
        return True
    if isinstance(column.dtype, pl.List):
        column = column.list.join("\0")
    return (column.drop_nulls() if kind == "number" else column).n_unique() > 1


def _words(texts: pl.Series) -> float:
    """The mean number of words, which spaces divide: a code such as AX-17-b is one."""
    words = texts.head(1000).str.count_matches(r"\S+").mean()
    return float(words or 0.0)  # type: ignore[arg-type]


def _date_features(dates: pl.Series, name: str) -> Guess:
    """The age of an item, up to a constant, and its season."""
    month = pl.select(pl.lit(dates).cast(pl.Int32).cast(pl.Date).dt.month().cast(pl.String)).to_series()
    return [("number", dates.alias(f"{name}_days")), ("category", month.alias(f"{name}_month"))]
