"""From the address of the histories to the store of the items beside them."""

from collections.abc import Callable
from pathlib import Path

from service.errors import ServiceError
from service.items.contract import ItemStore
from service.items.memory import MemoryItems
from service.items.sqlite import SqliteItems, beside


def _sqlite(address: str) -> ItemStore:
    place = address.partition("://")[2]
    return SqliteItems(beside(Path(place.removeprefix("/"))))


def _redis(address: str) -> ItemStore:
    from service.items.redis import RedisItems  # a tenth of a second that others needn't wait for

    return RedisItems(address)


STORES: dict[str, Callable[[str], ItemStore]] = {
    "sqlite": _sqlite,
    "memory": lambda _: MemoryItems(),
    "redis": _redis,
    "rediss": _redis,
}


def open_items(address: str) -> ItemStore:
    """Open the items that belong to the histories at `address`, which `open_store` has taken already.

    With SQLite they are in a file of their own beside that of the histories, with Redis in the same one,
    under the same prefix. Raises ServiceError when they can't be opened. A Redis isn't asked yet.
    """
    scheme = address.partition("://")[0]
    if scheme not in STORES:
        raise ServiceError(f"items can't be kept in {scheme!r}; name one of {', '.join(STORES)}")
    return STORES[scheme](address)
