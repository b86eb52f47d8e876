"""Features fitted to the columns of a table, and encoded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from turret.data.errors import ColumnError
from turret.data.features import Bag, Column, Feature, Features, trigrams
from turret.data.preparing.columns import require
from turret.data.reading.schema import FeatureColumns


def encode(frame: pl.DataFrame, chosen: FeatureColumns, where: Path) -> Features:
    """Encode the chosen columns of `frame`, as `read_features` returns it: its rows are the vocabulary's.

    Raises ColumnError when a column does not exist or can't be a feature of its kind.
    """
    features: list[Feature] = []
    columns: dict[str, Column] = {}
    existing = [name for name in frame.columns if not name.startswith("__")]
    for kind, name in chosen.by_kind():
        require(name, existing, str(where), f"{kind} feature")
        feature, column = _ENCODERS[kind](name, frame[name])
        features.append(feature)
        columns[name] = column
    return Features(frame.height, tuple(features), columns)


def raw_features(frame: pl.DataFrame, chosen: FeatureColumns) -> dict[str, list[Any]]:
    """Return the chosen columns of `frame`, as for `encode`, as values that `Feature.encode_one` takes."""
    forms = {"multi": lambda values: as_lists(values, "|"), "number": as_numbers}
    return {name: forms.get(kind, _texts)(frame[name]).to_list() for kind, name in chosen.by_kind()}


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


def _category(name: str, values: pl.Series) -> tuple[Feature, Column]:
    texts = _texts(values)
    distinct = tuple(sorted(set(texts.drop_nulls()) - {""}))
    feature = Feature(name=name, kind="category", values=distinct)
    return feature, np.array([feature.encode_one(text) for text in texts], dtype=np.int32)


def _multi(name: str, values: pl.Series) -> tuple[Feature, Column]:
    lists = as_lists(values, "|")
    distinct = tuple(sorted(set(lists.explode().drop_nulls())))
    feature = Feature(name=name, kind="multi", values=distinct)
    return feature, _bag(feature, lists.to_list())


def _text(name: str, values: pl.Series) -> tuple[Feature, Column]:
    texts = _texts(values).to_list()
    distinct = tuple(sorted({trigram for text in texts if text is not None for trigram in trigrams(text)}))
    feature = Feature(name=name, kind="text", values=distinct)
    return feature, _bag(feature, texts)


def _number(name: str, values: pl.Series) -> tuple[Feature, Column]:
    numbers = as_numbers(values).to_numpy()
    present = numbers[~np.isnan(numbers)]
    mean, deviation = (float(present.mean()), float(present.std())) if len(present) else (0.0, 1.0)
    feature = Feature(name=name, kind="number", mean=mean, deviation=deviation or 1.0)
    return feature, np.nan_to_num((numbers - feature.mean) / feature.deviation).astype(np.float32)


def _bag(feature: Feature, raw: Sequence[object]) -> Bag:
    rows = [feature.encode_one(value) for value in raw]
    lengths = [len(codes) for codes in rows if isinstance(codes, list)]
    values = [code for codes in rows if isinstance(codes, list) for code in codes]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return Bag(np.array(values, dtype=np.int32), offsets.astype(np.int64))


_ENCODERS = {"text": _text, "category": _category, "multi": _multi, "number": _number}
