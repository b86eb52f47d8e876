"""From a log of events to prepared data: `turret.prepare` and `turret.append`."""

import logging
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

from turret.arguments import COLUMNS, log_settings, naming_arguments
from turret.data.configuration import load_configuration
from turret.data.errors import DataError
from turret.data.events.dropped_rows import headline_of
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append as append_events
from turret.data.preparing.options import settings_by_option
from turret.data.preparing.prepare import prepare as prepare_events
from turret.data.reading.schema import PrepareConfig
from turret.data.stores import is_url
from turret.tables import Table, table_paths

_LOG = logging.getLogger("turret")
_ARGUMENTS = {
    **{option: f'settings["{setting}"]' for option, setting in settings_by_option().items()},
    **COLUMNS,
    **{f"--{name}": f"{name}=..." for name in ("items", "users")},
    "--overwrite": "overwrite=True",
}


@naming_arguments(_ARGUMENTS)
def prepare(
    events: Table | None,
    folder: str | PathLike[str],
    *,
    queries: Table | None = None,
    items: Table | None = None,
    users: Table | None = None,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    settings: Mapping[str, object] | None = None,
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
    source = events if queries is None else queries
    if source is None or (events is not None and queries is not None):
        raise DataError("give either events or queries, and None for the other")
    with table_paths(source, items, users) as paths:
        given = log_settings(user, item, time, settings)
        place = "source" if queries is None else "queries.source"
        tables = {place: paths.events, "items": paths.items, "users": paths.users}
        config = load_configuration(PrepareConfig, overrides={**tables, **given})
        report = prepare_events(config, _local(folder), overwrite)
    return _opened(report.folder, (*headline_of(report.manifest), *report.warnings))


@naming_arguments(_ARGUMENTS)
def append(
    events: Table,
    folder: str | PathLike[str],
    *,
    items: Table | None = None,
    users: Table | None = None,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    settings: Mapping[str, object] | None = None,
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
    with table_paths(events, items, users) as paths:
        given = log_settings(user, item, time, settings)
        options = {"items": paths.items, "users": paths.users, **given}
        report = append_events(paths.events, _local(folder), options)
    _LOG.info(report.sentence())
    return _opened(report.prepared.folder, report.prepared.warnings)


def _local(folder: str | PathLike[str]) -> Path:
    if isinstance(folder, str) and is_url(folder):
        raise DataError(
            f"folder = {folder!r} is in an object store, and prepared data is opened from a local folder; "
            "give one, or use the command `turret data prepare ... --to URL`"
        )
    return Path(folder)


def _opened(folder: Path, sentences: Iterable[str]) -> PreparedData:
    for sentence in sentences:
        _LOG.info(sentence)
    return PreparedData.open(folder)
