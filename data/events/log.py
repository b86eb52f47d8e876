"""A validated log: the rows of its sources, and the counts and examples of those that are no events."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl
from numpy import int32
from numpy.typing import DTypeLike

from turret.data.answers.places import PLACE, PROPENSITY
from turret.data.events.dropped_rows import NO_KIND, UNREADABLE_TIME, WRONG_CLOCK, CheckedRows
from turret.data.events.event_arrays import PIECE
from turret.data.events.ids import IdColumn
from turret.data.events.labels import KIND, KIND_FILTER, LABEL
from turret.data.events.sessions import hashed
from turret.data.kinds import KindTable, read_kinds, row_codes
from turret.data.manifest import BadRows, Removed
from turret.data.reading.queries import ORDER
from turret.data.reading.tables import EXAMPLES, ROW, Table, readable
from turret.data.reading.times import TimeReader, further_forms
from turret.data.rows import LocalRows, Rows

PART, VERDICT = "__part", "__verdict"
WEIGHT_FILTER = "min_weight"
FILTERS = (KIND_FILTER, NO_KIND, WEIGHT_FILTER)
COLUMNS = ("times", "weights", "parts", "labels", "kinds", "sessions", "places", "propensities", "contexts")


@dataclass(frozen=True)
class SourceRows:
    """The validated rows of one source of a log; `name` is empty for the only source.

    `rows` has one row per source row: ROW, PART, `user` and `item` (ids as keys, see `data.events.ids`),
    `time`, `weight`, `session`, `context`, LABEL, KIND, PLACE and PROPENSITY (if any), the raw columns as
    `raw_...`, and VERDICT: null for an event, else the reason why the row is none. `numeric` tells by role
    whether ids are numbers in the source, or texts that may be numbers, as in CSV. `ids` has the id columns,
    `tables` the table of each part, and `names` the source names of the raw columns.
    """

    name: str
    rows: Rows
    time: TimeReader
    numeric: dict[str, bool]
    ids: Mapping[str, IdColumn]
    tables: dict[int | None, Table]
    names: dict[str, str]

    @property
    def path(self) -> Path:
        """The file of the first part, for messages."""
        return next(iter(self.tables.values())).path

    @property
    def prefix(self) -> str:
        """The beginning of the source's kinds of bad rows: its name, if the log has several sources."""
        return f"{self.name}: " if self.name else ""

    def values(self, names: Collection[str]) -> Rows:
        """Return the rows as `Log.values` does, with the columns `names` of the whole log."""
        schema = self.rows.schema()
        label = pl.col(KIND) >= 0 if "kinds" in names else pl.lit(True)
        columns = {"times": pl.col("time")}
        if "weights" in names:  # an event of a source without weights has the weight 1
            columns["weights"] = pl.col("weight") if "weight" in schema else pl.lit(1.0, pl.Float32)
        if "parts" in names:
            columns["parts"] = pl.col(PART)
        if "labels" in names:
            columns["labels"] = (label & (pl.col(LABEL) == 1) if LABEL in schema else label).cast(pl.Int8)
        if "kinds" in names:
            columns["kinds"] = pl.col(KIND)
        if "sessions" in names:
            columns["sessions"] = hashed(
                pl.col("session") if "session" in schema else pl.lit(None, pl.String)
            )
        for name, column, dtype, none in (
            ("places", PLACE, pl.UInt16(), 0),
            ("propensities", PROPENSITY, pl.Float32(), float("nan")),
        ):
            if name in names:
                value = pl.col(column).cast(dtype) if column in schema else pl.lit(None, dtype)
                columns[name] = value.fill_null(pl.lit(none, dtype))
        if "contexts" in names:
            columns["contexts"] = pl.col("context")
        verdict = pl.col(VERDICT)
        if self.name:
            is_bad = ~verdict.is_in(FILTERS)
            verdict = pl.when(is_bad).then(pl.lit(self.prefix) + verdict).otherwise(verdict).alias(VERDICT)
        label_column = [LABEL] * (LABEL in schema)
        return self.rows.then(lambda frame: frame.select("user", "item", verdict, *label_column, **columns))

    def further_forms(self) -> tuple[str, ...]:
        """Return the formats of the times that could not be read, as far as the formats are known."""
        if self.rows.schema()["raw_time"] != pl.String:
            return ()
        is_unread = pl.col(VERDICT) == UNREADABLE_TIME
        with readable(self.path):
            unread = self.rows.first(PIECE, lambda frame: frame.filter(is_unread).select("raw_time"))
        return further_forms(self.time, unread["raw_time"], self.names["raw_time"])

    def valid(self) -> int:
        """Count the events."""
        with readable(self.path):
            counts = self.rows.collect(lambda frame: frame.select(pl.col(VERDICT).null_count()))
        return int(counts[VERDICT].sum())

    def verdicts_by_kind(self) -> dict[tuple[int, str | None], int]:
        """Count the rows by the code of their kind and their verdict, without filtered rows."""
        is_filtered = pl.col(VERDICT).is_in(FILTERS).fill_null(False)
        counts = Counter[tuple[int, str | None]]()
        with readable(self.path):
            pieces = self.rows.collect(lambda frame: frame.filter(~is_filtered).group_by(KIND, VERDICT).len())
        for code, verdict, count in pieces.iter_rows():
            if code is not None:
                counts[code, verdict and self.prefix + verdict] += count
        return counts

    def examples(self, verdict: str, condition: pl.Expr | bool = True) -> list[dict[str, Any]]:
        """Return the first rows with a verdict that meet a condition, under the names of the source."""
        raw = [name for name in self.rows.schema().names() if name.startswith("raw_")]
        matches = (pl.col(VERDICT) == verdict) & condition
        with readable(self.path):
            rows = self.rows.first(EXAMPLES, lambda frame: frame.filter(matches).select(ROW, PART, *raw))
        if verdict == WRONG_CLOCK:
            day = self.time.value.cast(pl.Datetime("ms")).dt.date()
            rows = rows.with_columns(pl.format("{} ({})", "raw_time", day).alias("raw_time"))
        return [self._example(row) for row in rows.iter_rows(named=True)]

    def _example(self, row: dict[str, Any]) -> dict[str, Any]:
        part, number = row.pop(PART), row.pop(ROW)
        table = self.tables[part]
        named = {} if part is None and not self.name else {"file": table.path.name}
        shown = {self.names[raw]: value for raw, value in row.items() if self.names[raw] != ORDER}
        values = {name: None if value is None else str(value) for name, value in shown.items()}
        return {**named, **table.place(number), **values}


