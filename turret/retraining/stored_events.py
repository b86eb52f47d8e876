"""The events that the store, a database or files have beyond the prepared data: appended, and counted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from turret.data.configuration import is_url
from turret.data.databases.results import takes_since
from turret.data.errors import ConfigurationError, EmptyResultError
from turret.data.moments import milliseconds
from turret.data.prepared import PreparedData
from turret.data.preparing.append import Accept, AppendReport, append
from turret.data.progress import counted
from turret.history.dumping import EmptyRangeError, TimeRange, dump_histories
from turret.retraining.settings import RetrainSettings
from turret.retraining.state import DataSize, Retraining, report
from turret.service.schemas.fields import show_time
from turret.service.settings import read_settings
from turret.tower.format.manifest import Manifest

_DAY = 86_400_000
# The decisions of runs that have trained on no event.
_UNTRAINED = (None, "nothing_new", "waiting", "failed")


def open_data(settings: RetrainSettings) -> PreparedData:
    """Open the prepared data. Raises DataError if there is none, ConfigurationError if it has no times."""
    data = PreparedData.open(settings.data)
    if data.manifest.time.kind != "timestamp":
        raise ConfigurationError(
            f"{data.folder} has an order but no times, and stored events have times; prepare it with a "
            "column of times (--time)"
        )
    return data


def size_of(data: PreparedData) -> DataSize:
    """The size and the fingerprint of prepared data."""
    counts = data.manifest.counts
    return DataSize(fingerprint=data.fingerprint, events=counts.events, items=counts.items)


def add_stored(
    settings: RetrainSettings,
    state: Retraining,
    records: Sequence[Retraining],
    accept: Accept | None = None,
) -> str:
    """Read the events that the data may lack, and append them if `accept` takes the data with them.

    The files of sources are appended with them, in one log.

    A repeated call changes nothing. Returns a sentence about events that the data can't take, empty for none.

    The range begins `--late` days before the newest event of the data or the last dump for a training,
    whichever is earlier, as events may arrive late. Rows that the catalog doesn't know are dropped and
    counted. Raises DataError, ServiceError, OSError.
    """
    data = open_data(settings)
    until = milliseconds(state.started)
    dumped = [
        record.started
        for record in records
        if record.new_events is not None and record.decision != "nothing_new"
    ]
    known = min(
        float(data.manifest.time.last),
        *(milliseconds(start) for start in dumped[-1:] or [record.started for record in records[:1]]),
        until,
    )
    times = TimeRange(int(known - settings.late * _DAY), until)
    try:
        appended = _append(settings, state, times, accept)
    except (EmptyRangeError, EmptyResultError) as empty:
        report(str(empty).partition(", so nothing")[0])
        return ""
    if open_data(settings).fingerprint == appended.prepared.manifest.fingerprint:
        for line in (*appended.prepared.warnings, appended.sentence()):
            report(line)
    if not appended.lost:
        return ""
    noun = "row" if settings.events or settings.sources else "stored event"
    return f"{counted(appended.lost, noun)} can't be used: {appended.dropped}."


def _append(
    settings: RetrainSettings, state: Retraining, times: TimeRange, accept: Accept | None
) -> AppendReport:
    """Append the events of a range of times, of the database of the settings or else of the store.

    The files of sources are appended with them. Raises EmptyResultError and EmptyRangeError where there is
    none.
    """
    options: dict[str, object] = {
        "on_bad": "drop=any",
        "items": settings.items,
        "users": settings.users,
        "source_files": settings.sources,
    }
    if settings.events is not None:
        place = settings.events if is_url(settings.events) else Path(settings.events)
        query = settings.sql or open_data(settings).manifest.settings.get("sql")
        since = settings.since or (show_time(times.first) if takes_since([query]) else None)
        return append(place, settings.data, {**options, "sql": settings.sql, "since": since}, accept)
    target = state.dump(settings.work)
    stored: Path | None = target
    try:
        dumped_events = dump_histories(read_settings(store=settings.store), times, target)
        report(dumped_events.sentence(target).partition("; the next dump")[0])
    except EmptyRangeError as empty:
        if not settings.sources:
            raise
        report(str(empty).partition(", so nothing")[0])
        stored = None
    appended = append(stored, settings.data, options, accept)
    target.unlink(missing_ok=True)  # events are personal data
    return appended


def count_new(
    data: PreparedData, before: DataSize, records: Sequence[Retraining], live: Manifest | None
) -> int:
    """The number of events that no training has used."""
    events = data.manifest.counts.events
    if live is not None and live.fingerprints.get("data") == before.fingerprint:
        return events - before.events
    judged = [record for record in records if record.decision not in _UNTRAINED]
    trained = [record.after for record in judged if record.after is not None]
    if trained:
        return events - trained[-1].events
    if live is None or live.data_until is None:
        return events
    return int(np.count_nonzero(data.times > milliseconds(live.data_until)))
