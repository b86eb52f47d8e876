"""Negatives, the items that a user did not choose, each beside the event in whose place it was offered."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from turret.data.events.event_arrays import EventFiles, Events
from turret.data.files import ArrayFile
from turret.data.prepared import LOOSE

GIVEN = "given"
_OF_EVENTS = ("sessions", "contexts", "places", "propensities")  # columns that no negative needs


def placed(
    rows: Events, targets: list[int] | None = None
) -> tuple[Events, Events, NDArray[np.int64], Events, int]:
    """Divide sorted `rows` with labels, of which at least one is an event, into events and negatives.

    A negative belongs to a target, an event of the kinds `targets` (any event without `targets`), of its user
    and part: to the next target in order, or to the previous target if only the previous one is at the same
    time. So no event has a negative from a later time.

    Returns:
        the E events; M negatives, sorted by the event that each belongs to; the positions of these events
        among the E, int64 [M]; the other negatives, which come after the last target of their user or equal
        the item of their event; and the number of negatives that equal it.
    """
    assert rows.labels is not None
    chosen = rows.labels == 1
    events, negatives = rows.take(chosen), rows.take(~chosen)
    is_target = chosen & rows.are_of(targets)
    # The positions of targets among the events, followed by a position of no event.
    places = np.append(np.flatnonzero(is_target[chosen]), len(events))
    following = np.cumsum(is_target)[~chosen]
    before, following = np.where(following > 0, places[following - 1], -1), places[following]
    has_before, has_next = (_same_group(events, place, negatives) for place in (before, following))
    last = len(events) - 1
    times = (events.times[before.clip(0, last)], events.times[following.clip(0, last)])
    at_before = has_before & (times[0] == negatives.times)
    takes_before = at_before & ~(has_next & (times[1] == negatives.times))
    positions = np.where(takes_before, before, following)
    is_placed = takes_before | has_next
    is_equal = is_placed & (events.items[positions.clip(0, last)] == negatives.items)
    kept = np.flatnonzero(is_placed & ~is_equal)
    kept = kept[np.argsort(positions[kept], kind="stable")]
    return (
        replace(events, labels=None),
        negatives.take(kept),
        positions[kept],
        negatives.take(~is_placed | is_equal),
        int(is_equal.sum()),
    )


def _same_group(events: Events, positions: NDArray[np.int64], negatives: Events) -> NDArray[np.bool_]:
    """Tell which events at `positions` exist and are of the user and part of their negative: bool [M]."""
    exists = (positions >= 0) & (positions < len(events))
    at = positions.clip(0, len(events) - 1)
    exists &= events.users[at] == negatives.users
    if events.parts is not None and negatives.parts is not None:
        exists &= events.parts[at] == negatives.parts
    return exists


def without_negatives(
    blocks: Iterable[Events],
    folder: Path,
    columns: Mapping[str, DTypeLike],
    targets: list[int] | None,
    counts: Counter[str],
    has_positions: bool = False,
) -> Iterator[Events]:
    """Yield the events of sorted blocks of rows with labels, and write their negatives into `folder`.

    The files are `negatives.npy`, `negative_offsets.npy` and, with weights, `negative_weights.npy`. Where
    kinds mark negatives, there are also `negative_times.npy`, `negative_kinds.npy`, and the folder
    `loose_negatives` with the negatives that belong to no event. `columns` are the columns of the events, and
    `targets` the codes of the kinds of targets, None where all events are alike. `counts` receives the number
    of negatives as GIVEN, and the numbers of the rows that are negatives of no event, by reason. With
    `has_positions`, the time of a negative is the number of its user's events before it.
    """
    with ExitStack() as stack:

        def array(name: str, dtype: DTypeLike) -> ArrayFile:
            return stack.enter_context(closing(ArrayFile(folder / f"{name}.npy", dtype)))

        offsets = array("negative_offsets", np.int64)
        offsets.write(np.zeros(1, dtype=np.int64))
        arrays = {"items": array("negatives", np.int32)}
        if "weights" in columns:
            arrays["weights"] = array("negative_weights", np.float32)
        loose_files = None
        if targets is not None:
            arrays["times"] = array("negative_times", columns["times"])
            arrays["kinds"] = array("negative_kinds", np.int8)
            of_loose = {name: dtype for name, dtype in columns.items() if name not in _OF_EVENTS}
            loose_files = stack.enter_context(EventFiles(folder / LOOSE, {"users": np.int32, **of_loose}))
        for rows in blocks:
            if has_positions:
                rows = replace(rows, times=_events_before(rows))
            events, negatives, positions, loose, equal = placed(rows, targets)
            of_events = np.bincount(positions, minlength=len(events))
            offsets.write(counts[GIVEN] + np.cumsum(of_events, dtype=np.int64))
            for name, file in arrays.items():
                file.write(getattr(negatives, name))
            if loose_files is not None:
                loose_files.write(loose)
            counts[GIVEN] += len(negatives)
            counts["negatives after the last event"] += len(loose) - equal
            counts["negatives equal to their event"] += equal
            yield events


def _events_before(rows: Events) -> NDArray[np.int64]:
    """Return the number of events of the same user before each of sorted rows with labels: int64 [E]."""
    assert rows.labels is not None
    before: NDArray[np.int64] = np.append(0, np.cumsum(rows.labels == 1, dtype=np.int64))
    return before[:-1] - before[np.searchsorted(rows.users, rows.users)]
