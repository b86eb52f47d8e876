"""Redis search as an engine."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.retry import Retry

from turret.data.errors import without_credentials
from turret.tower.catalog.conditions import Among, Condition, Every, Not, Present, Some, Within
from turret.tower.engines.engine import Engine, EngineItems, Limits, Rows, Vector, is_done
from turret.tower.errors import EngineError

# A tag that no item has.
_NOTHING = "x"


def printed(where: Condition | None) -> str:
    """The part of a query in front of its KNN clause."""
    return "*" if where is None else f"({_printed(_flat(where))})"


def _flat(where: Condition, is_negated: bool = False) -> Condition:
    """The same condition, or its negation, in which only conditions on fields are negated.

    Redis search loses items, and adds others, where a negation that holds another negation is intersected.
    """
    match where:
        case Not(inner):
            return _flat(inner, not is_negated)
        case Every(inner) | Some(inner):
            combine = Every if isinstance(where, Every) != is_negated else Some
            return combine(tuple(_flat(part, is_negated) for part in inner))
    return Not(where) if is_negated else where


def _printed(where: Condition) -> str:
    match where:
        case Among(field, codes):
            return f"@f{field}:{{{'|'.join(map(str, codes)) or _NOTHING}}}"
        case Within(field, (low, high, low_open, high_open)):
            return f"@f{field}:[{_bound(low, '-inf', low_open)} {_bound(high, '+inf', high_open)}]"
        case Present(field):
            return f"@p{field}:{{1}}"
        case Not(inner):
            return f"-({_printed(inner)})"
        case Every(inner):
            return f"({' '.join(map(_printed, inner))})"
        case Some(inner):
            return f"({'|'.join(f'({_printed(part)})' for part in inner)})"
    raise TypeError(f"{where!r} has no form in an engine")


def _bound(value: float | None, missing: str, is_open: bool) -> str:
    if value is None:
        return missing
    return f"{'(' * is_open}{value!r}"


_LINKS, _EF_CONSTRUCTION = 16, 200
# An insertion takes half a millisecond of the server's one thread; other clients wait for a block at most.
_BLOCK = 64
_DELETED_AT_ONCE = 500
# The set of the collections whose index is dropped, while their hashes may not all be dropped yet.
_DROPPED = "turret:dropped_collections"


class RedisEngine(Engine):
    """A Redis with the search module; item n of collection C is the hash `C:n`."""

    most = 10_000

    def __init__(self, url: str, limits: Limits) -> None:
        self._address = without_credentials(url)
        if urlsplit(url).scheme == "redis+cluster":
            raise EngineError(f"{self._address}: {_NO_CLUSTER}")
        self._limits = limits
        try:
            self._search_client = _client(url, limits.search)
            self._client = _client(url, limits.load)
        except ValueError as error:
            raise EngineError(f"{self._address} is no URL of a Redis: {error}") from None

    def check(self) -> None:
        """Check as `Engine.check`; also refuse a cluster, and a server that may evict items."""
        if self._call("INFO", "cluster")["cluster_enabled"]:
            raise EngineError(f"{self._address}: {_NO_CLUSTER}")
        memory = self._call("INFO", "memory")
        if memory["maxmemory"] and memory["maxmemory_policy"].startswith("allkeys"):
            raise EngineError(
                f"the Redis at {self._address} evicts keys when its memory is full (maxmemory-policy "
                f"{memory['maxmemory_policy']}), and with them items; set it to noeviction"
            )
        self._names()

    def load(self, collection: str, items: EngineItems) -> None:
        self.drop(collection)
        vector = ("TYPE", "FLOAT32", "DIM", items.vectors.shape[1], "DISTANCE_METRIC", "IP")
        graph = ("M", _LINKS, "EF_CONSTRUCTION", _EF_CONSTRUCTION, "INITIAL_CAP", len(items))
        arguments = (*vector, *graph)
        schema: list[Any] = ["v", "VECTOR", "HNSW", len(arguments), *arguments]
        for place, field in enumerate(items.fields):
            schema += [f"f{place}", "NUMERIC"] if field.starts is None else [f"f{place}", "TAG"]
            schema += [f"p{place}", "TAG"]
        hashes = ("ON", "HASH", "PREFIX", 1, f"{collection}:")
        # A scan would look at every key of the server, and no hash of this collection is there yet.
        self._call("FT.CREATE", collection, *hashes, "SKIPINITIALSCAN", "SCHEMA", *schema)
        for rows in items.blocks(_BLOCK):
            pipeline = self._client.pipeline(transaction=False)
            for row in rows:
                pipeline.hset(f"{collection}:{row}", mapping=_values(items, row))
            pipeline.execute()
        refused = 0

        def is_indexed() -> bool:
            nonlocal refused
            info = self._info(collection) or {}
            refused = int(info.get(b"hash_indexing_failures", 0))
            is_whole = int(info.get(b"num_docs", -1)) == len(items) and not int(info[b"indexing"])
            return bool(refused) or is_whole

        if not is_done(is_indexed, self._limits.load) or refused:
            raise EngineError(
                f"{self._address} has not indexed all {len(items):,} items of {collection} ({refused:,} were "
                "refused); look at its log and its memory, and publish again"
            )

    def search(
        self, collection: str, vector: Vector, k: int, breadth: int, where: Condition | None = None
    ) -> Rows:
        query = f"{printed(where)}=>[KNN {k} @v $vector EF_RUNTIME {breadth}]"
        # No HYBRID_POLICY is set: batches alone miss items where few are allowed, and a scan is slow where
        # many are. At its time limit the server silently answers with too few items; the client's ends first.
        milliseconds = max(1, round(2000 * self._limits.search))
        options = ("NOCONTENT", "LIMIT", 0, k, "TIMEOUT", milliseconds, "DIALECT", 2)
        blob = np.ascontiguousarray(vector, dtype=np.float32).tobytes()
        arguments = ("FT.SEARCH", collection, query, "PARAMS", 2, "vector", blob, *options)
        _, *names = self._search_client.execute_command(*arguments)
        return np.array([int(name.rpartition(b":")[2]) for name in names], dtype=np.int64)

    def count(self, collection: str) -> int | None:
        info = self._info(collection)
        return None if info is None else int(info[b"num_docs"])

    def collections(self, prefix: str) -> Sequence[str]:
        """List as `Engine.collections`, also collections whose index is dropped and whose hashes aren't."""
        dropped = [name.decode() for name in self._call("SMEMBERS", _DROPPED)]
        return sorted(name for name in {*self._names(), *dropped} if name.startswith(prefix))

    def drop(self, collection: str) -> None:
        """Delete the index first, and the hashes after it in blocks.

        In one step, 50,000 hashes hold up all other clients for most of a second.
        """
        if collection in self._names():
            with suppress(RedisError):  # a full memory takes no name, but has to be emptied
                self._call("SADD", _DROPPED, collection)
            self._call("FT.DROPINDEX", collection)
        elif not self._call("SISMEMBER", _DROPPED, collection):
            return
        cursor = 0
        while True:
            pattern = ("MATCH", f"{collection}:*", "COUNT", _DELETED_AT_ONCE)
            cursor, keys = self._call("SCAN", cursor, *pattern)
            if keys:
                self._call("UNLINK", *keys)
            if not cursor:
                break
        self._call("SREM", _DROPPED, collection)

    def close(self) -> None:
        self._search_client.close()
        self._client.close()

    def _names(self) -> list[str]:
        return [name.decode() for name in self._call("FT._LIST")]

    def _info(self, name: str) -> dict[bytes, Any] | None:
        """The description of a collection; None where there is none."""
        try:
            parts = self._call("FT.INFO", name)
        except ResponseError as error:
            if _is_unknown(error):
                return None
            raise
        return dict(zip(parts[::2], parts[1::2], strict=True))

    def _call(self, *arguments: Any) -> Any:
        return self._client.execute_command(*arguments)

    def refusal(self, error: Exception) -> str | None:
        """The sentence for a kind of error: a missing module or collection, a password, a server."""
        at = f"the Redis at {self._address}"
        if isinstance(error, ResponseError):
            if "unknown command" in str(error).lower():
                return f"{at} has no search; start one with the search module (Redis 8 or Redis Stack)"
            return (
                f"{at}: {error}; publish the version there"
                if _is_unknown(error)
                else f"{at} refuses: {error}"
            )
        if isinstance(error, AuthenticationError):
            return (
                f"{at} refuses user or password ({error}); write the right ones into TURRET_ENGINE, such as "
                "redis://:PASSWORD@HOST:6379"
            )
        if isinstance(error, RedisError | OSError):
            return (
                f"{at} can't be reached or is too slow ({error}); start it, or name another with --engine or "
                "TURRET_ENGINE"
            )
        return None


_NO_CLUSTER = (
    "in a Redis Cluster, search answers from one node's own items alone; name a Redis that is not in a "
    "cluster, or milvus://HOST:19530"
)


def _is_unknown(error: ResponseError) -> bool:
    """Whether an error says that there is no such collection."""
    reason = str(error).lower()
    return any(words in reason for words in ("no such index", "unknown index", "not found"))


def _client(url: str, seconds: float) -> Any:
    # A retry would double the time limit. The pool reopens connections that the server has closed meanwhile.
    retry = Retry(NoBackoff(), 0)
    return Redis.from_url(
        url, socket_timeout=seconds, socket_connect_timeout=seconds, protocol=2, retry=retry
    )


def _values(items: EngineItems, row: int) -> dict[str, Any]:
    values: dict[str, Any] = {"v": items.vectors[row].tobytes()}
    for place, field in enumerate(items.fields):
        value = field.of(row)
        if value is not None:
            text = ",".join(map(str, value)) if isinstance(value, list) else repr(value)
            values |= {f"f{place}": text, f"p{place}": "1"}
    return values
