"""Rows of a log in pieces: the same Polars queries run in this process, or on the executors of Spark."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import polars as pl

from turret.data.files import map_ordered

Value = TypeVar("Value")
Query = Callable[[pl.LazyFrame], pl.LazyFrame]
"""A query over some rows, and over all rows where these are one piece."""


Pieces = Callable[[int], Sequence[pl.LazyFrame]]
"""Returns pieces of about so many rows, which end to end are the rows of a frame."""


class Rows(ABC):
    """Rows in order, in pieces, each a lazy frame."""

    @abstractmethod
    def schema(self) -> pl.Schema:
        """Return the columns and their types."""

    @abstractmethod
    def then(self, step: Query) -> "Rows":
        """Return the rows that `step` makes of each piece; a row must not depend on other rows."""

    @abstractmethod
    def and_others(self, others: "Sequence[Rows]") -> "Rows":
        """Return these rows and then those of `others`, of the same engine and with the same columns."""

    @abstractmethod
    def head(self, count: int) -> "Rows":
        """Return the first `count` rows, as one piece."""

    @abstractmethod
    def first(self, count: int, query: Query) -> pl.DataFrame:
        """Return the first `count` rows of the results of `query`, in order."""

    @abstractmethod
    def collect(self, query: Query) -> pl.DataFrame:
        """Return the results of `query` on each piece, in order; the caller merges the partial aggregates."""


@dataclass(frozen=True)
class LocalRows(Rows):
    """Rows of this process, which are one piece."""

    frame: pl.LazyFrame

    def schema(self) -> pl.Schema:
        """Return the columns and their types."""
        return self.frame.collect_schema()

    def then(self, step: Query) -> "LocalRows":
        """Return the rows with one more step."""
        return LocalRows(step(self.frame))

    def and_others(self, others: Sequence[Rows]) -> "LocalRows":
        """Return these rows and then those of `others`."""
        frames = [rows.frame for rows in (self, *others) if isinstance(rows, LocalRows)]
        return LocalRows(pl.concat(frames))

    def head(self, count: int) -> "LocalRows":
        """Return the first rows."""
        return LocalRows(self.frame.head(count))

    def first(self, count: int, query: Query) -> pl.DataFrame:
        """Return the first rows of the result of `query`."""
        return query(self.frame).head(count).collect(engine="streaming")

    def collect(self, query: Query) -> pl.DataFrame:
        """Return the result of `query`."""
        return query(self.frame).collect(engine="streaming")


class Engine(Protocol):
    """The processes that read a log."""

    def rows(self, frame: pl.LazyFrame, pieces: Pieces, path: Path) -> Rows:
        """Return the rows of `frame`, which those of `pieces` make; `path` is for messages."""
        ...

    def run(self, function: Callable[[Value], bytes], values: Sequence[Value], /) -> Iterable[bytes]:
        """Return the results of `function` for each of `values`, in order."""
        ...

    @property
    def write_table(self) -> Callable[[str, Path], None] | None:
        """The function that writes a table of a catalog as Parquet into a new folder, None without any."""
        ...


class LocalEngine:
    """This process alone, which reads no tables of catalogs."""

    write_table = None
    run = staticmethod(map_ordered)  # several threads call the function

    def rows(self, frame: pl.LazyFrame, pieces: Pieces, path: Path) -> Rows:
        """Return the rows of `frame`."""
        return LocalRows(frame)


LOCAL = LocalEngine()
