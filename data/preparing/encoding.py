"""Columns as values of features, and features as arrays."""

import ast
import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from turret.data.configuration import FeatureKind
from turret.data.errors import ColumnError
from turret.data.features import Bag, Column, Feature, Features, grams, levels
from turret.data.reading.schema import ColumnSettings, FeatureColumns
from turret.data.reading.times import choose_reader

# The sample by which a column's kind is told.
_SAMPLE = 100_000
_SIGNS = r"[\s\u00a0\u202f'\u2019%]|[$€£¥₹]|\b(?:EUR|USD|GBP|CHF|SEK|NOK|DKK|PLN|JPY|CNY|INR|kr|zł|Fr\.)"
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


def without_nulls(values: pl.Series, nulls: Sequence[str]) -> pl.Series:
    """Texts, stripped of spaces, and numbers, null where they are one of `nulls`; other types unchanged."""
    if values.dtype == pl.String:
        known = values.str.strip_chars()
        is_null = known.is_in(["", *nulls])
    elif values.dtype.is_numeric():
        known = values
        is_null = values.cast(pl.Float64).is_in([float(text) for text in nulls if _NUMBER.fullmatch(text)])
    else:
        return values
    return pl.select(pl.when(~is_null).then(known)).to_series().alias(values.name)


def numbers(texts: pl.Series, decimal: str = ".") -> pl.Series:
    """Texts as float64, null where they are no numbers.

    `decimal` is the decimal mark, "." or ","; the other one is that of thousands. Signs of currency and
    percent are left out.
    """
    plain = texts.cast(pl.Float64, strict=False)
    if decimal == "." and plain.null_count() == texts.null_count():
        return plain
    thousands = "." if decimal == "," else ","
    bare = texts.str.replace_all(_SIGNS, "")
    grouped = rf"\d{{1,3}}(?:[{thousands}]\d{{3}})+(?:[{decimal}]\d*)?"
    simple = rf"(?:\d+(?:[{decimal}]\d*)?|[{decimal}]\d+)(?:[eE][+-]?\d+)?"
    text = bare.str.replace_all(thousands, "", literal=True).str.replace(decimal, ".", literal=True)
    value = text.cast(pl.Float64, strict=False)
    is_number = bare.str.contains(rf"^[+-]?(?:{grouped}|{simple})$") & value.is_finite()
    return pl.select(pl.when(is_number).then(value)).to_series().alias(texts.name)


def plain_numbers(texts: pl.Series) -> pl.Series:
    """Texts that are all numbers without zeros in front, as numbers; other columns unchanged."""
    known = texts.drop_nulls().str.strip_chars()
    known = known.filter(known != "")
    if not len(known) or not known.str.contains(r"^-?(?:0|[1-9]\d{0,14})(?:\.\d+)?$").all():
        return texts
    return texts.str.strip_chars().cast(pl.Float64, strict=False).alias(texts.name)


def truths(values: pl.Series) -> pl.Series:
    """Texts that are all true or false, in any case, as booleans; other columns unchanged."""
    if values.dtype != pl.String or not len(known := values.str.to_lowercase().drop_nulls()):
        return values
    is_truth = known.is_in(["true", "false"]).all()
    return (values.str.to_lowercase() == "true").alias(values.name) if is_truth else values


def days(values: pl.Series) -> pl.Series | None:
    """Dates as days since 1970 (float64), or None for a column without dates.

    Texts are dates if all of a sample are, in one of the formats of event times.
    """
    values = values.rename("value")
    if values.dtype == pl.String:
        if not values.head(_SAMPLE).drop_nulls().str.contains(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}").all():
            return None
    elif not values.dtype.is_temporal() or values.dtype in (pl.Duration, pl.Time):
        return None
    try:
        reader = choose_reader(values.to_frame().lazy(), "value", "value", ColumnSettings())
    except ColumnError:
        return None
    if reader.kind != "timestamp":
        return None
    found = values.to_frame().select(reader.value / 86_400_000).to_series()
    return found if found.null_count() == values.null_count() else None


def are_json_lists(texts: pl.Series) -> bool:
    """Tell whether all texts of a sample are in brackets."""
    sample = texts.drop_nulls().head(_SAMPLE)
    return len(sample) > 0 and bool((sample.str.starts_with("[") & sample.str.ends_with("]")).all())


def are_lists(texts: pl.Series, separator: str) -> bool:
    """Tell whether texts are JSON lists, or have values between separators.

    Parts between separators are values of a list where they come back in other texts: each is in two on
    average, which parts of titles such as "Matrix, The" are not.
    """
    sample = texts.drop_nulls().head(_SAMPLE)
    if are_json_lists(sample):
        return True
    if not len(sample) or sample.str.contains(separator, literal=True).mean() < 0.1:  # type: ignore[operator]
        return False
    parts = sample.unique().str.split(separator).explode().str.strip_chars()
    parts = parts.filter(parts != "")
    return len(parts) >= 2 * parts.n_unique()


