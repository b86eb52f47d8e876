"""The columns of an items or users file as features: as named, or as their values suggest."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from turret.data.errors import ColumnError, brief
from turret.data.features.feature import KINDS, OURS
from turret.data.features.texts import date_names
from turret.data.preparing.encoding import (
    are_lists,
    are_paths,
    as_lists,
    as_numbers,
    as_texts,
    date_forms,
    days,
    element_type,
    is_printable,
    truths,
    without_nulls,
    written,
)
from turret.data.preparing.vectors import are_vectors, lost_vectors
from turret.data.reading.columns import FeaturesOf, Role, require
from turret.data.reading.numbers import numbers
from turret.data.reading.schema import EVERY, FeatureColumns
from turret.data.reading.source_settings import FormatSettings, nulls_of
from turret.data.reading.tables import EXAMPLES

# These names say more than the values do.
_USUAL: dict[str, tuple[str, ...]] = {
    "text": ("title", "name", "headline", "description"),
    "category": ("category", "genre", "gender", "age", "age_group", "occupation", "country"),
    "multi": ("genres", "categories", "tags"),
}
_KIND_OF_NAME = {name: kind for kind, names in _USUAL.items() for name in names}
# Columns such as brand_id, brandId, EAN, zip code and type_no hold ids.
_IDS = r"ids?|codes?|key|no|nr|sku|ean|gtin|isbn|asin|upc|zip"
_ID_NAME = re.compile(rf"(?:^|[\W_])(?i:{_IDS})$|[a-z](?:Id|ID|Code|Key|No|Nr)$")
# An item tower would read the values of these columns long after they have changed.
_STOCK = r"(?:in_?|is_?)?(?:stock|available|unavailable|availability|inventory|quantity|qty|on_?sale|sale)"
CHANGING = re.compile(
    rf"(?:^|[\W_])(?i:{_STOCK}(?:_?(?:level|count|left|qty|status))?)$|[a-z](?:Stock|Available|Availability|Quantity)$"
)
# A column of more distinct values than this share of its rows says nothing about other rows.
_MOST_VALUES = 0.5
_FEWEST_ROWS = 20
# More distinct ages are years, not groups.
_AGE_GROUPS = 20
_DISTINCT = "nearly every row has another"
_MAYBE_THOUSANDS = (
    "numbers whose point may divide thousands: --decimal , reads 1.006 as 1006, and naming the column as a "
    "number as 1.006"
)

# The features of one column (one feature, or two for a date), or the reason why there is none.
Guess = list[tuple[str, pl.Series]] | str


@dataclass(frozen=True)
class Readings:
    """The features of some rows: their columns by kind, and the values of each.

    Numbers are floats, lists are lists of texts, vectors are as in the file, and all others are texts.
    `written` has the `Feature.written` of each feature; `notes` are sentences on the guesses.
    """

    chosen: FeatureColumns
    values: dict[str, pl.Series]
    written: dict[str, str]
    notes: tuple[str, ...] = ()


def read_features(
    frame: pl.DataFrame, chosen: FeatureColumns, where: Path, role: FeaturesOf, settings: FormatSettings
) -> Readings:
    """Read the chosen columns of `frame`, whose rows are items, users or contexts.

    The others are guessed to be features or not, unless `chosen` ignores EVERY.

    Raises ColumnError for a chosen column that does not exist, or whose values are not of its kind.
    """
    for name in (name for name in chosen.ignore if name != EVERY):
        require(name, frame.columns, str(where), "ignored feature")

    def read(name: str) -> pl.Series:
        return without_nulls(frame[name], nulls_of(settings.nulls, name))

    features: dict[str, pl.Series] = {}
    forms: dict[str, str] = {}
    for kind, name in chosen.by_kind():
        require(name, frame.columns, str(where), f"{kind} feature")
        features[name] = _typed(kind, read(name), where, role, settings)
        forms[name] = written(KINDS[kind].reading, read(name), settings)
    if role == "context" or EVERY in chosen.ignore:
        return Readings(chosen, features, forms)
    named = {name for _, name in chosen.by_kind()} | set(chosen.ignore)
    kinds: dict[str, list[str]] = {kind.name: [] for kind in OURS}
    left_out, notes = list[str](), list[str]()
    for name in [name for name in frame.columns if name not in named]:
        if role == "item" and CHANGING.search(name):
            left_out.append(f"{name} (it changes from day to day: a field for answers and filters)")
            continue
        values = truths(read(name))
        guess = _guess(values, role, settings)
        notes += _no_numbers(values, guess, where, settings)
        reason, candidates = (guess, []) if isinstance(guess, str) else ("one value only", guess)
        typed = [(kind, _typed(kind, column, where, role, settings)) for kind, column in candidates]
        typed = [(kind, column) for kind, column in typed if _varies(kind, column)]
        if not typed:
            left_out.append(f"{name} ({reason})")
        for kind, column in typed:
            kinds[kind].append(column.name)
            features[column.name] = column
            is_of_date = column.name != name
            reading = KINDS[kind].reading
            forms[column.name] = date_forms(values) if is_of_date else written(reading, values, settings)
    guessed = FeatureColumns(**{kind: tuple(names) for kind, names in kinds.items()})
    chosen = chosen.over(guessed)
    ordered = {name: features[name] for _, name in chosen.by_kind()}
    return Readings(chosen, ordered, forms, (*_note(guessed, left_out, where, role), *notes))


def _typed(
    kind: str, values: pl.Series, where: Path, role: FeaturesOf, settings: FormatSettings
) -> pl.Series:
    """Read the values of a feature: floats, lists of texts, or texts; a vector is read later."""
    reading = KINDS[kind].reading
    if reading == "vectors":
        return values
    if reading == "numbers":
        return as_numbers(values, settings.decimal, str(where), role)
    if reading == "lists":
        return as_lists(values, settings.list_separator)
    if isinstance(values.dtype, pl.List) and is_printable(element_type(values.dtype)):
        raise ColumnError(f"column {values.name!r} holds {brief(values.dtype)}; name it as a multi feature")
    return as_texts(truths(values) if reading == "values" else values)


def _note(guessed: FeatureColumns, left_out: list[str], where: Path, role: Role) -> Iterator[str]:
    columns = ", ".join(f"{name} ({kind})" for kind, name in guessed.by_kind())
    if not columns and not left_out:
        return
    rest = f"; left out: {', '.join(left_out)}" if left_out else ""
    kinds = (*(["text"] if role == "item" else []), "category", "multi", "path", "number", "vector", "ignore")
    options = ", ".join(f"--{role}-{kind}" for kind in kinds)
    yield (
        f"{where.name}: read as features are {columns or 'no columns'}{rest}; name them yourself with "
        f"{options}"
    )


def _no_numbers(values: pl.Series, guess: Guess, where: Path, settings: FormatSettings) -> Iterator[str]:
    """Yield a sentence on the values for which a column is no number, if most values are numbers."""
    is_left_out = isinstance(guess, str)
    if values.dtype != pl.String or _ID_NAME.search(values.name):
        return
    if not is_left_out and guess[0][0] not in ("category", "text"):
        return
    known = values.drop_nulls()
    by_mark = {mark: known.filter(numbers(known, mark).is_null()) for mark in (settings.decimal, ",")}
    mark, others = min(by_mark.items(), key=lambda entry: len(entry[1]))
    if not 0 < 2 * len(others) <= len(known):
        return
    option = "" if mark == settings.decimal else ", even with --decimal ','"
    shown = ", ".join(repr(brief(text)) for text in others.unique(maintain_order=True).head(EXAMPLES))
    yield (
        f"{where.name}: column {values.name!r} is no number{option}, as {len(others):,} of its "
        f"{len(known):,} values are none, such as {shown}; write one number in each, or name texts for no "
        f"value with --null {shlex.quote(f'{values.name}=TEXT')}"
    )


def _guess(values: pl.Series, role: Role, settings: FormatSettings) -> Guess:
    known, name, dtype = values.drop_nulls(), values.name.lower(), values.dtype
    if are_vectors(values):
        return [("vector", values)]
    if lost := lost_vectors(values):
        return lost
    is_list, is_text = isinstance(dtype, pl.List), dtype == pl.String
    if is_list:
        known = known.filter(known.list.len() > 0)
    if not is_printable(element_type(dtype)):
        return "nested records" if dtype.is_nested() else f"values of the type {brief(dtype)}"
    if not len(known):
        return "no value"
    usual, separator = _KIND_OF_NAME.get(name), settings.list_separator
    if is_text and usual not in ("text", "multi") and not separator and are_paths(values):
        return [("path", values)]
    if is_list or usual == "multi" or (is_text and usual != "text" and are_lists(values, separator)):
        return [("multi", values)]
    if usual == "text":
        return [("text", values)] if role == "item" else "texts of users"
    if dtype == pl.Boolean or (usual == "category" and (name != "age" or known.n_unique() <= _AGE_GROUPS)):
        return [("category", values)]
    if (dates := days(values)) is not None:
        return _date_features(dates)
    if dtype.is_numeric():
        return _guess_number(as_numbers(values, settings.decimal, f"{role}s file", role), values)
    texts, known = values.cast(pl.String), known.cast(pl.String)
    if (floats := _all_numbers(texts, settings.decimal)) is not None:
        return _MAYBE_THOUSANDS if _may_divide_thousands(known, settings) else _guess_number(floats, texts)
    if settings.decimal == "." and _all_numbers(texts, ",") is not None:
        return "numbers with a decimal comma, which --decimal , reads"
    if not _are_distinct(known, len(values)):
        return [("category", texts)]
    # Spaces divide words: a code such as AX-17-b is one word.
    words = known.head(1000).str.count_matches(r"\S+").mean()
    if role == "item" and float(words or 0.0) >= 2.0:  # type: ignore[arg-type]
        return [("text", texts)]
    return f"texts, {_DISTINCT}"


def field_values(values: pl.Series, settings: FormatSettings) -> pl.Series:
    """Read texts as a feature of them would: as numbers, lists, or true and false; else unchanged."""
    read = truths(without_nulls(values, nulls_of(settings.nulls, values.name)))
    if read.dtype != pl.String or not len(known := read.drop_nulls()):
        return read if read.dtype != values.dtype else values
    if _ID_NAME.search(values.name):  # a code is no number
        return values
    separator, usual = settings.list_separator, _KIND_OF_NAME.get(values.name.lower())
    floats = _all_numbers(read, settings.decimal)
    if floats is not None and not _may_divide_thousands(known, settings):
        is_whole = known.str.contains(r"^-?\d+$").all()  # answers have them as integers, exact beyond 2^53
        return values if is_whole else floats
    if usual == "multi" or (usual != "text" and not are_paths(read) and are_lists(read, separator)):
        return as_lists(read, separator)
    return values


def _all_numbers(texts: pl.Series, decimal: str) -> pl.Series | None:
    """Return the numbers of a column that has no other texts; None for codes with zeros in front."""
    floats = numbers(texts, decimal)
    has_zeros_in_front = texts.str.contains(r"^0\d+$").any()
    return None if floats.null_count() > texts.null_count() or has_zeros_in_front else floats


def _may_divide_thousands(known: pl.Series, settings: FormatSettings) -> bool:
    """Tell whether 1.006 stands beside 742, and every point has three digits behind it."""
    has_point = known.str.contains(".", literal=True)
    if settings.decimal == "," or not has_point.any() or has_point.all():
        return False
    whole = known.filter(~has_point)
    return bool(
        known.filter(has_point).str.contains(r"^[1-9]\d{0,2}(?:\.\d{3})+$").all()
        and whole.str.contains(r"^\d{1,3}$").all()
    )


def _guess_number(floats: pl.Series, values: pl.Series) -> Guess:
    known = floats.drop_nulls()
    if not (known == known.floor()).all():
        return [("number", floats)]
    if floats.n_unique() > 0.9 * len(floats) >= 0.9 * _FEWEST_ROWS:
        return f"whole numbers, {_DISTINCT}"
    if not _ID_NAME.search(values.name):
        return [("number", floats)]
    return f"codes, {_DISTINCT}" if _are_distinct(known, len(values)) else [("category", values)]


def _are_distinct(known: pl.Series, count: int) -> bool:
    return known.n_unique() > max(2.0, _MOST_VALUES * count)


def _varies(kind: str, column: pl.Series) -> bool:
    """Tell whether a feature varies; a missing value is a value too, except for numbers and vectors."""
    reading = KINDS[kind].reading
    if reading == "lists":
        column = column.list.join("\0")
    return reading == "vectors" or (column.drop_nulls() if reading == "numbers" else column).n_unique() > 1


def _date_features(dates: pl.Series) -> Guess:
    """Return dates as the two features of `date_features`."""
    age, season = date_names(dates.name)
    month = dates.cast(pl.Int32).cast(pl.Date).dt.month().cast(pl.String)
    return [("number", dates.alias(age)), ("category", month.alias(season))]
