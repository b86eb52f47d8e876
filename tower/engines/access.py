"""The access of this process to its engines: addresses, time limit and circuit breaker.

The operator names the addresses: a manifest, which any author of models can write, names a product alone.
"""

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
from turret.tower.format.index_settings import EngineName, EngineSettings
from turret.tower.format.manifest import Manifest

URL_VARIABLE = "TURRET_ENGINE"
_log = logging.getLogger("turret.engine")
_urls: str | None = None
_seconds = 1.0


def set_access(urls: str | None, seconds: float = 1.0) -> None:
    """Set the addresses of this process's engines, as TURRET_ENGINE has them, and the time limit of a search.

    The call has to come before the process opens bundles. Raises EngineError for a URL of no engine.
    """
    global _urls, _seconds
    _addresses(urls)
    _urls, _seconds = urls, seconds


def inherited_access() -> dict[str, str]:
    """The environment variables by which a child process has the addresses of this one."""
    return {URL_VARIABLE: _urls} if _urls else {}


def engine_url(product: EngineName) -> str | None:
    """The address of a product, None where none is named. Raises EngineError for a faulty address."""
    return _addresses(_urls or os.environ.get(URL_VARIABLE)).get(product)


def required_url(product: EngineName) -> str:
    """The address of a product. Raises EngineError where the operator names none."""
    if (url := engine_url(product)) is None:
        raise EngineError(_unnamed(product))
    return url


def _addresses(urls: str | None) -> dict[EngineName, str]:
    """The addresses in `urls` by product; blanks separate them."""
    addresses: dict[EngineName, str] = {}
    for url in (urls or "").split():
        if addresses.setdefault(engine_name(url), url) != url:
            raise EngineError(f"{URL_VARIABLE} names two addresses of {engine_name(url)}; keep one")
    return addresses


def _unnamed(product: EngineName) -> str:
    return (
        f"this version is searched on {product}, and no address of one is named; set {URL_VARIABLE}, such as "
        f"{product}://HOST:{6379 if product == 'redis' else 19530}"
    )


class Connection:
    """An engine behind a circuit breaker; it connects with the first call, unless `engine` is open already.

    Without a `url`, every call fails with the message `unnamed`.

    One search connects for all searches that arrive meanwhile. The lock of the circuit is never held while a
    search waits for the engine, so that an open circuit refuses at once.
    """

    def __init__(
        self,
        url: str | None,
        seconds: float = 1.0,
        circuit: Circuit | None = None,
        engine: Engine | None = None,
        unnamed: str = "",
    ) -> None:
        self._url = url
        self._unnamed = unnamed
        self.address = without_credentials(url or "an address that is not named")
        self._seconds = seconds
        self._lock, self._opening = Lock(), Lock()
        self._circuit = circuit or Circuit()
        self._engine = engine

    @property
    def engine(self) -> Engine:
        """The engine. Raises EngineError when it can't be reached, or not within the time limit."""
        if self._url is None:
            raise EngineError(self._unnamed)
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
        """Search as `Engine.search`, in a collection of `count` items; rows are distinct and ascend.

        Raises EngineError at once while the circuit is open. Rows that don't exist are a failure. So is an
        answer that is short though there is no condition: its rows are returned, and the circuit opens if
        short answers go on, as they do where the engine has lost items.
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
            change = "unavailable: circuit open" if state == "open" else "available again: circuit closed"
            _log.warning("vector engine at %s %s", self.address, change)


_shared = cache(Connection)


def connection(product: EngineName) -> Connection:
    """The connection of this process to its engine of a product; versions share it."""
    return _shared(engine_url(product), _seconds, unnamed=_unnamed(product))


# The lock of activations is held while a check waits.
_OF_CHECKS = Limits(search=5.0, load=10.0)


def check_loaded(manifest: Manifest) -> None:
    """Raise BundleError unless the engine of a version, if it has one, holds its whole collection."""
    settings = manifest.index
    if not isinstance(settings, EngineSettings):
        return
    try:
        with closing(open_engine(required_url(settings.engine), _OF_CHECKS)) as engine:
            loaded = engine.count(settings.collection)
    except EngineError as error:
        raise BundleError(str(error)) from None
    if loaded != manifest.item_count:
        held = "no collection" if loaded is None else f"{loaded:,} items in"
        raise BundleError(
            f"{without_credentials(required_url(settings.engine))} holds {held} {settings.collection}, where "
            f"{manifest.item_count:,} items are needed; publish it there with `turret publish --engine URL`"
        )
