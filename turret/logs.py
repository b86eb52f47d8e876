"""`turret.prepare` and `turret.append`: they make prepared data from a log in files or in memory."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Protocol, runtime_checkable

from turret.arguments import checked, local_folder
from turret.data.configuration import load_configuration
from turret.data.errors import DataError, MissingExtraError, SourceError, path_of
from turret.data.events.dropped_rows import headline_of
from turret.data.extras import install_command
from turret.data.files import scratch_folder
from turret.data.object_stores import Place, is_url
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append as append_events
from turret.data.preparing.prepare import prepare as prepare_events
from turret.data.reading.schema import PrepareConfig

_LOG = logging.getLogger("turret")
StrPath = str | PathLike[str]


@runtime_checkable
class Frame(Protocol):
    """A table in memory with the Arrow PyCapsule interface, as Polars, pandas 2.2 and PyArrow have it."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table as an Arrow stream."""


Table = Frame | StrPath
Settings = Mapping[str, object] | None


@checked
def prepare(
    events: Table | None,
    folder: StrPath,
    *,
    queries: Table | None = None,
    items: Table | None = None,
    users: Table | None = None,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    settings: Settings = None,
    overwrite: bool = False,
) -> PreparedData:
    """Validate, filter and split a log of events, write it to `folder`, and open that.

    Args:
        events: one row an event, as a table in memory, or as the path or URL of anything that
            `turret data prepare` reads.
        folder: the new folder of prepared data.
        queries: pairs of a query and its item in place of events, which are None then; see docs/questions.md.
        items: one row an item, with its features and the fields to answer with.
        users: one row a user, with the user's features.
        user: the column of user ids; usual names are found without it. The same holds for `item` and `time`.
        item: the column of item ids.
        time: the column of times, or of any number that sorts a user's events.
        settings: other settings of `PrepareConfig` by their dotted names, such as
            `{"split.kind": "time", "on_bad": "drop"}`.
        overwrite: replace the prepared data in `folder`.

    Raises:
        DataError: a column is missing, rows are bad (unless `on_bad` is "drop"), nothing is left, or `folder`
            exists.
    """
    table = events if queries is None else queries
    if table is None or (events is not None and queries is not None):
        raise DataError("give either events or queries, and None for the other")
    with table_paths(table, items=items, users=users) as (source, others):
        place = "source" if queries is None else "queries.source"
        overrides = {place: source, **others, **log_settings(user, item, time, settings)}
        config = load_configuration(PrepareConfig, overrides=overrides)
        report = prepare_events(config, _local(folder), overwrite)
    return _opened(report.folder, (*headline_of(report.manifest), *report.warnings))


@checked
def append(
    events: Table,
    folder: StrPath,
    *,
    items: Table | None = None,
    users: Table | None = None,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    settings: Settings = None,
) -> PreparedData:
    """Add the new events of a log to the prepared data in `folder`, and open that.

    The result is that of preparing both logs in one, with the settings of the first preparation. Events that
    the data has already are left out; the logger `turret` gets the numbers.

    Args:
        events: one row an event, as a table in memory or as a path.
        folder: the folder of prepared data, which is replaced.
        items: one row an item, of all items; needed if they have features or fields, and the first
            preparation read them from a table in memory. The same holds for `users`.
        users: one row a user, of all users.
        user: the column of user ids, if it is not called as in the first log. The same holds for `item` and
            `time`.
        item: the column of item ids.
        time: the column of times.
        settings: other settings that differ from the first preparation, by their dotted names.

    Raises:
        DataError: as for `prepare`, and for settings under which new events could bring back old ones.
    """
    with table_paths(events, items=items, users=users) as (source, others):
        options = {**others, **log_settings(user, item, time, settings)}
        report = append_events(source, _local(folder), options)
    return _opened(report.prepared.folder, (report.sentence(), *report.prepared.warnings))


def log_settings(user: str | None, item: str | None, time: str | None, others: Settings) -> dict[str, object]:
    """The settings of a log by their dotted names; None for columns that are not named."""
    return {"columns.user": user, "columns.item": item, "columns.time": time, **(others or {})}


def _local(folder: StrPath) -> Path:
    hint = ", or use the command `turret data prepare ... --to URL`"
    return local_folder("folder", folder, "prepared data is opened from a local folder", hint)


def _opened(folder: Path, sentences: Iterable[str]) -> PreparedData:
    for sentence in sentences:
        _LOG.info(sentence)
    return PreparedData.open(folder)


@contextmanager
def table_paths(events: Table, **others: Table | None) -> Iterator[tuple[Place, dict[str, Place]]]:
    """Yield the path of the events and those of other tables; tables in memory are files during the block.

    Raises SourceError, with the name of the table, for a value that is neither a path nor an Arrow table, and
    MissingExtraError for a pandas table without PyArrow.
    """
    with scratch_folder() as folder:
        tables = {"events": events, **{name: table for name, table in others.items() if table is not None}}
        paths = {name: _path(name, table, folder) for name, table in tables.items()}
        yield paths.pop("events"), paths


def _path(name: str, table: Table, work: Path) -> Place:
    if isinstance(table, str | PathLike):
        return table if isinstance(table, str) and is_url(table) else path_of(name, table)
    if not isinstance(table, Frame):
        raise SourceError(
            f"{name} can't be read from a {type(table).__name__}; give a path, or a table that has "
            "__arrow_c_stream__ (of Polars, pandas 2.2 or later, PyArrow, ...)"
        )
    import polars as pl  # a path needs no Polars

    path = work / f"{name}.parquet"
    try:
        pl.DataFrame(table).write_parquet(path)
    except ImportError as error:  # tables of pandas are exported by PyArrow
        raise MissingExtraError(
            f"{name} can't be read from a {type(table).__name__} without pyarrow; "
            f"run: {install_command('pandas')}"
        ) from error
    except OSError:
        raise
    # The library of the table raises these, and Polars, which may panic: for columns of one name, with values
    # of several types, with whole numbers of any size, or of types that Polars doesn't have.
    except (Exception, pl.exceptions.PanicException) as error:
        reason = str(error).strip().split("\n")[0]
        raise SourceError(
            f"{name} can't be read from this {type(table).__name__}: {reason}; give each column a name of "
            "its own, and values of one type"
        ) from None
    return path
