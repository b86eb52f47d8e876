"""Ingestion: open the configured source, choose columns, validate rows, count bad rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from turret.data.errors import ColumnError, EmptyDataError
from turret.data.events.dropped_rows import (
    UNKNOWN_ITEM,
    CheckedRows,
    bad_row_lines,
    describe_dropped,
    names_of,
    refuse_bad_rows,
)
from turret.data.events.events import Log, refuse_absent_kinds, validate
from turret.data.events.ids import as_keys
from turret.data.events.labels import check_labels
from turret.data.events.read_events import IngestedEvents, read_events
from turret.data.manifest import BadRows, Columns
from turret.data.preparing.item_catalog import EntityTable, malformed_rows, read_entity_table
from turret.data.reading.columns import Role, choose_columns
from turret.data.reading.open_source import open_source
from turret.data.reading.schema import ColumnSettings, PrepareConfig, has_own_nulls
from turret.data.reading.tables import EXAMPLES, Source, Table
from turret.data.stores import LocalCopies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class IngestedSource:
    """A source with its columns, its validated rows and its events.

    `bad_events` are the bad rows of the events, `bad_rows` those of all files.
    """

    source: Source
    columns: Columns
    log: Log
    events: IngestedEvents
    items: EntityTable | None
    users: EntityTable | None
    bad_events: list[BadRows]
    bad_rows: list[BadRows]


def ingest_source(
    config: PrepareConfig,
    work: Path,
    copies: LocalCopies,
    session: "SparkSession | None" = None,
    is_continued: bool = False,
) -> IngestedSource:
    """Open, validate and read the source, by Polars or a session of Spark; `work` is a folder for events.

    A source that continues a log (`is_continued`) need not have events of every kind. Raises BadRowsError for
    bad rows unless they are to be dropped, EmptyDataError when no row is an event, and the errors of
    `open_source`, `choose_columns`, `refuse_absent_kinds`, `validate` and `check_labels`.
    """
    source = open_source(config, work, copies)
    settings = _column_settings(config.columns, source.columns)
    try:
        columns = choose_columns(settings, shared_columns(source), str(source.parts[0][1].path))
    except ColumnError as error:
        raise ColumnError(f"{error}{_other_ways(source)}") from None
    if not is_continued:
        refuse_absent_kinds(source.parts, columns, config.filters)
    nulls, separator = config.format.nulls, config.format.list_separator or "|"
    items = _entity_table(source.items, settings.item_id, columns.item, "item", nulls)
    users = _entity_table(source.users, settings.user_id, columns.user, "user", nulls)
    catalog = None if items is None else items.ids
    log = validate(
        source.parts, columns, settings, config.filters, catalog, nulls, separator, config.format.decimal
    )
    if session is None:
        events = read_events(log, work)
    else:
        from turret.data.spark.read_by_spark import read_by_spark

        events = read_by_spark(session, log, work)
    if config.queries is not None and catalog is not None:
        # Every answer is ranked, also one that no query has.
        every = pl.concat([events.items, as_keys(catalog, events.items.dtype)])
        events = replace(events, items=every.unique(maintain_order=True))
    malformed = [bad for _, table in source.parts for bad in malformed_rows("malformed line", table)]
    in_events = [*malformed, *events.bad_rows]
    entities = [entries for entries in (items, users) if entries is not None]
    bad_rows = [*in_events, *(bad for entries in entities for bad in entries.bad_rows)]
    stated = [f"null {role}" for role in ("user", "item") if has_own_nulls(nulls, getattr(columns, role))]
    read = CheckedRows(
        list(dict.fromkeys(table.path for _, table in source.parts)), len(events.events), in_events, stated
    )
    checked = [read, *(entries.checked for entries in entities)]
    if len(events.events) or config.on_bad == "error":
        refuse_bad_rows(checked, config.on_bad, _known(bad_rows, items))
    if not len(events.events):
        lines = [
            f"no row of {log.path} is an event: {describe_dropped(bad_rows, events.removed)}",
            *bad_row_lines(bad_rows),
            _known(bad_rows, items),
        ]
        raise EmptyDataError("\n".join(filter(None, lines)))
    if log.has_labels:
        check_labels(events.labels, columns)
    return IngestedSource(source, columns, log, events, items, users, in_events, bad_rows)


def _other_ways(source: Source) -> str:
    """Say where else the columns of events may be, for the end of a sentence."""
    ways = ""
    nested = sorted({name for _, table in source.parts for name in table.nested_columns()})
    if nested:
        ways += f"; further ones are nested in {', '.join(nested)}: flatten it, to a row for each record"
    if all(table.has_header for _, table in source.parts):
        ways += "; if its first line is a row and no header, give --no-header"
    if source.unread:
        ways += (
            f"; {names_of(source.unread)} beside it may have the events: name that file, or first join the "
            "files that have them together"
        )
    return ways


def refuse_unknown_nulls(nulls: Sequence[str], source: Source) -> None:
    """Raise ColumnError for an entry COLUMN=TEXT of a column that no file of the source has."""
    tables = [*(table for _, table in source.parts), source.items, source.users]
    existing = dict.fromkeys(name for table in tables if table is not None for name in table.columns())
    for entry in nulls:
        name, is_named, _ = entry.partition("=")
        if is_named and name not in existing:
            raise ColumnError(
                f"--null {entry!r}: no file has a column {name!r}; the columns are {', '.join(existing)}"
            )


def _known(bad_rows: Sequence[BadRows], items: EntityTable | None) -> str:
    """Show the first ids of the items file beside those that it lacks."""
    if items is None or all(bad.kind != UNKNOWN_ITEM for bad in bad_rows):
        return ""
    return f"the ids of {items.path} are such as {', '.join(map(repr, items.ids.head(EXAMPLES)))}"


def _entity_table(
    table: Table | None, id_column: str | None, events_column: str, role: Role, nulls: Sequence[str]
) -> EntityTable | None:
    return None if table is None else read_entity_table(table, id_column, events_column, role, nulls)


def _column_settings(settings: ColumnSettings, defaults: ColumnSettings | None) -> ColumnSettings:
    """Fill unnamed columns with those of a known source."""
    if defaults is None:
        return settings
    filled = {name: value for name, value in defaults.model_dump().items() if getattr(settings, name) is None}
    if settings.in_file_order:
        filled.pop("time", None)
    return settings.model_copy(update=filled)


def shared_columns(source: Source) -> list[str]:
    """Return the columns that all parts have, in the order of the first part."""
    first, *others = [table.columns() for _, table in source.parts]
    return [name for name in first if all(name in columns for columns in others)]
