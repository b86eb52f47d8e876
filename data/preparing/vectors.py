"""Ready vectors of items and users, made by other models: a list column, or a `.npy` file beside its ids."""

from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.errors import ColumnError, SourceError, brief
from turret.data.features.columns import VectorRows
from turret.data.features.feature import Feature
from turret.data.progress import counted
from turret.data.reading.columns import Role
from turret.data.reading.tables import readable

MOST_NUMBERS = 8192
_SAMPLE = 1000
# Texts of other lengths are errors among vectors if at least this share of the texts are vectors of one
# length, with at least this many numbers.
_SHARE, _NUMBERS = 0.9, 3
_SHORTENED = r"^\s*\[[-+.eE\d\s]*\s\.\.\.\s[-+.eE\d\s]*\]\s*$"
_IDS = (".ids.npy", ".ids.csv", ".ids.parquet")


def are_vectors(values: pl.Series) -> bool:
    """Tell whether a column holds lists of floats, or their texts in brackets, as CSV has them."""
    dtype = values.dtype
    if isinstance(dtype, pl.List | pl.Array):
        return dtype.inner.is_float() and not _are_empty(values)
    if dtype != pl.String:
        return False
    lists = _printed_numbers(values)
    texts = values.filter(lists.is_not_null()).head(_SAMPLE)
    if not len(texts) or texts.str.contains(".", literal=True).mean() < 0.5:  # type: ignore[operator]
        return False
    lists = lists.drop_nulls().head(_SAMPLE)
    is_vector = texts.str.contains(r"^\s*\[[^\[\]]*\]\s*$") & ~_has_nulls(lists)
    widths = lists.list.len().filter(is_vector)
    width, count = widths.value_counts(sort=True).row(0) if len(widths) else (0, 0)
    share: float = count / len(texts)
    return share == 1.0 or (share >= _SHARE and width >= _NUMBERS)


def lost_vectors(values: pl.Series) -> str:
    """Return the reason why a column of lists or their texts has no vectors; empty for another column."""
    if _are_empty(values):
        return "empty lists alone"
    if values.dtype == pl.String and (values.str.contains(_SHORTENED).mean() or 0.0) >= 0.5:  # type: ignore[operator]
        return "vectors that NumPy has shortened with ...: write all numbers, as json.dumps(v.tolist()) does"
    return ""


def _are_empty(values: pl.Series) -> bool:
    known = values.drop_nulls()
    if known.dtype == pl.String:
        return len(known) > 0 and bool(known.str.contains(r"^\s*\[\s*\]\s*$").all())
    is_list = isinstance(known.dtype, pl.List)
    return len(known) > 0 and is_list and not known.list.len().max()


def _printed_numbers(texts: pl.Series) -> pl.Series:
    """Parse texts of numbers as JSON or NumPy print them; null for `[]`, and for another element."""
    plain = texts.str.strip_chars(" \t\r\n[]").str.replace_all(r"[,\s]+", " ")
    plain = plain.set(plain == "", None)
    return plain.str.split(" ").list.eval(pl.element().cast(pl.Float32, strict=False))


def _has_nulls(lists: pl.Series) -> pl.Series:
    return lists.list.eval(pl.element().is_null()).list.any().fill_null(False)


def column_vectors(values: pl.Series, where: Path, ids: Sequence[str]) -> VectorRows:
    """Read a column of lists of numbers, or their texts [rows]; null and an empty list are missing vectors.

    `ids` are the ids of the rows. Raises ColumnError for lists of other values, of several lengths, or with
    numbers that are not finite.
    """
    column = f"column {values.name!r} of {where}"
    if values.dtype == pl.String:
        texts, values = values, _printed_numbers(values)
        if len(wrong := _has_nulls(values).arg_true()):
            first, reason = int(wrong[0]), lost_vectors(texts) or "write it as a list such as [0.1, 0.2]"
            raise ColumnError(
                f"{column}: that of {ids[first]!r} is no list of numbers: {brief(texts[first])!r}; {reason}"
            )
    dtype = values.dtype
    if not isinstance(dtype, pl.List | pl.Array) or not dtype.inner.is_numeric():
        raise ColumnError(f"{column} holds {brief(dtype)}, and a vector is a list of numbers")
    lists = values.cast(pl.List(dtype.inner))
    lists = pl.select(pl.when(pl.lit(lists).list.len() > 0).then(pl.lit(lists))).to_series()
    known, widths = lists.drop_nulls(), lists.list.len()
    if not len(known):
        raise ColumnError(f"{column} has no vector in any row")
    width = int(known.list.len().mode()[0])
    if len(other := (widths != width).fill_null(False).arg_true()):
        raise ColumnError(
            f"{column}: most vectors have {width} numbers, and that of {ids[other[0]]!r} has "
            f"{widths[int(other[0])]}; vectors of one feature have one length: correct it, or leave it empty"
        )
    numbers = known.explode().cast(pl.Float32, strict=False).to_numpy()
    rows = np.full(len(values), -1, dtype=np.int64)
    rows[lists.is_not_null().to_numpy()] = np.arange(len(known))
    return _checked(VectorRows(numbers.reshape(len(known), width), rows), column, ids)


