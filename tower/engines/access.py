"""The access of this process to its engine: address, time limit and circuit breaker."""

import logging
import os
from collections.abc import Callable
from contextlib import closing
from functools import cache
from threading import Lock

import numpy as np

from turret.data.errors import without_credentials
from turret.tower.catalog.conditions import Condition
from turret.tower.engines.circuit import Circuit
from turret.tower.engines.engine import Engine, Limits, Rows, Vector, engine_name, open_engine
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.index_settings import EngineSettings
from turret.tower.format.manifest import Manifest

URL_VARIABLE = "TURRET_ENGINE"
_log = logging.getLogger("turret.engine")
_url: str | None = None
_seconds = 1.0


def set_access(url: str | None, seconds: float = 1.0) -> None:
    """Set the address of this process's engine, in place of the manifest's, and the time limit of a search.

    To be called before it opens bundles. Raises EngineError for a URL of no engine.
    """
    global _url, _seconds
    if url:
        engine_name(url)
    _url, _seconds = url, seconds


def inherited_access() -> dict[str, str]:
    """The environment variables by which a child process has the address of this one."""
    return {URL_VARIABLE: _url} if _url else {}


def engine_url(url: str) -> str:
    """The address of the engine that a manifest knows as `url`; one of another product isn't taken."""
    other = _url or os.environ.get(URL_VARIABLE)
    return other if other and engine_name(other) == engine_name(url) else url


class Connection:
    """An engine behind a circuit breaker; it connects with the first call, unless `engine` is open already.

    One search connects for all that arrive meanwhile. The lock of the circuit is never held while one waits
    for the engine, so that an open circuit refuses at once.
    """

    def __init__(
        self, url: str, seconds: float = 1.0, circuit: Circuit | None = None, engine: Engine | None = None
    ) -> None:
        self._url = url
        self.address = without_credentials(url)
        self._seconds = seconds
        self._lock, self._opening = Lock(), Lock()
        self._circuit = circuit or Circuit()
        self._engine = engine

    @property
    def engine(self) -> Engine:
        """The engine. Raises EngineError when it can't be reached, or not within the time limit."""
        if not self._opening.acquire(timeout=self._seconds):
            raise EngineError(
                f"the engine at {self.address} took no connection within {self._seconds:g} s; start "
                f"it, name another with {URL_VARIABLE}, or raise TURRET_ENGINE_SECONDS"
            )
        try:
            if self._engine is None:
                self._engine = open_engine(self._url, Limits(search=self._seconds))
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
        release, problem = self._circuit.cancel, ""
        try:
            rows = np.unique(self.engine.search(collection, vector, k, breadth, where))
            if len(rows) and not 0 <= rows[0] <= rows[-1] < count:
                raise EngineError(
                    f"the engine at {self.address} answers with items that {collection} doesn't have; "
                    "publish the version there again"
                )
            release = self._circuit.succeed
            if where is None and len(rows) < min(k, count):
                release = self._circuit.fail
                problem = f"{collection} of {count} items has {len(rows)} for a search of {k}"
            return rows
        except EngineError as error:
            release, problem = self._circuit.fail, str(error)
            raise
        finally:
            self._settle(token, release, problem)

    def _settle(self, token: object, release: Callable[[object], None], problem: str) -> None:
        """Release the token of a call; log the first `problem`, and each change of the circuit."""
        with self._lock:
            before = self._circuit.state
            release(token)
            state, in_a_row = self._circuit.state, self._circuit.in_a_row
        if problem and in_a_row == 1:
            _log.warning("vector engine at %s failed: %s", self.address, problem)
        if state != before:
            told = "unavailable: circuit open" if state == "open" else "available again: circuit closed"
            _log.warning("vector engine at %s %s", self.address, told)


_shared = cache(Connection)


def connection(url: str) -> Connection:
    """The connection of this process to the engine that a manifest knows as `url`; versions share it."""
    return _shared(engine_url(url), _seconds)


# The lock of activations is held meanwhile.
_OF_CHECKS = Limits(search=5.0, load=10.0)


def check_loaded(manifest: Manifest) -> None:
    """Raise BundleError unless the engine of a version, if it has one, holds its whole collection."""
    settings = manifest.index
    if not isinstance(settings, EngineSettings):
        return
    try:
        with closing(open_engine(engine_url(settings.url), _OF_CHECKS)) as engine:
            found = engine.count(settings.collection)
    except EngineError as error:
        raise BundleError(str(error)) from None
    if found != manifest.item_count:
        held = "no collection" if found is None else f"{found:,} items in"
        raise BundleError(
            f"{without_credentials(engine_url(settings.url))} holds {held} {settings.collection}, where "
            f"{manifest.item_count:,} items are needed; publish it there with `turret publish --engine URL`"
        )
