"""The engine behind a URL, by its scheme; its client is imported with the first."""

from pkgutil import resolve_name
from typing import NamedTuple
from urllib.parse import urlsplit

from turret.data.errors import without_credentials
from turret.tower.engines.engine import Engine
from turret.tower.errors import EngineError

CLIENTS = {
    "milvus": "turret.tower.engines.clients.milvus:MilvusEngine",
    "redis": "turret.tower.engines.clients.redis_search:RedisEngine",
}
_SCHEMES = {
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


_DEFAULT = Limits()


def engine_name(url: str) -> str:
    """The engine of a URL, one of CLIENTS. Raises EngineError for another scheme, and for no URL."""
    scheme = _scheme(url)
    if scheme not in _SCHEMES:
        raise EngineError(
            f"{without_credentials(url)!r} names no engine; write milvus://HOST:19530 (milvus+https:// with "
            "TLS, milvus:///FOLDER/FILE.db for the embedded one) or redis://HOST:6379 (rediss:// with TLS)"
        )
    return _SCHEMES[scheme]


def open_engine(url: str, limits: Limits = _DEFAULT) -> Engine:
    """Connect to the engine at `url`. Raises EngineError where it can't, or its client isn't installed."""
    made: Engine = resolve_name(CLIENTS[engine_name(url)])(url, limits)
    return made


def _scheme(url: str) -> str | None:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return None