def are_paths(texts: pl.Series) -> bool:
    """Tell whether texts are paths of levels, such as "Women > Shoes", or "women/shoes".

    Most have several levels, and there are at most half as many highest levels as paths. Of texts with
    slashes, a path comes back, which the file of a picture does not, and its last level belongs to no other,
    as values of lists do.
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


def json_lists(texts: pl.Series) -> pl.Series:
    """Lists in JSON, or as Python prints them, as lists of texts; null where there is none."""
    lists = [None if text is None else _one_list(text) for text in texts]
    return pl.Series(texts.name, lists, dtype=pl.List(pl.String))


def _one_list(text: str) -> list[str] | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        try:
            values = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return [str(value) for value in values if value is not None] if isinstance(values, list) else None


def encode(frame: pl.DataFrame, chosen: FeatureColumns, words: bool = False) -> Features:
    """Encode the chosen columns of `frame`, as `read_features` returns it: its rows are the vocabulary's.

    `words` reads texts as whole words beside their trigrams. Vectors are left out.

    Raises ColumnError when a column can't be a feature of its kind.
    """
    features: list[Feature] = []
    columns: dict[str, Column] = {}
    kinds = {name: kind for kind, name in chosen.by_kind()}
    for name, raw in raw_features(frame, chosen).items():
        feature = _feature(name, kinds[name], raw, words)
        features.append(feature)
        codes = [feature.encode_one(value) for value in raw]
        if feature.kind == "number":
            columns[name] = np.array(codes, dtype=np.float32)
        elif feature.kind == "category":
            columns[name] = np.array(codes, dtype=np.int32)
        else:
            lists: list[list[int]] = codes  # type: ignore[assignment]
            offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
            columns[name] = Bag(np.array([*chain.from_iterable(lists)], dtype=np.int32), offsets)
    return Features(frame.height, tuple(features), columns)


def _feature(name: str, kind: FeatureKind, raw: list[Any], words: bool) -> Feature:
    present = [value for value in raw if value is not None]
    if kind == "number":
        numbers = np.array(present or [0.0])
        return Feature(
            name=name, kind=kind, mean=float(numbers.mean()), deviation=float(numbers.std()) or 1.0
        )
    if kind == "path":
        values = set(chain.from_iterable(map(levels, present)))
        return Feature(name=name, kind=kind, values=tuple(sorted(values)))
    if kind == "text":
        values = {gram for text in present for gram in grams(text, words)}
        return Feature(name=name, kind=kind, values=tuple(sorted(values)), words=words)
    values = set(present) - {""} if kind == "category" else set(chain.from_iterable(present))
    return Feature(name=name, kind=kind, values=tuple(sorted(values)))


def raw_features(frame: pl.DataFrame, chosen: FeatureColumns) -> dict[str, list[Any]]:
    """Return the chosen columns of `frame` as values for `Feature.encode_one`; vectors are left out."""
    forms = {"multi": lambda values: as_lists(values, "|"), "number": as_numbers}
    plain = ((kind, name) for kind, name in chosen.by_kind() if kind != "vector")
    return {name: forms.get(kind, _texts)(frame[name]).to_list() for kind, name in plain}


def is_printable(dtype: pl.DataType) -> bool:
    """Tell whether the type prints unambiguously: numbers, texts, booleans and dates."""
    is_date = dtype.is_temporal() and dtype != pl.Duration
    return dtype.is_numeric() or is_date or dtype in (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Null)


def element_type(dtype: pl.DataType) -> pl.DataType:
    """Return the element type of a list type; other types unchanged."""
    return dtype.inner if isinstance(dtype, pl.List) else dtype  # type: ignore[return-value]


def as_lists(values: pl.Series, list_separator: str) -> pl.Series:
    """Return lists of texts, from lists or from separated texts; empty for null.

    Raises ColumnError for types that do not print.
    """
    _require_printable(values)
    if isinstance(values.dtype, pl.List):
        texts = pl.Series(
            [None if row is None else _texts(row).to_list() for row in values], dtype=pl.List(pl.String)
        )
    else:
        texts = _texts(values).str.split(list_separator)
    stripped = texts.list.eval(pl.element().str.strip_chars())
    return stripped.list.eval(pl.element().filter(pl.element() != "")).fill_null([]).alias(values.name)


def as_numbers(values: pl.Series) -> pl.Series:
    """Return floats, null for missing values. Raises ColumnError for texts that are not numbers."""
    if not (values.dtype.is_numeric() or values.dtype in (pl.String, pl.Null, pl.Boolean)):
        raise ColumnError(
            f"column {values.name!r} holds {values.dtype}, which can't be a number feature; give "
            "numbers, booleans or texts of numbers"
        )
    stripped = values.str.strip_chars().replace("", None) if values.dtype == pl.String else values
    numbers = stripped.cast(pl.Float64, strict=False)
    unreadable = stripped.filter(stripped.is_not_null() & numbers.is_null())
    if len(unreadable):
        raise ColumnError(
            f"column {values.name!r} holds {unreadable[0]!r}, which is not a number; make it a category"
        )
    return pl.select(pl.when(numbers.is_finite()).then(numbers)).to_series().alias(values.name)


def _texts(values: pl.Series) -> pl.Series:
    """Print values as `Feature.encode_one` does: whole floats as integers, booleans in lower case."""
    _require_printable(values)
    if values.dtype.is_decimal():
        values = values.cast(pl.Float64)
    if values.dtype.is_float():
        whole = values.is_finite() & (values == values.floor())
        return pl.select(
            pl.when(whole)
            .then(values.cast(pl.Int64, strict=False).cast(pl.String))
            .otherwise(values.cast(pl.String))
        ).to_series()
    if values.dtype.is_nested():
        raise ColumnError(f"column {values.name!r} holds {values.dtype}; name it as a multi feature")
    return values.cast(pl.String)


def _require_printable(values: pl.Series) -> None:
    if not is_printable(element_type(values.dtype)):
        raise ColumnError(
            f"column {values.name!r} holds {values.dtype}, which can't be a feature; "
            "give texts, numbers, booleans, dates or lists of them"
        )
