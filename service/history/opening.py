"""From the address of a store to the store."""

from collections.abc import Callable
from pathlib import Path

from service.errors import ServiceError
from service.history.contract import HistoryStore
from service.history.memory import MemoryHistory
from service.history.sqlite import SqliteHistory

STORES: dict[str, Callable[[str], HistoryStore]] = {
    "sqlite": lambda place: SqliteHistory(Path(place)),
    "memory": lambda _: MemoryHistory(),
}


def open_store(address: str) -> HistoryStore:
    """Open `sqlite:///PATH` (a fourth slash makes the path absolute) or `memory://`.

    Raises ServiceError for any other address, or when the store can't be opened.
    """
    scheme, separator, place = address.partition("://")
    if not separator or scheme not in STORES or (scheme == "sqlite" and len(place) < 2):
        raise ServiceError(f"the store can't be {address!r}; name sqlite:///PATH or memory://")
    return STORES[scheme](place.removeprefix("/"))
