"""A wrapper of history stores with timeouts and circuit breakers; long histories are read in two calls."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from turret.service.errors import HistoryDamagedError, HistoryUnavailableError
from turret.service.stores.contract import Arrivals, Event, History, HistoryStore, ListsArrivals, Moved
from turret.tower.engines.circuit import Circuit

Result = TypeVar("Result")
Call = Callable[[], Coroutine[Any, Any, Result]]

FIRST_EVENTS = 1_000  # of each user in the first call; most users have fewer
BATCH_EVENTS, LEAST_EVENTS = 10_000, 100  # of all users in the first call, but at least so many of each user
REQUEST_EVENTS = 100_000  # of one request; a batch of users with long histories could need a million
_ALWAYS = -(2**62), 2**62  # ms since 1970
_log = logging.getLogger("turret.store")


class Breaker:
    """A HistoryStore with timeouts, `read_seconds` and `write_seconds`, and a circuit for each direction.

    `circuits` has "read" and "write", as a store on a full disk or a read-only replica still answers reads.
    Failures and timeouts raise HistoryUnavailableError, as do other exceptions, which are logged. An open
    circuit refuses calls at once, with the seconds to retry after in the error. An `append` that times out
    may be stored; if it is sent again, its events count once. A timeout of `events`, `forget`, `move` or
    `random_user` is no failure, as their time depends on the number of events. A `scan` has no timeout.
    """

    def __init__(
        self,
        store: HistoryStore,
        read_seconds: float = 1.0,
        write_seconds: float = 5.0,
        circuit: Callable[[], Circuit] = Circuit,
    ) -> None:
        self._store = store
        self._seconds = {"read": read_seconds, "write": write_seconds}
        self.circuits = {"read": circuit(), "write": circuit()}

    async def append(self, events: Sequence[Event]) -> int:
        return await self._call("write", lambda: self._store.append(events))

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        return await self._call("read", lambda: self._store.recent(users, limit))

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        return await self._call("read", lambda: self._store.events(user, limit), is_bounded=False)

    @property
    def lists_arrivals(self) -> bool:
        """Whether the store lists its events in the order of their arrival."""
        return isinstance(self._store, ListsArrivals)

    async def arrivals(self, after: str | None) -> Arrivals | None:
        """Raise HistoryUnavailableError too for a store that does not list its arrivals."""
        store = self._store
        if not isinstance(store, ListsArrivals):
            raise HistoryUnavailableError("the store does not list its events in the order of their arrival")
        return await self._call("read", lambda: store.arrivals(after))

    def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        return self._store.scan(first, last)

    async def random_user(self) -> str | None:
        """Return the user of one of the first events of a scan, as an example for people."""

        async def draw() -> str | None:
            async for events in self._store.scan(*_ALWAYS):
                return random.choice(events).user
            return None

        return await self._call("read", draw, is_bounded=False)

    async def forget(self, user: str) -> int:
        return await self._call("write", lambda: self._store.forget(user), is_bounded=False)

    async def move(self, user: str, to: str) -> Moved:
        return await self._call("write", lambda: self._store.move(user, to), is_bounded=False)

    async def health_warnings(self) -> list[str]:
        try:
            return await self._call("read", self._store.health_warnings, is_bounded=False)
        except HistoryUnavailableError as error:
            return [f"{error}; serving without stored histories"]

    async def close(self) -> None:
        await self._store.close()

    async def _call(self, direction: str, call: Call[Result], is_bounded: bool = True) -> Result:
        """Run a call through the circuit and the timeout of its direction.

        `is_bounded`: the store is expected to answer in time, so that a timeout counts as a failure.
        """
        circuit, seconds = self.circuits[direction], self._seconds[direction]
        token = circuit.admit()
        if token is None:
            message = "history store unavailable (circuit open); retry after Retry-After"
            raise HistoryUnavailableError(message, max(circuit.wait(), 1.0))
        try:
            async with asyncio.timeout(seconds):
                result = await call()
        except HistoryDamagedError:  # concerns one user's data; the store does answer
            circuit.succeed(token)
            raise
        except asyncio.CancelledError:
            circuit.cancel(token)
            raise
        except TimeoutError:
            (circuit.fail if is_bounded else circuit.cancel)(token)
            problem = HistoryUnavailableError(f"history store timed out after {seconds:g} seconds", 1.0)
        except HistoryUnavailableError as error:
            circuit.fail(token)
            problem = error
        except Exception:  # a bug in the store of another package
            circuit.fail(token)
            _log.exception("the history store failed")
            problem = HistoryUnavailableError("history store failed; the log has the traceback", 1.0)
        else:
            circuit.succeed(token)
            return result
        problem.retry_after = max(problem.retry_after, circuit.wait())
        raise problem


IsEnough = Callable[[History], bool]


@dataclass(frozen=True)
class Stored:
    """Histories by user; `truncated` has the users whose history lacks older events that were needed."""

    histories: Mapping[str, History] = field(default_factory=dict)
    truncated: frozenset[str] = frozenset()


async def read_histories(
    store: HistoryStore, is_enough: Mapping[str, IsEnough], limit: int, seconds: float
) -> Stored:
    """Read each user's newest events, up to `limit`, or until its predicate `is_enough` holds.

    The first call reads up to FIRST_EVENTS of every user, fewer in a batch. Users who need more are read
    again, one user a call and up to `limit`, until REQUEST_EVENTS or `seconds` are used up; the remaining
    users are `truncated`, with their newest events. Only the first call raises HistoryUnavailableError; a
    later call that runs out of time is cancelled, which is no failure of the store.
    """
    end = asyncio.get_running_loop().time() + seconds
    size = min(limit, FIRST_EVENTS, max(BATCH_EVENTS // len(is_enough), LEAST_EVENTS))
    histories = await store.recent(list(is_enough), size)
    longer = [
        user
        for user, newest in histories.items()
        if size < limit and len(newest.items) >= size and not is_enough[user](newest)
    ]
    count = sum(len(history.items) for history in histories.values())
    with suppress(TimeoutError, HistoryUnavailableError):
        async with asyncio.timeout_at(end):
            while longer and count < REQUEST_EVENTS:
                full = await store.recent(longer[-1:], limit)
                histories |= full
                count += len(full[longer.pop()].items)
    return Stored(histories, frozenset(longer))
