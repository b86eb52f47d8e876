"""The access of this process to its engine: address, time limits, circuit breaker, and the fallback."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Literal

import numpy as np

from turret.data.errors import without_credentials
from turret.tower.catalog.conditions import Condition
from turret.tower.engines.circuit import Circuit
from turret.tower.engines.engine import Engine, Limits, Rows, Vector, engine_name, open_engine
from turret.tower.errors import EngineError

URL_VARIABLE = "TURRET_ENGINE"
Fallback = Literal["exact", "popular"]
_log = logging.getLogger("turret.engine")


@dataclass(frozen=True)
class Access:
    """The settings of a process for engines.

    Attributes:
        url: the address in place of the manifest's, perhaps with credentials.
        seconds: the time limit of a search.
        failures: failed searches in a row that open the circuit.
        pause: seconds for which it stays open.
        fallback: the answers while the engine is unavailable: `exact` by the bundle's vectors, or `popular`.
    """

    url: str | None = field(default=None, repr=False)
    seconds: float = 1.0
    failures: int = 5
    pause: float = 2.0
    fallback: Fallback = "exact"


_current = Access()


def set_access(access: Access) -> None:
    """Set the access of this process, before it opens bundles. Raises EngineError for a URL of no engine."""
    global _current
    if access.url:
        engine_name(access.url)
    _current = access


def current_access() -> Access:
    """The access of this process."""
    return _current


def engine_url(url: str) -> str:
    """The address of the engine that a manifest knows as `url`; one of another product isn't taken."""
    other = _current.url or os.environ.get(URL_VARIABLE)
    return other if other and engine_name(other) == engine_name(url) else url


class Connection:
    """An engine behind a circuit breaker; it connects with the first call, unless `engine` is open already.

    One search connects for all that arrive meanwhile. The lock of the circuit is never held while one waits
    for the engine, so that an open circuit refuses at once. `clock` is the circuit's.
    """

    def __init__(
        self,
        url: str,
        access: Access,
        clock: Callable[[], float] = time.monotonic,
        engine: Engine | None = None,
    ) -> None:
        self._url = url
        self._access = access
        self._lock, self._opening = Lock(), Lock()
        self._circuit = Circuit(access.failures, access.pause, clock)
        self._engine = engine

    @property
    def address(self) -> str:
        """The URL without credentials."""
        return without_credentials(self._url)

    @property
    def engine(self) -> Engine:
        """The engine. Raises EngineError when it can't be reached, or not within the time limit."""
        if not self._opening.acquire(timeout=self._access.seconds):
            raise EngineError(
                f"the engine at {self.address} took no connection within {self._access.seconds:g} s; start "
                f"it, name another with {URL_VARIABLE}, or raise TURRET_ENGINE_SECONDS"
            )
        try:
            if self._engine is None:
                self._engine = open_engine(self._url, Limits(search=self._access.seconds))
            return self._engine
        finally:
            self._opening.release()

    def search(
        self, collection: str, vector: Vector, k: int, breadth: int, where: Condition | None, count: int
    ) -> Rows:
        """As `Engine.search`, in a collection of `count` items; rows ascend, each once.

        Raises EngineError at once while the circuit is open. Rows that don't exist are a failure. So is an
        answer that is short though there is no condition: its rows are returned, and the circuit opens if
        that goes on, as it does where the engine has lost items.
        """
        with self._lock:
            token = self._circuit.admit()
        if token is None:
            raise EngineError(f"the engine at {self.address} failed; the next try is in some seconds")
        try:
            rows = np.unique(self.engine.search(collection, vector, k, breadth, where))
            if len(rows) and not 0 <= rows[0] <= rows[-1] < count:
                raise EngineError(
                    f"the engine at {self.address} answers with items that {collection} doesn't have; "
                    "publish the version there again"
                )
        except EngineError as error:
            self._failed(token, str(error))
            raise
        except BaseException:
            with self._lock:
                self._circuit.cancel(token)
            raise
        if where is None and len(rows) < min(k, count):
            self._failed(token, f"{collection} of {count} items has {len(rows)} for a search of {k}")
        else:
            with self._lock:
                was_closed = self._circuit.state == "closed"
                self._circuit.succeed(token)
            if not was_closed and self._circuit.state == "closed":
                _log.warning("vector engine at %s available again: circuit closed", self.address)
        return rows

    def _failed(self, token: object, reason: str) -> None:
        with self._lock:
            was_open = self._circuit.state == "open"
            self._circuit.fail(token)
            is_first, is_open = self._circuit.in_a_row == 1, self._circuit.state == "open"
        if is_first:
            _log.warning("vector engine at %s failed: %s", self.address, reason)
        if is_open and not was_open:
            _log.warning("vector engine at %s unavailable: circuit open", self.address)


@cache
def _shared(url: str, access: Access) -> Connection:
    return Connection(url, access)


def connection(url: str) -> Connection:
    """The connection of this process to the engine that a manifest knows as `url`; versions share it."""
    return _shared(engine_url(url), _current)