@dataclass(frozen=True)
class Log:
    """A validated log of one source or of several.

    The rows of the sources follow each other in the order of `sources`. `kinds` is the table of kinds.
    `notes` are sentences for people, and so are `doubts`, which are about ids that are changed on reading.
    `numeric` is that of `SourceRows` for all sources. With several sources, the kinds of bad rows begin with
    the name of their source; filters are counted over all of them.
    """

    sources: tuple[SourceRows, ...]
    has_labels: bool
    kinds: KindTable
    notes: tuple[str, ...]
    doubts: tuple[str, ...]
    numeric: dict[str, bool]

    @property
    def path(self) -> Path:
        """The file of the first source, for messages."""
        return self.sources[0].path

    @property
    def time(self) -> TimeReader:
        """The reader of the first source's times, with the notes of all, and the unit if all share it."""
        first, *others = [source.time for source in self.sources]
        if not others:
            return first
        note = "; ".join(dict.fromkeys(source.prefix + source.time.note for source in self.sources))
        units = {first.per_second, *(time.per_second for time in others)}
        return replace(first, note=note, per_second=first.per_second if len(units) == 1 else None)

    @property
    def has_weights(self) -> bool:
        """Whether events of some source have weights."""
        return any("weight" in source.rows.schema() for source in self.sources)

    @property
    def has_parts(self) -> bool:
        """Whether the source states the part of each event."""
        return None not in self.sources[0].tables

    @property
    def columns(self) -> dict[str, DTypeLike]:
        """The types of this log's columns of `data.events.event_arrays.Events`."""
        rows = pl.DataFrame(schema=self.values.schema())
        users_and_items: dict[str, DTypeLike] = {"users": int32, "items": int32}
        columns = {name: rows[name].to_numpy().dtype for name in COLUMNS if name in rows}
        contexts: dict[str, DTypeLike] = {"contexts": int32} if "contexts" in rows else {}
        return users_and_items | columns | contexts

    def pieces(self) -> Iterator[pl.DataFrame]:
        """Yield the `values` of rows of this process in batches."""
        for source, values in zip(self.sources, self._values, strict=True):
            assert isinstance(values, LocalRows)
            with readable(source.path):
                yield from values.frame.collect_batches(chunk_size=PIECE, engine="streaming")

    @cached_property
    def values(self) -> Rows:
        """All rows in order: ids as keys, the other columns of `Events`, VERDICT, and LABEL if any."""
        first, *others = self._values
        return first.and_others(others) if others else first

    @cached_property
    def _values(self) -> list[Rows]:
        """The `values` of each source, in common types."""
        has_places = any(PLACE in source.rows.schema() for source in self.sources)
        present = {
            "times": True,
            "weights": self.has_weights,
            "parts": self.has_parts,
            "labels": self.has_labels,
            "kinds": bool(self.kinds),
            "sessions": any("session" in source.rows.schema() for source in self.sources),
            "places": has_places,
            "propensities": has_places,
            "contexts": "context" in self.sources[0].rows.schema(),
        }
        values = [source.values([name for name in COLUMNS if present[name]]) for source in self.sources]
        if len(values) == 1:
            return values
        none = [pl.DataFrame(schema=rows.schema()) for rows in values]
        types = pl.concat(none, how="vertical_relaxed").schema
        return [rows.then(lambda frame: frame.cast(types)) for rows in values]

    def named_answers(self) -> pl.DataFrame:
        """Return the events that name an answer: `user` and `item` as texts, `time`, `kind` and `answer`.

        `kind` is the code of the kind, null where all events are alike. Answers are texts as the source has
        them, without blanks around them.
        """
        types = {"user": pl.String, "item": pl.String, "time": pl.Int64, "kind": pl.Int8, "answer": pl.String}
        frames = [pl.DataFrame(schema=types)]
        for source in self.sources:
            schema = source.rows.schema()
            if "raw_answer" in schema:
                columns = {name: pl.col(name) for name in ("user", "item", "time")}
                columns["kind"] = pl.col(KIND) if KIND in schema else pl.lit(None)
                columns["answer"] = pl.col("raw_answer").cast(pl.String).str.strip_chars()
                with readable(source.path):
                    frames.append(source.rows.collect(partial(_named, columns, pl.Schema(types))))
        return pl.concat(frames)

    @property
    def malformed(self) -> list[BadRows]:
        """The lines of each source that are no rows."""
        return [
            table.malformed.bad_rows(f"{source.prefix}malformed line")
            for source in self.sources
            for table in source.tables.values()
            if table.malformed.count
        ]

    def dropped_rows(self, counts: Mapping[str, int]) -> tuple[list[BadRows], list[Removed]]:
        """Return bad rows by kind, with examples, and removed rows by filter, from `counts` by verdict."""
        removed = [Removed(filter=name, events=counts[name]) for name in FILTERS if name in counts]
        bad = [
            BadRows(kind=kind, count=counts[kind], examples=self._examples(kind))
            for kind in sorted(counts)
            if kind not in FILTERS
        ]
        return bad, removed

    def further_forms(self, verdicts: Mapping[str, int]) -> list[tuple[str, ...]]:
        """Return all formats of the times of each source, if known ones read further times; else nothing.

        `verdicts` counts the rows by verdict.
        """
        new = [
            source.further_forms() if source.prefix + UNREADABLE_TIME in verdicts else ()
            for source in self.sources
        ]
        pairs = zip(self.sources, new, strict=True)
        return [(*source.time.forms, *forms) for source, forms in pairs] if any(new) else []

    def verdicts_by_kind(self) -> dict[str, Counter[str | None]]:
        """Count the rows of each target and signal by verdict, None for events, without filtered rows."""
        names = read_kinds(self.kinds)
        verdicts = {name: Counter[str | None]() for name in names}
        for source in self.sources:
            for (code, verdict), count in source.verdicts_by_kind().items():
                if code >= 0:
                    verdicts[names[code]][verdict] += count
        return verdicts

    def bad_rows_of_kind(self, name: str, verdicts: Mapping[str | None, int]) -> list[BadRows]:
        """Return the bad rows of one kind of events as `dropped_rows` does for all kinds."""
        is_of_kind = pl.col(KIND) == row_codes(self.kinds)[name]
        return [
            BadRows(
                kind=f"rows of the kind {name}: {verdict}",
                count=count,
                examples=self._examples(verdict, is_of_kind),
            )
            for verdict, count in verdicts.items()
            if verdict is not None
        ]

    def checked(self, count: int, bad_rows: Sequence[BadRows]) -> list[CheckedRows]:
        """Return the valid and the bad rows of each source; `count` events are those of all sources."""
        names = dict.fromkeys(source.name for source in self.sources)
        checked = []
        for name in names:
            sources = [source for source in self.sources if source.name == name]
            files = list(dict.fromkeys(table.path for source in sources for table in source.tables.values()))
            bad = [rows for rows in bad_rows if rows.kind.startswith(sources[0].prefix)]
            valid = count if len(names) == 1 else sum(source.valid() for source in sources)
            checked.append(CheckedRows(files, valid, bad))
        return checked

    def _examples(self, verdict: str, condition: pl.Expr | bool = True) -> list[dict[str, Any]]:
        examples = list[dict[str, Any]]()
        for source in self.sources:
            if verdict.startswith(source.prefix) and len(examples) < EXAMPLES:
                examples += source.examples(verdict.removeprefix(source.prefix), condition)
        return examples[:EXAMPLES]


def _named(columns: Mapping[str, pl.Expr], types: pl.Schema, frame: pl.LazyFrame) -> pl.LazyFrame:
    """Choose the `columns` of the events with an answer, in these types."""
    events = frame.filter(pl.col(VERDICT).is_null()).select(**columns).cast(types)
    return events.filter(pl.col("answer").str.len_chars() > 0)
