"""An engine in this process, for tests of everything above the contract: exact, and broken on demand.

`server` and `shop` are fixtures for those who import them: the engine's state, and a bundle to publish there.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import contents
from turret.tower.bundle.publish import publish
from turret.tower.catalog.conditions import Among, Condition, Every, Not, Present, Some, Within
from turret.tower.engines import access
from turret.tower.engines import engine as opening
from turret.tower.engines.engine import Engine, EngineItems, Limits
from turret.tower.errors import EngineError

Mask = NDArray[np.bool_]
Vector = NDArray[np.float32]
URL = "redis://:secret@engine:6379"
ITEMS = 1200


class Server:
    """The state that connections share: collections, and the fault to simulate.

    `fault`: `down` refuses every call, `short` answers with too few rows, `wrong` with rows that aren't
    allowed or don't exist, `odd` with none that can be read, `load` dies within a load, `lost` has no
    collection any more.
    """

    def __init__(self) -> None:
        self.items: dict[str, EngineItems] = {}
        self.fault: str | None = None
        self.searches: list[tuple[str, int, int, Condition | None]] = []


class MemoryEngine(Engine):
    """Searches the collections of `server`; an effort below `enough` misses the best item."""

    server = Server()
    most = 2000
    enough = 40

    def __init__(self, url: str, limits: Limits) -> None:
        self.url, self.limits = url, limits

    def check(self) -> None:
        if self.server.fault == "down":
            raise EngineError(f"the engine at {self.url} can't be reached; start it")

    def load(self, collection: str, items: EngineItems) -> None:
        self.check()
        self.server.items[collection] = items
        if self.server.fault == "load":
            raise EngineError(f"the engine at {self.url} died; start it and publish again")

    def search(
        self, collection: str, vector: Vector, k: int, breadth: int, where: Condition | None = None
    ) -> NDArray[np.int64]:
        self.check()
        if self.server.fault == "lost":
            raise EngineError(f"the engine at {self.url} holds no collection {collection}")
        self.server.searches.append((collection, k, breadth, where))
        items = self.server.items[collection]
        allowed = np.arange(len(items)) if where is None else np.flatnonzero(met(where, items))
        rows = allowed[np.argsort(-(items.vectors[allowed] @ vector), kind="stable")][: k + 1]
        if self.server.fault == "odd":
            return np.array([int("nan")])
        if self.server.fault == "wrong":
            return np.array([-1, len(items), 0, 0, *range(k)], dtype=np.int64)
        is_short = breadth < self.enough or self.server.fault == "short"
        return rows[1 : k if self.server.fault == "short" else k + 1] if is_short else rows[:k]

    def breadths(self, k: int) -> Sequence[int]:
        return [k, 2 * k, 8 * k + 40]

    def count(self, collection: str) -> int | None:
        self.check()
        if collection not in self.server.items or self.server.fault == "lost":
            return None
        return len(self.server.items[collection])

    def collections(self, prefix: str) -> Sequence[str]:
        self.check()
        return [name for name in self.server.items if name.startswith(prefix)]

    def drop(self, collection: str) -> None:
        self.check()
        self.server.items.pop(collection, None)

    def close(self) -> None:
        pass


def engine_in_process(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Put a new MemoryEngine behind every URL, and return its state."""
    made = Server()
    monkeypatch.setattr(MemoryEngine, "server", made)
    for name in opening.CLIENTS:
        monkeypatch.setitem(opening.CLIENTS, name, f"{MemoryEngine.__module__}:MemoryEngine")
    monkeypatch.setattr(access, "_urls", URL)
    access._shared.cache_clear()  # the circuit of one test is not that of the next
    return made


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The state of the engine behind every URL."""
    return engine_in_process(monkeypatch)


def user_vectors(number: int = 20) -> NDArray[np.float32]:
    """Unit vectors of eight coordinates."""
    vectors = np.random.default_rng(5).standard_normal((number, 8))
    unit: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit.astype(np.float32)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the bundle v1 of 1,200 items, with 20 user vectors."""
    return publish_shop(tmp_path / "shop")


def publish_shop(root: Path) -> Path:
    """As `shop`, in the folder `root`."""
    made = contents(ids=tuple(range(ITEMS)))
    fields = {"year": [1900 + row % 120 for row in range(ITEMS)], **made.fields}
    publish(root, replace(made, fields=fields, query_vectors=user_vectors()))
    return root


def met(where: Condition, items: EngineItems) -> Mask:
    """The items [N] that meet a condition."""
    match where:
        case Among(field, codes):
            return _having(items, int(field), np.isin(items.fields[int(field)].values, codes))
        case Within(field, (low, high, low_open, high_open)):
            values = items.fields[int(field)].values
            bottom, top = -np.inf if low is None else low, np.inf if high is None else high
            is_above = values > bottom if low_open else values >= bottom
            return np.asarray(is_above & (values < top if high_open else values <= top))
        case Present(field):
            one = items.fields[int(field)]
            if one.starts is None:
                return np.asarray(~np.isnan(one.values))
            return _having(items, int(field), np.ones(len(one.values), dtype=np.bool_))
        case Not(inner):
            return ~met(inner, items)
        case Every(inner):
            return reduce(np.logical_and, [met(one, items) for one in inner])
        case Some(inner):
            return reduce(np.logical_or, [met(one, items) for one in inner])
    raise TypeError(where)


def _having(items: EngineItems, field: int, hits: Mask) -> Mask:
    """The items with a hit among their codes."""
    starts = items.fields[field].starts
    assert starts is not None
    rows = np.repeat(np.arange(len(items)), np.diff(starts))
    return np.asarray(np.bincount(rows[hits], minlength=len(items)) > 0)