def file_vectors(path: Path, ids: Sequence[str], role: Role) -> VectorRows:
    """Map the vectors of a `.npy` file, for the items or users with these ids.

    The ids of its rows are beside it: `pictures.ids.npy`, or the first column of `pictures.ids.csv` or
    `.parquet`, for `pictures.npy`. Raises SourceError for a missing or another kind of file, for numbers of
    ids and vectors that differ, and for ids that come twice.
    """
    source = _mapped(path)
    if (
        source.ndim != 2
        or source.dtype not in (np.float16, np.float32)
        or not 0 < source.shape[1] <= MOST_NUMBERS
    ):
        raise SourceError(
            f"{path} holds {source.dtype} of shape {source.shape}; give float16 or float32 of shape "
            f"[rows, numbers], of at most {MOST_NUMBERS} numbers"
        )
    known, where = _ids_beside(path)
    if len(known) != len(source):
        raise SourceError(
            f"{where} has {len(known):,} ids, and {path} {len(source):,} vectors; give one each"
        )
    row_of = {vector_id: row for row, vector_id in enumerate(known)}
    if len(row_of) != len(known):
        twice = next(vector_id for row, vector_id in enumerate(known) if row_of[vector_id] != row)
        raise SourceError(f"{where} has the id {twice!r} twice; give each vector once")
    rows = np.array([row_of.get(entity_id, -1) for entity_id in ids], dtype=np.int64)
    if (rows < 0).all():
        raise SourceError(
            f"no id of {where}, such as {known[0]!r}, is one of the {role}s, such as {ids[0]!r}; give the "
            f"ids as in the {role}s file"
        )
    return _checked(VectorRows(source, rows), str(path), ids)


def missing_note(name: str, vectors: VectorRows, role: Role) -> str:
    """Tell how many rows have no vector."""
    missing = int((vectors.rows < 0).sum())
    if not missing:
        return f"{name}: {counted(len(vectors), role)} with a vector each"
    return f"{name}: {missing:,} of {counted(len(vectors), role)} have no vector, and share a learned one"


def vector_feature(name: str, vectors: VectorRows) -> Feature:
    """Return the feature; its deviation is the root mean square of all numbers, which keeps directions."""
    total, count = 0.0, 0
    for block in vectors.blocks():
        known = block[~np.isnan(block[:, 0])].astype(np.float64)
        total += float(np.square(known).sum())
        count += known.size
    deviation = (total / count) ** 0.5 if count else 1.0
    return Feature(name=name, kind="vector", width=vectors.source.shape[1], deviation=deviation or 1.0)


def _checked(vectors: VectorRows, where: str, ids: Sequence[str]) -> VectorRows:
    """Raise ColumnError for a vector with a number that is not finite."""
    first = 0
    for block in vectors.blocks():
        rows = vectors.rows[first : first + len(block)]
        bad = np.flatnonzero((rows >= 0) & ~np.isfinite(block).all(axis=1))
        if len(bad):
            raise ColumnError(
                f"{where}: the vector of {ids[first + bad[0]]!r} has a number that is not finite; correct "
                "it, or leave it out"
            )
        first += len(block)
    return vectors


def _mapped(path: Path) -> NDArray[Any]:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, OverflowError, TokenError) as error:  # a damaged header raises some of these
        raise SourceError(f"{path} can't be read as a .npy file: {error}") from None


def _ids_beside(path: Path) -> tuple[list[str], Path]:
    for ending in _IDS:
        where = path.with_suffix(ending)
        if not where.exists():
            continue
        if ending == ".ids.npy":
            return [*map(str, _mapped(where).reshape(-1).tolist())], where
        with readable(where):
            if ending == ".ids.csv":
                table = pl.read_csv(where, infer_schema=False, glob=False)
            else:
                table = pl.read_parquet(where, glob=False)
        return [*map(str, table.to_series(0))], where
    names = ", ".join(path.with_suffix(ending).name for ending in _IDS)
    raise SourceError(
        f"the ids of the vectors in {path} are missing; write them beside it, as one of {names}"
    )
