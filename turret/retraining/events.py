"""Stored events into the prepared data: dump, append, and the number of events that are new to training."""

from collections.abc import Sequence

import numpy as np

from turret.data.errors import ConfigurationError
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.history.dumping import EmptyRangeError, TimeRange, dump_histories
from turret.retraining.record import DataSize, Retraining, milliseconds, report
from turret.retraining.settings import RetrainSettings
from turret.service.settings import read_settings
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import Manifest, read_manifest
from turret.training.batches.event_times import first_events

_DAY = 86_400_000


def open_data(settings: RetrainSettings) -> PreparedData:
    """Open the prepared data. Raises DataError where it is none, or has no times."""
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


def live_manifest(settings: RetrainSettings, live: str | None) -> Manifest | None:
    """The manifest of the live version. Raises BundleError where the folder doesn't have it."""
    return None if live is None else read_manifest(version_folder(settings.bundles, live))


def is_changed(data: PreparedData, records: Sequence[Retraining], live: Manifest | None) -> bool:
    """Whether another command has written the data since the last run and since the live version."""
    known = [record.after.fingerprint for record in records if record.after is not None][-1:]
    known += [live.fingerprints.get("data", "")] if live else []
    return bool(known) and data.fingerprint not in known


def gather(settings: RetrainSettings, state: Retraining, records: Sequence[Retraining]) -> None:
    """Dump the events that the data may lack, and append them; again changes nothing.

    The range begins some days before the newest event that the data and the last dump both reach, as events
    arrive late, too. Rows that the catalog doesn't know are dropped and counted. Raises DataError,
    ServiceError, OSError.
    """
    data = open_data(settings)
    until = milliseconds(state.started)
    dumped = [record.started for record in records if record.new_events is not None]
    known = min(float(data.manifest.time.last), milliseconds(dumped[-1]) if dumped else until)
    times = TimeRange(int(known - settings.late * _DAY), until)
    store = read_settings(store=settings.store)
    target = state.dump(settings.work)
    try:
        dumped_events = dump_histories(store, times, target)
    except EmptyRangeError as empty:
        report(str(empty).partition(", so nothing")[0])
        return
    report(dumped_events.sentence(target).partition("; the next dump")[0])
    options = {"on_bad": "drop=any", "items": settings.items, "users": settings.users}
    appended = append(target, settings.data, options)
    for line in (*appended.prepared.warnings, appended.sentence()):
        report(line)
    target.unlink()  # events are personal data


def count_new(
    data: PreparedData, before: DataSize, records: Sequence[Retraining], live: Manifest | None
) -> int:
    """The number of events that no training has used."""
    events = data.manifest.counts.events
    if live is not None and live.fingerprints.get("data") == before.fingerprint:
        return events - before.events
    trained = [record.after for record in records if record.is_trained and record.after is not None]
    if trained:
        return events - trained[-1].events
    if live is None or live.data_until is None:
        return events
    return int(np.count_nonzero(data.times > milliseconds(live.data_until)))


def count_predictable(data: PreparedData, since: str) -> int:
    """The number of training examples of a warm start: training events from `since` on with a history."""
    begins, ends = data.bounds("train")
    firsts = np.maximum(first_events(data, since), begins + 1)
    return int(np.maximum(ends - firsts, 0).sum())
