"""The contract of vector engines, and the engine behind a URL, by its scheme."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pkgutil import resolve_name
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import without_credentials
from turret.tower.catalog.conditions import Condition
from turret.tower.errors import EngineError
from turret.tower.format.index_settings import EngineName

Vector = NDArray[np.float32]
Rows = NDArray[np.int64]


class EngineField(NamedTuple):
    """A filter field of N items, addressed by its position in `EngineItems.fields`.

    A field of numbers has float64 `values` [N], NaN where an item has none. In a field of codes, an item has
    any number of codes, ascending and distinct: item n has `values[starts[n]:starts[n + 1]]` (int64).
    """

    values: NDArray[Any]
    starts: NDArray[np.int64] | None = None

    def of(self, row: int) -> float | list[int] | None:
        """The number of an item, or its codes; None where it has none."""
        if self.starts is not None:
            return self.values[self.starts[row] : self.starts[row + 1]].tolist() or None
        return None if np.isnan(self.values[row]) else float(self.values[row])


@dataclass(frozen=True)
class EngineItems:
    """The content of a collection: item vectors [N, D], whose row numbers are their ids, and their fields."""

    vectors: NDArray[np.float32]
    fields: Sequence[EngineField]

    def __len__(self) -> int:
        return len(self.vectors)

    def blocks(self, size: int) -> Iterator[range]:
        """The rows in blocks of at most `size`."""
        for start in range(0, len(self), size):
            yield range(start, min(start + size, len(self)))


class Engine(ABC):
    """A connection to a running engine, safe for several threads.

    Every method raises EngineError, with the engine's address and the remedy, when the engine can't be
    reached, doesn't answer within its time limit, or refuses: `refusal` gives the sentence for an error of
    the client. An answer of another form, which a client fails to read, raises EngineError, too. Names of
    collections consist of letters, digits and underscores, and begin with a letter.
    """

    # The largest k and the largest effort of a search.
    most: int
    most_effort: float = np.inf

    def __init_subclass__(cls) -> None:
        for name in Engine.__abstractmethods__ & vars(cls).keys():
            setattr(cls, name, _named(getattr(cls, name)))

    @abstractmethod
    def check(self) -> None:
        """Raise EngineError unless the engine answers and can do all that the other methods need.

        An engine that would answer from a part of its data alone is refused by name.
        """

    @abstractmethod
    def load(self, collection: str, items: EngineItems) -> None:
        """Make a collection, replacing one of this name; return when searches answer from its built index."""

    @abstractmethod
    def search(
        self, collection: str, vector: Vector, k: int, breadth: int, where: Condition | None = None
    ) -> Rows:
        """The rows [k'] of the k items with the largest inner products with `vector` [D], among `where`.

        `breadth` is one of `breadths(k)` or between them. Fewer rows may come back than there are, and a few
        may be missing (the index is approximate); their order doesn't matter.
        """

    def breadths(self, k: int) -> Sequence[int]:
        """The search efforts to try for `k`, each a quarter more: ef of a graph, at least k."""
        steps = np.geomspace(k, 8 * k + 1000, 1 + int(np.log(8 + 1000 / k) / np.log(1.25)))
        return [int(step) for step in np.unique(np.minimum(steps, self.most_effort).astype(np.int64))]

    @abstractmethod
    def count(self, collection: str) -> int | None:
        """The number of items that searches of a collection see; None where there is no such collection."""

    @abstractmethod
    def collections(self, prefix: str) -> Sequence[str]:
        """The names of all collections that begin with `prefix`, also of incomplete ones."""

    @abstractmethod
    def drop(self, collection: str) -> None:
        """Delete a collection with all that belongs to it; nothing happens where there is none."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def refusal(self, error: Exception) -> str | None:
        """The sentence for an error of the client, with address and remedy; None for any other error."""
        return None


def _named(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it raises EngineError in place of any other exception."""

    @wraps(method)
    def call(engine: Engine, *arguments: Any, **named: Any) -> Any:
        try:
            return method(engine, *arguments, **named)
        except EngineError:
            raise
        except Exception as error:
            unread = (
                f"the answer of the vector engine to {method.__name__!r} can't be read ({error!r}); look at "
                "the server at its address, and publish again where it has lost items"
            )
            raise EngineError(engine.refusal(error) or unread) from error

    return call


def is_done(look: Callable[[], bool], seconds: float) -> bool:
    """Look ten times a second, and return True as soon as `look` does; return False after `seconds`."""
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


CLIENTS: dict[EngineName, str] = {
    "milvus": "turret.tower.engines.clients.milvus:MilvusEngine",
    "redis": "turret.tower.engines.clients.redis_search:RedisEngine",
}
_SCHEMES: dict[str, EngineName] = {
    "milvus": "milvus",
    "milvus+https": "milvus",
    "redis": "redis",
    "rediss": "redis",
    "redis+cluster": "redis",
}


class Limits(NamedTuple):
    """Time limits in seconds: of a search, and of each step of a load."""

    search: float = 1.0
    load: float = 600.0


def engine_name(url: str) -> EngineName:
    """The engine of a URL, one of CLIENTS. Raises EngineError for another scheme, and for no URL."""
    scheme = ""
    with suppress(ValueError):
        scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES:
        raise EngineError(
            f"{without_credentials(url)!r} names no engine; write milvus://HOST:19530 (milvus+https:// with "
            "TLS) or redis://HOST:6379 (rediss:// with TLS)"
        )
    return _SCHEMES[scheme]


def open_engine(url: str, limits: Limits) -> Engine:
    """Connect to the engine at `url`. Raises EngineError where it can't, or its client isn't installed."""
    engine: Engine = resolve_name(CLIENTS[engine_name(url)])(url, limits)
    return engine
