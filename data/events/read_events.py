"""Read a validated log once: events into files, ids interned, other rows counted."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from turret.data.events.event_arrays import PIECE, EventFiles, UnsortedEvents
from turret.data.events.events import VERDICT, Log
from turret.data.events.ids import IdInterner
from turret.data.events.labels import LABEL
from turret.data.manifest import BadRows, Removed

_ROLES = ("user", "item")


@dataclass(frozen=True)
class IngestedEvents:
    """The events of a log.

    `events` are in the order of the source; their user and item rows are positions in `users` and `items`,
    the distinct ids (Int64 or String), unsorted. `labels` counts the events by their label in the source.
    """

    events: UnsortedEvents
    users: pl.Series
    items: pl.Series
    bad_rows: list[BadRows]
    removed: list[Removed]
    labels: Counter[int] = field(default_factory=Counter)


def read_events(log: Log, work: Path) -> IngestedEvents:
    """Read `log` in pieces, and write its events into the folder `work`.

    Raises SourceError when the source can't be read completely.
    """
    schema = log.frame.collect_schema()
    interners = {role: IdInterner(schema[role]) for role in _ROLES}
    verdicts: Counter[str] = Counter()
    labels: Counter[int] = Counter()
    with EventFiles(work / "log", log.columns()) as files, ThreadPoolExecutor(len(_ROLES)) as pool:
        for rows in log.pieces(PIECE):
            if rows[VERDICT].null_count() < rows.height:
                verdicts.update(dict(rows[VERDICT].drop_nulls().value_counts().iter_rows()))
                rows = rows.filter(pl.col(VERDICT).is_null())
            if log.has_labels:
                labels.update(dict(rows[LABEL].value_counts().iter_rows()))
            futures = [pool.submit(interners[role].numbers, rows[role]) for role in _ROLES]
            users, items = (future.result() for future in futures)
            files.write(log.events(rows, users, items))
    bad_rows, removed = log.dropped_rows(verdicts)
    return IngestedEvents(files, interners["user"].ids, interners["item"].ids, bad_rows, removed, labels)
