"""Timeouts and circuit breakers around a history store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from turret.service.errors import HistoryDamagedError, HistoryUnavailableError
from turret.service.stores.contract import Event, History, HistoryStore
from turret.tower.engines.circuit import Circuit

Result = TypeVar("Result")
Call = Callable[[], Coroutine[Any, Any, Result]]

_WARNINGS_SECONDS = 5.0


class Breaker:
    """A HistoryStore with timeouts, `read_seconds` and `write_seconds`, and a circuit for each direction.

    `circuits` has "read" and "write", as a full disk or a replica still reads. Failures and timeouts raise
    HistoryUnavailableError. An open circuit refuses calls at once, with the seconds to retry after in the
    error. An `append` that times out may be stored; sent again, it counts once. The duration of `events` and
    `forget` depends on the user's history, so their timeouts don't count as failures.
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
        """Store events; see HistoryStore."""
        return await self._call("write", lambda: self._store.append(events))

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        """Return users' newest events; see HistoryStore."""
        return await self._call("read", lambda: self._store.recent(users, limit))

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return a user's count and newest events; see HistoryStore."""
        return await self._call("read", lambda: self._store.events(user, limit), is_bounded=False)

    def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        """Iterate over events, without a timeout; see HistoryStore. No request needs it."""
        return self._store.scan(first, last)

    async def random_user(self) -> str | None:
        """Return a user with events; see HistoryStore."""
        return await self._call("read", self._store.random_user)

    async def forget(self, user: str) -> int:
        """Delete a user's events; see HistoryStore."""
        return await self._call("write", lambda: self._store.forget(user), is_bounded=False)

    async def health_warnings(self) -> list[str]:
        """Return the store's warnings, or one that the store is unavailable."""
        try:
            async with asyncio.timeout(_WARNINGS_SECONDS):
                return await self._store.health_warnings()
        except TimeoutError:
            return ["history store doesn't respond; serving without stored histories"]
        except HistoryUnavailableError as error:
            return [f"{error}; serving without stored histories"]

    async def close(self) -> None:
        """Close the store."""
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
        except TimeoutError:
            if is_bounded:
                circuit.fail(token)
            else:
                circuit.cancel(token)
            wait = max(circuit.wait(), 1.0)
            message = f"history store timed out after {seconds:g} seconds"
            raise HistoryUnavailableError(message, wait) from None
        except HistoryDamagedError:  # concerns one user's data; the store does answer
            circuit.succeed(token)
            raise
        except HistoryUnavailableError as error:
            circuit.fail(token)
            error.retry_after = max(circuit.wait(), error.retry_after)
            raise
        except asyncio.CancelledError:
            circuit.cancel(token)
            raise
        except BaseException:
            circuit.fail(token)
            raise
        circuit.succeed(token)
        return result
