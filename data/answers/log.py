"""Reads the answer log: its columns, and the answers of a range of times."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from turret.data.answers.form import files_of
from turret.data.errors import SourceError, brief

SCHEMA = pl.Schema(
    {
        "answer_id": pl.String(),
        "time": pl.Datetime("ms", "UTC"),
        "call": pl.String(),
        "version": pl.String(),
        "route": pl.String(),
        "visitor": pl.String(),
        "items": pl.List(pl.String()),
        "places": pl.List(pl.UInt16()),
        "scores": pl.List(pl.Float32()),
        "sources": pl.List(pl.String()),
        "propensities": pl.List(pl.Float64()),
        "context": pl.String(),
        "rules": pl.List(pl.String()),
    }
)


def read_answers(folder: Path, first: int | None = None, last: int | None = None) -> pl.LazyFrame:
    """Return the answers with first <= time < last, in milliseconds since 1970, in no order; None: no bound.

    Files of minutes outside of the range are not opened. Files that are not complete have another name, and
    are not read.

    Raises EmptyDataError for a folder without answers of the range, SourceError for a file that is damaged or
    has other columns.
    """
    chosen = files_of(folder, first, last)
    for path in chosen:
        _check(path)
    answers = pl.scan_parquet(chosen, schema=SCHEMA, extra_columns="ignore", glob=False)
    bounds = [
        bound
        for bound in (
            None if first is None else pl.col("time") >= _moment(first),
            None if last is None else pl.col("time") < _moment(last),
        )
        if bound is not None
    ]
    return answers.filter(*bounds) if bounds else answers


@contextmanager
def damage_told(place: Path | str) -> Iterator[None]:
    """Raise SourceError for the log at `place`, if Polars can't read it to its end."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        line = brief(str(error).partition("\n")[0], 200)
        raise SourceError(f"the answer log {place} can't be read ({line}); delete the damaged file") from None


def _moment(milliseconds: int) -> pl.Expr:
    return pl.lit(milliseconds).cast(pl.Datetime("ms", "UTC"))


def _check(path: Path) -> None:
    """Raise SourceError for a file that is damaged, or that has not the columns of the log."""
    try:
        columns = pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        line = brief(str(error).partition("\n")[0], 200)
        raise SourceError(f"{path} can't be read ({line}); delete it, its answers are lost") from None
    for name, kind in SCHEMA.items():
        if columns.get(name) != kind:
            there = f"has {name} of {columns[name]}" if name in columns else f"has no column {name}"
            raise SourceError(
                f"{path} {there}, where the answer log has {name} of {kind}; move the file out of the folder"
            )
