"""The stored events that may be outcomes of answers, as arrays, with visitors under the key of the log."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turret.data.answers.form import visitor_of
from turret.data.errors import ConfigurationError, brief

NAME = "S32"  # of visitors and of answers: 32 hexadecimal digits; empty for none
Names = NDArray[np.bytes_]


class StoredEvent(Protocol):
    """An event of a store; `answer_id` is missing in stores that keep none."""

    @property
    def user(self) -> str:
        """The user, or the session of a stranger."""

    @property
    def item(self) -> int | str:
        """The item."""

    @property
    def time(self) -> int:
        """Milliseconds since 1970."""

    @property
    def kind(self) -> str | None:
        """The kind, if it has one."""


class OutcomeEvents(NamedTuple):
    """E events: their visitors [E], items [E] as texts, times [E] in ms since 1970, and named answers [E]."""

    visitors: Names
    items: pa.Array
    times: NDArray[np.int64]
    answers: Names


class EventCollector:
    """Collects the events of some kinds, or of all where no kind is named."""

    def __init__(self, key: bytes, kinds: Collection[str]) -> None:
        self._key, self._kinds = key, frozenset(kinds)
        self._seen = Counter[str | None]()
        self._user, self._visitor = "", b""
        self._parts: list[OutcomeEvents] = []

    def __len__(self) -> int:
        return sum(len(part.times) for part in self._parts)

    def add(self, events: Iterable[StoredEvent]) -> None:
        """Add events; those of a user follow each other, so that each is hashed once."""
        visitors, items, times, answers = list[bytes](), list[str](), list[int](), list[bytes]()
        for event in events:
            self._seen[event.kind] += 1
            if self._kinds and event.kind not in self._kinds:
                continue
            if event.user != self._user or not self._visitor:
                self._user, self._visitor = event.user, visitor_of(event.user, self._key).encode()
            visitors.append(self._visitor)
            items.append(str(event.item))
            times.append(event.time)
            answers.append((getattr(event, "answer_id", None) or "").encode())
        self._parts.append(events_of(visitors, items, times, answers))

    def events(self) -> OutcomeEvents:
        """Return all events. Raises ConfigurationError as `check_kinds`."""
        check_kinds(self._kinds, self._seen.keys())
        parts = [events_of([], [], [], []), *self._parts]
        visitors, items, times, answers = zip(*parts, strict=True)
        return OutcomeEvents(
            np.concatenate(visitors), pa.concat_arrays(items), np.concatenate(times), np.concatenate(answers)
        )


def events_of(visitors: Any, items: Any, times: Any, answers: Any) -> OutcomeEvents:
    """Return events from a value an event of each column."""
    return OutcomeEvents(
        np.array(visitors, NAME),
        pa.array(items, pa.string()),
        np.array(times, np.int64),
        np.array(answers, NAME),
    )


def check_kinds(kinds: Collection[str], known: Collection[str | None]) -> None:
    """Raise ConfigurationError for a kind that no event has, where there are events."""
    for kind in kinds:
        if known and kind not in known:
            names = brief(", ".join(sorted(name or "(without a kind)" for name in known)), 200)
            raise ConfigurationError(
                f"no stored event is of the kind {kind!r}; the stored events are of other kinds: {names}"
            )
