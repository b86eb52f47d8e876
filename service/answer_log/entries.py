"""The entry of an answer, which the event loop keeps until the thread of the log has written it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from turret.service.overlay.fresh import FreshItems

_LONGEST_VALUE = 2_000  # characters of a text of the context
# The bytes of an entry that waits, and of an item of it.
_ENTRY_BYTES, _ITEM_BYTES = 1_000, 24
_NOTHING: Mapping[str, Any] = {}


class ShownItems(NamedTuple):
    """The items of an answer: their rows [K], scores [K], propensities [K] (None: all 1), and first place.

    `fresh` names the item of a row; `source` is the source of the items that are not fresh.
    """

    fresh: FreshItems
    rows: NDArray[np.integer[Any]]
    scores: NDArray[np.float32]
    source: str
    first_place: int = 1
    propensities: NDArray[np.float64] | None = None


class LoggedAnswer(NamedTuple):
    """An answer of a `call` at `time`, in ms since 1970; `user` is None where the request names no user."""

    answer_id: str
    time: int
    call: str
    version: str
    route: str
    user: str | None
    shown: ShownItems
    context: Mapping[str, Any]
    rules: Sequence[str]

    @property
    def size(self) -> int:
        """About the bytes that the entry takes while it waits."""
        size = _ENTRY_BYTES + _ITEM_BYTES * len(self.shown.rows)
        if self.context:
            size += sum(4 * len(value) for value in self.context.values() if isinstance(value, str))
        return size


class AnswerSink(Protocol):
    """Takes answers: the log, which only a service that keeps one imports."""

    def offer(self, answer: LoggedAnswer) -> None:
        """Queue an answer, or drop it; never waits."""


def context_of(features: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """The features of a request that the operator names, without lists and without overlong texts."""
    if not names or not features:
        return _NOTHING
    context = {}
    for name in names:
        value = features.get(name)
        if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _LONGEST_VALUE):
            context[name] = value
    return context
