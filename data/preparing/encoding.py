"""Columns as values of features, and features as arrays."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from turret.data.errors import ColumnError, brief
from turret.data.features.columns import Column, Features, VectorRows, encoded
from turret.data.features.feature import KINDS, Feature, Reading
from turret.data.features.texts import FORM_SEPARATOR, LIST_SEPARATOR
from turret.data.preparing.vectors import vector_feature
from turret.data.reading.columns import FeaturesOf
from turret.data.reading.numbers import numbers
from turret.data.reading.source_settings import ColumnSettings, FormatSettings
from turret.data.reading.times import TimeReader, choose_reader
from turret.data.rows import LocalRows

# The number of rows by which a column's kind is told.
_SAMPLE = 100_000
# The separators of lists in texts.
_SEPARATORS = ("|", ";", ",")
_VALUE = "value"
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


def evaluated(expression: pl.Expr, name: str) -> pl.Series:
    """Evaluate an expression of literals."""
    return pl.select(expression).to_series().alias(name)


def without_nulls(values: pl.Series, nulls: Sequence[str]) -> pl.Series:
    """Return stripped texts, or numbers, with null in place of `nulls`; other types unchanged."""
    if values.dtype == pl.String:
        known = values.str.strip_chars()
        is_null = known.is_in(["", *nulls])
    elif values.dtype.is_numeric():
        known = values
        is_null = values.cast(pl.Float64).is_in([float(text) for text in nulls if _NUMBER.fullmatch(text)])
    else:
        return values
    return evaluated(pl.when(~is_null).then(known), values.name)


def truths(values: pl.Series) -> pl.Series:
    """Return texts that are all true or false, in any case, as booleans; other columns unchanged."""
    if values.dtype != pl.String or not len(known := values.str.to_lowercase().drop_nulls()):
        return values
    is_truth = known.is_in(["true", "false"]).all()
    return (values.str.to_lowercase() == "true").alias(values.name) if is_truth else values


def days(values: pl.Series) -> pl.Series | None:
    """Return dates as days since 1970 (float64), or None for a column without dates.

    Texts are dates if all texts of a sample are dates in one of the formats of event times.
    """
    reader = _date_reader(values)
    if reader is None:
        return None
    dates = values.to_frame(_VALUE).select(reader.value / 86_400_000).to_series().alias(values.name)
    return dates if dates.null_count() == values.null_count() else None


def _date_reader(values: pl.Series) -> TimeReader | None:
    if values.dtype == pl.String:
        if not values.head(_SAMPLE).drop_nulls().str.contains(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}").all():
            return None
    elif not values.dtype.is_temporal() or values.dtype in (pl.Duration, pl.Time):
        return None
    try:
        reader = choose_reader(LocalRows(values.to_frame(_VALUE).lazy()), _VALUE, _VALUE, ColumnSettings())
    except ColumnError:
        return None
    return reader if reader.kind == "timestamp" else None


def written(reading: Reading, values: pl.Series, settings: FormatSettings) -> str:
    """Return the form of the texts in a column with this reading, for `Feature.written`."""
    if values.dtype != pl.String:
        return ""
    if reading == "numbers":
        return settings.decimal.replace(".", "")
    if reading == "lists" and not are_json_lists(values):
        return (settings.list_separator or _separator(values, "") or "").replace(LIST_SEPARATOR, "")
    return ""


def date_forms(values: pl.Series) -> str:
    """Return the formats of the days in a column of dates, except the usual one, for `Feature.written`."""
    reader = _date_reader(values)
    return FORM_SEPARATOR.join(form for form in (reader.forms if reader else ()) if form != "%Y-%m-%d")


def are_json_lists(texts: pl.Series) -> bool:
    """Tell whether all texts of a sample are in brackets."""
    sample = texts.drop_nulls().head(_SAMPLE)
    return len(sample) > 0 and bool((sample.str.starts_with("[") & sample.str.ends_with("]")).all())


def are_lists(texts: pl.Series, stated: str) -> bool:
    """Tell whether texts are JSON lists, or have values between the stated or a usual separator."""
    return are_json_lists(texts) or _separator(texts, stated) is not None


def _separator(texts: pl.Series, stated: str) -> str | None:
    """Return the separator of the lists in texts, the stated or a usual one; None for texts without lists.

    Parts between separators are values of a list if they recur in other texts: each part is in two texts on
    average, unlike parts of titles such as "Matrix, The". Commas are also in numbers, dates and names of two
    parts: the commas of lists have letters on both sides, and their number differs between texts.
    """
    sample = texts.drop_nulls().head(_SAMPLE)
    for separator in (stated,) if stated else _SEPARATORS:
        if not len(sample) or sample.str.contains(separator, literal=True).mean() < 0.1:  # type: ignore[operator]
            continue
        lists = sample.unique().str.split(separator)
        parts = lists.explode().str.strip_chars()
        parts = parts.filter(parts != "")
        is_plain = stated or separator != "," or (lists.list.len().n_unique() > 1 and _have_letters(parts))
        if is_plain and len(parts) >= 2 * parts.n_unique():
            return separator
    return None


def _have_letters(texts: pl.Series) -> bool:
    return bool(texts.str.contains(r"\p{L}").all())


def are_paths(texts: pl.Series) -> bool:
    """Tell whether texts are paths of levels, such as "Women > Shoes", or "women/shoes".

    Most texts have several levels, and there are at most half as many highest levels as paths. In texts with
    slashes, paths recur, unlike the files of pictures, and the last level of a path belongs to no other path,
    unlike the values of lists.
    """
    sample = texts.drop_nulls().head(_SAMPLE)
    for separator in (">", "/"):
        if not len(sample) or sample.str.contains(separator, literal=True).mean() < 0.5:  # type: ignore[operator]
            continue
        paths = sample.unique().str.split(separator).list.eval(pl.element().str.strip_chars())
        first, last = paths.list.first(), paths.list.last()
        is_tree = separator == ">" or (last.n_unique() >= 0.8 * len(paths) and 2 * len(paths) <= len(sample))
        is_named = bool(first.str.contains(r"^\p{L}[^:]*$").all())  # neither a date nor an address
        if is_tree and is_named and 2 * first.n_unique() <= len(paths):
            return True
    return False


def as_lists(values: pl.Series, separator: str) -> pl.Series:
    """Return lists of texts, empty for null: from lists, or from texts in JSON or between separators.

    Where no `separator` is stated, texts in brackets are JSON, or lists as Python prints them. Raises
    ColumnError for types that do not print.
    """
    if values.dtype == pl.String and not separator and are_json_lists(values):
        lists = [None if text is None else _json_list(text) for text in values]
        values = pl.Series(values.name, lists, dtype=pl.List(pl.String))
    printed = as_texts(values)
    if not isinstance(printed.dtype, pl.List):
        printed = printed.str.split(separator or _separator(printed, "") or LIST_SEPARATOR)
    stripped = printed.list.eval(pl.element().str.strip_chars())
    return stripped.list.eval(pl.element().filter(pl.element() != "")).fill_null([]).alias(values.name)


def _json_list(text: str) -> list[str] | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        try:
            values = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return [str(value) for value in values if value is not None] if isinstance(values, list) else None


def as_numbers(values: pl.Series, decimal: str, where: str, role: FeaturesOf) -> pl.Series:
    """Return finite floats, null for missing values; dates are days since 1970.

    Raises ColumnError for texts that are not numbers, and for other types.
    """
    if (dates := days(values)) is not None:
        return dates
    if not (values.dtype.is_numeric() or values.dtype in (pl.String, pl.Null, pl.Boolean)):
        raise ColumnError(
            f"{where}: column {values.name!r} holds {brief(values.dtype)}, which can't be a number feature; "
            "give numbers, booleans or texts of numbers"
        )
    floats = numbers(values, decimal) if values.dtype == pl.String else values.cast(pl.Float64, strict=False)
    unreadable = values.filter(values.is_not_null() & floats.is_null())
    if len(unreadable):
        raise ColumnError(
            f"{where}: column {values.name!r} holds {brief(unreadable[0])!r}, which is not a number; name "
            f"the column with {_as_category(values.name, role)}, the text as one for no value with --null, "
            "or the decimal mark with --decimal"
        )
    # Features are float32; if larger numbers made the mean infinite, no value of the feature would be left.
    huge = values.filter((floats.abs() > np.finfo(np.float32).max) & floats.is_finite())
    if len(huge):
        raise ColumnError(
            f"{where}: column {values.name!r} holds {huge[0]}, and a number has to be between -3.4e38 and "
            f"3.4e38; correct it, or leave the column out"
            + (" of --context" if role == "context" else f" with --{role}-ignore")
        )
    return evaluated(pl.when(floats.is_finite()).then(floats), values.name)


def _as_category(name: str, role: FeaturesOf) -> str:
    return f"--context {name}=category" if role == "context" else f"--{role}-category"


def as_texts(values: pl.Series) -> pl.Series:
    """Print values, also those of lists, as `Feature.encode_one` does: whole floats as integers.

    Raises ColumnError for types that do not print.
    """
    if not is_printable(element_type(values.dtype)):
        raise ColumnError(
            f"column {values.name!r} holds {brief(values.dtype)}, which can't be a feature; "
            "give texts, numbers, booleans, dates or lists of them"
        )
    return evaluated(_printed(pl.lit(values), values.dtype), values.name)


def _printed(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.List):
        return value.list.eval(_printed(pl.element(), element_type(dtype)))
    if not dtype.is_float() and not dtype.is_decimal():
        return value.cast(pl.String)
    value = value.cast(pl.Float64) if dtype.is_decimal() else value
    whole = value.cast(pl.Int64, strict=False).cast(pl.String)
    return pl.when(value.is_finite() & (value == value.floor())).then(whole).otherwise(value.cast(pl.String))


def is_printable(dtype: pl.DataType) -> bool:
    """Tell whether the type prints unambiguously: numbers, texts, booleans and dates."""
    is_date = dtype.is_temporal() and dtype != pl.Duration
    return dtype.is_numeric() or is_date or dtype in (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Null)


def element_type(dtype: pl.DataType) -> pl.DataType:
    """Return the element type of a list type; other types unchanged."""
    return dtype.inner if isinstance(dtype, pl.List) else dtype  # type: ignore[return-value]


def encode(
    raw: Mapping[str, Sequence[Any]],
    kinds: Mapping[str, str],
    vectors: Mapping[str, VectorRows],
    count: int,
    shared: tuple[str, ...] | None = None,
    written: Mapping[str, str] | None = None,
) -> Features:
    """Encode features of `count` rows by their raw values, as `Feature.encode_one` takes them, or `vectors`.

    `shared` are the trigrams and words of all texts; without them, each text feature has the trigrams of its
    values. `written` has the `Feature.written` of some features, by name.
    """
    features: list[Feature] = []
    columns: dict[str, Column] = {}
    for name, values in raw.items():
        feature = KINDS[kinds[name]].fit(name, values, shared)
        feature = feature.model_copy(update={"written": (written or {}).get(name, "")})
        features.append(feature)
        columns[name] = encoded(feature, values)
    features += [vector_feature(name, rows) for name, rows in vectors.items()]
    return Features(count, tuple(features), {**columns, **vectors})
