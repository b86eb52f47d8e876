"""Milvus as an engine, standalone or as a cluster."""

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from turret.data.errors import without_credentials
from turret.data.extras import install_command
from turret.tower.catalog.conditions import Among, Condition, Every, Not, Present, Some, Within
from turret.tower.engines.engine import Engine, EngineItems, Limits, Rows, Vector, is_done
from turret.tower.errors import EngineError

_NOTHING = "row < 0"  # no item has such a row


def printed(where: Condition | None) -> str:
    """The filter of a search; empty for none."""
    return "" if where is None else _printed(where)


def _printed(where: Condition) -> str:
    match where:
        case Among(field, codes):
            return f"array_contains_any(f{field}, {list(codes)})" if codes else _NOTHING
        case Within(field, (low, high, low_open, high_open)):
            above = [] if low is None else [f"f{field} >{'=' * (not low_open)} {low!r}"]
            below = [] if high is None else [f"f{field} <{'=' * (not high_open)} {high!r}"]
            return f"({' and '.join([f'p{field} == true', *above, *below])})"
        case Present(field):
            return f"p{field} == true"
        case Not(inner):
            return f"not ({_printed(inner)})"
        case Every(inner):
            return f"({' and '.join(map(_printed, inner))})"
        case Some(inner):
            return f"({' or '.join(map(_printed, inner))})"
    raise TypeError(f"{where!r} has no form in an engine")


_GRAPH = {"M": 16, "efConstruction": 200}
_BLOCK = 2_000
_MOST_CODES = 4096  # the largest capacity of an ARRAY field
_PORT = 19530


class MilvusEngine(Engine):
    """A Milvus; item n has the primary key n in the field `row`."""

    most = 16_384
    most_effort = 32_768

    def __init__(self, url: str, limits: Limits) -> None:
        self._address = without_credentials(url)
        self._limits = limits
        parts = urlsplit(url)
        try:
            scheme = "https" if parts.scheme.endswith("https") else "http"
            self._client = _client_class()(
                f"{scheme}://{parts.hostname or '127.0.0.1'}:{parts.port or _PORT}",
                user=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                db_name=parts.path.strip("/"),
                timeout=min(limits.search, limits.load),
            )
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(self.refusal(error)) from None

    def check(self) -> None:
        self._names()

    def load(self, collection: str, items: EngineItems) -> None:
        """Load as `Engine.load`; the index is complete first, so that no search scans the collection."""
        self.drop(collection)
        self._client.create_collection(collection, schema=_schema(items), timeout=self._limits.load)
        for rows in items.blocks(_BLOCK):
            self._client.insert(collection, _rows(items, rows), timeout=self._limits.load)
        self._client.flush(collection, timeout=self._limits.load)
        parameters = self._client.prepare_index_params()
        parameters.add_index("v", "HNSW", "v", metric_type="IP", params=_GRAPH)
        self._client.create_index(collection, parameters, timeout=self._limits.load)
        if not is_done(lambda: self._indexed(collection) >= len(items), self._limits.load):
            raise EngineError(
                f"the Milvus at {self._address} has indexed {self._indexed(collection):,} of {len(items):,} "
                f"items of {collection}; look at its log and its memory, and publish again"
            )
        self._client.load_collection(collection, timeout=self._limits.load)

    def search(
        self, collection: str, vector: Vector, k: int, breadth: int, where: Condition | None = None
    ) -> Rows:
        """Search as `Engine.search`, without waiting for writes: a loaded collection never changes."""
        (hits,) = self._client.search(
            collection,
            [np.asarray(vector, dtype=np.float32).tolist()],
            filter=printed(where),
            limit=k,
            search_params={"metric_type": "IP", "params": {"ef": min(max(breadth, k), self.most_effort)}},
            consistency_level="Eventually",
            timeout=self._limits.search,
        )
        return np.array(hits.ids, dtype=np.int64)

    def count(self, collection: str) -> int | None:
        if not self._client.has_collection(collection, timeout=self._limits.load):
            return None
        (counted,) = self._client.query(
            collection,
            output_fields=["count(*)"],
            consistency_level="Strong",
            timeout=self._limits.load,
        )
        return int(counted["count(*)"])

    def collections(self, prefix: str) -> Sequence[str]:
        return [name for name in self._names() if name.startswith(prefix)]

    def drop(self, collection: str) -> None:
        if collection in self._names():
            self._client.drop_collection(collection, timeout=self._limits.load)

    def close(self) -> None:
        self._client.close()

    def refusal(self, error: Exception) -> str:
        """The sentence for any error: of gRPC, of pymilvus, or of the arguments of a call."""
        reason = " ".join(str(getattr(error, "message", "") or error).split())[:300]
        return (
            f"the Milvus at {self._address} can't be reached, is too slow, or refuses ({reason}); "
            "start it, or name another with --engine or TURRET_ENGINE"
        )

    def _names(self) -> list[str]:
        names: list[str] = self._client.list_collections(timeout=self._limits.load)
        return names

    def _indexed(self, collection: str) -> int:
        """The number of indexed items; one less while others are pending."""
        state = self._client.describe_index(collection, "v", timeout=self._limits.load)
        return int(state.get("indexed_rows", 0)) - bool(int(state.get("pending_index_rows", 0)))


def _client_class() -> Any:
    try:
        from pymilvus import MilvusClient
    except ImportError as error:
        raise EngineError(
            f"pymilvus can't be imported ({error}); run: {install_command('milvus')}, or name "
            "a redis://HOST:6379"
        ) from None
    # pymilvus logs each failure with its traceback, and here the failure is raised as EngineError.
    logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)
    return MilvusClient


def _schema(items: EngineItems) -> Any:
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=items.vectors.shape[1])
    for place, field in enumerate(items.fields):
        if field.starts is None:
            schema.add_field(f"f{place}", DataType.DOUBLE)
        else:
            capacity = {"element_type": DataType.INT64, "max_capacity": _MOST_CODES}
            schema.add_field(f"f{place}", DataType.ARRAY, **capacity)
        schema.add_field(f"p{place}", DataType.BOOL)
    return schema


def _rows(items: EngineItems, rows: range) -> list[dict[str, Any]]:
    entities = []
    for row in rows:
        values: dict[str, Any] = {"row": row, "v": items.vectors[row].tolist()}
        for place, field in enumerate(items.fields):
            value = field.of(row)
            values[f"p{place}"] = value is not None
            values[f"f{place}"] = value or (0.0 if field.starts is None else [])
        entities.append(values)
    return entities
