"""Stores of other packages: their exceptions and replies are checked, so that the service can rely on them.

A faulty kind or builder ends in a ServiceError. An unexpected exception or a reply that breaks the contract
is logged, and counts as an unavailable store: recommendations continue without it, writes are refused.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from turret.data.errors import TurretError
from turret.service.errors import (
    HistoryUnavailableError,
    ItemsOvertakenError,
    ItemsUnavailableError,
    ServiceError,
)
from turret.service.settings import Settings
from turret.service.stores.contract import (
    CHANGES_PAGE,
    Change,
    Changes,
    Event,
    History,
    HistoryStore,
    ItemStore,
    StoreKind,
    Stores,
)

_log = logging.getLogger("turret.store")
_METHODS = {  # of each part of Stores
    "histories": (
        *("append", "recent", "events", "scan", "random_user", "forget"),
        *("health_warnings", "close"),
    ),
    "items": ("put", "withdraw", "changes", "close"),
}


def checked(kind: StoreKind, origin: str) -> StoreKind:
    """Return a kind of another package with all its calls checked; messages begin with `origin`.

    Raises ServiceError for a kind whose own fields have other types than StoreKind says.
    """
    wrong = [name for name in ("open", "prepare", "descriptors") if not callable(getattr(kind, name))]
    if wrong:
        raise ServiceError(f"{origin}: StoreKind.{wrong[0]} is not callable; give it a function")
    if not isinstance(kind.form, str):
        raise ServiceError(
            f"{origin}: StoreKind.form is {kind.form!r}; give it a text such as 'name:///PATH'"
        )

    def open_checked(settings: Settings) -> Stores:
        with _faults(origin, "open", settings.store):
            stores = kind.open(settings)
        _check_methods(stores, origin)
        return Stores(CheckedHistories(stores.histories, origin), CheckedItems(stores.items, origin))

    def prepare_checked(address: str) -> None:
        with _faults(origin, "prepare", address):
            kind.prepare(address)

    def descriptors_checked(settings: Settings) -> int:
        with _faults(origin, "descriptors", settings.store):
            count = kind.descriptors(settings)
        if not _is_count(count):
            raise ServiceError(f"{origin}: StoreKind.descriptors returned {count!r}; return a number from 0")
        return count

    return replace(
        kind,
        open=open_checked,
        prepare=prepare_checked,
        descriptors=descriptors_checked,
        open_records=None,
    )


class CheckedHistories:
    """A HistoryStore of another package. Any failure raises HistoryUnavailableError."""

    def __init__(self, store: HistoryStore, origin: str) -> None:
        self._calls = _Calls(
            store, origin, "history store", HistoryUnavailableError, (HistoryUnavailableError,)
        )

    async def append(self, events: Sequence[Event]) -> int:
        """Store events; see HistoryStore."""
        reply: int = await self._calls.call("append", _count_fault, events)
        return reply

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        """Return users' newest events; see HistoryStore."""
        fault_of = partial(_recent_fault, users, limit)
        reply: dict[str, History] = await self._calls.call("recent", fault_of, users, limit)
        return reply

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return a user's count and newest events; see HistoryStore."""
        reply: tuple[int, list[Event]] = await self._calls.call("events", _events_fault, user, limit)
        return reply

    def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        """Iterate over the events of a range of times; see HistoryStore."""
        return self._calls.iterate("scan", _portion_fault, first, last)

    async def random_user(self) -> str | None:
        """Return a user with events; see HistoryStore."""
        reply: str | None = await self._calls.call("random_user", _user_fault)
        return reply

    async def forget(self, user: str) -> int:
        """Delete a user's events; see HistoryStore."""
        reply: int = await self._calls.call("forget", _count_fault, user)
        return reply

    async def health_warnings(self) -> list[str]:
        """Return the store's warnings; see HistoryStore."""
        reply: list[str] = await self._calls.call("health_warnings", _warnings_fault)
        return reply

    async def close(self) -> None:
        """Close the store; a failure is logged."""
        await self._calls.close()


class CheckedItems:
    """An ItemStore of another package. Any failure raises ItemsUnavailableError."""

    def __init__(self, store: ItemStore, origin: str) -> None:
        self._calls = _Calls(
            store, origin, "item store", ItemsUnavailableError, (ItemsUnavailableError, ItemsOvertakenError)
        )

    async def put(
        self, item: str, features: bytes, fields: bytes, time: int, highest: int | None = None
    ) -> int:
        """Store an item; see ItemStore."""
        reply: int = await self._calls.call("put", _count_fault, item, features, fields, time, highest)
        return reply

    async def withdraw(self, item: str, time: int) -> int:
        """Withdraw an item; see ItemStore."""
        reply: int = await self._calls.call("withdraw", _count_fault, item, time)
        return reply

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        """Return the changes; see ItemStore."""
        reply: Changes = await self._calls.call("changes", partial(_changes_fault, limit), since, limit)
        return reply

    async def close(self) -> None:
        """Close the store; a failure is logged."""
        await self._calls.close()


class _Calls:
    """Calls of one store. Of a series of equal failures of one method, the first is logged."""

    def __init__(
        self,
        store: HistoryStore | ItemStore,
        origin: str,
        name: str,
        error: Callable[[str], ServiceError],
        expected: tuple[type[Exception], ...],
    ) -> None:
        self._store = store
        self._origin = origin
        self._name = name
        self._error = error
        self._expected = expected
        self._failing: dict[str, type[Exception]] = {}

    async def call(self, method: str, fault_of: Callable[[Any], str | None], *arguments: Any) -> Any:
        """Call a method. `fault_of` names the fault of its reply, None if it has none."""
        with self._failures(method):
            reply = await getattr(self._store, method)(*arguments)
            if fault := fault_of(reply):
                raise TypeError(f"{method} returned {_short(reply)}, not {fault}")
        return reply

    async def iterate(
        self, method: str, fault_of: Callable[[Any], str | None], *arguments: Any
    ) -> AsyncIterator[Any]:
        """Iterate over the replies of a method, each of which is checked as that of `call`."""
        with self._failures(method):
            async for reply in getattr(self._store, method)(*arguments):
                if fault := fault_of(reply):
                    raise TypeError(f"{method} returned {_short(reply)}, not {fault}")
                yield reply

    @contextmanager
    def _failures(self, method: str) -> Iterator[None]:
        try:
            yield
        except self._expected:
            raise
        except Exception as cause:  # a package may raise anything
            if self._failing.get(method) is not type(cause):
                self._failing[method] = type(cause)
                _log.exception("%s: the %s failed in %s: %r", self._origin, self._name, method, cause)
            raise self._error(f"{self._name} failed; the log of the service has the reason") from cause
        self._failing.pop(method, None)

    async def close(self) -> None:
        try:
            await self._store.close()
        except Exception:
            _log.exception("%s: the %s can't be closed", self._origin, self._name)


@contextmanager
def _faults(origin: str, call: str, address: str) -> Iterator[None]:
    try:
        yield
    except TurretError:
        raise
    except Exception as cause:  # a package may raise anything
        raise ServiceError(
            f"{origin}: StoreKind.{call} failed for {address!r}: {type(cause).__name__}: {cause}; "
            "correct the address, or update the package"
        ) from cause


def _check_methods(stores: object, origin: str) -> None:
    if not isinstance(stores, Stores):
        raise ServiceError(
            f"{origin}: StoreKind.open returned {_short(stores)}; return Stores(histories, items)"
        )
    for part, methods in _METHODS.items():
        store = getattr(stores, part)
        if isinstance(store, type):
            raise ServiceError(f"{origin}: the store of {part} is the class {store.__name__}; make an object")
        missing = [name for name in methods if not callable(getattr(store, name, None))]
        if missing:
            raise ServiceError(
                f"{origin}: {type(store).__name__}, its store of {part}, has no method {', '.join(missing)}; "
                "see turret.service.stores.contract"
            )


def _user_fault(reply: object) -> str | None:
    return None if reply is None or isinstance(reply, str) else "the id of a user as text, or None"


def _count_fault(reply: Any) -> str | None:
    return None if _is_count(reply) else "a number from 0"


def _recent_fault(users: Sequence[str], limit: int, reply: Any) -> str | None:
    if not isinstance(reply, dict):
        return "a dict of histories"
    for user in users:
        history = reply.get(user)
        if not isinstance(history, History):
            return "a History of every user"
        if not len(history.items) == len(history.times) <= limit:
            return "as many times as items, and at most the limit"
        if not (set(map(type, history.items)) <= {int, str} and set(map(type, history.times)) <= {int}):
            return "items of int and str and times of int"
    return None


def _events_fault(reply: Any) -> str | None:
    is_pair = isinstance(reply, tuple) and len(reply) == 2 and _is_count(reply[0])
    if is_pair and isinstance(reply[1], list) and all(isinstance(one, Event) for one in reply[1]):
        return None
    return "a tuple of the count and a list of Event"


def _portion_fault(reply: Any) -> str | None:
    is_list = isinstance(reply, list) and all(isinstance(one, Event) for one in reply)
    return None if is_list else "a list of Event"


def _warnings_fault(reply: Any) -> str | None:
    is_list = isinstance(reply, list) and all(isinstance(one, str) for one in reply)
    return None if is_list else "a list of sentences"


def _changes_fault(limit: int, reply: Any) -> str | None:
    is_valid = isinstance(reply, Changes) and _is_count(reply.last) and len(reply.items) <= limit
    if is_valid and all(isinstance(one, Change) for one in reply.items):
        return None
    return "Changes of the last number and each Change, at most the limit"


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _short(value: object) -> str:
    """A value without its contents, which may be a user's."""
    return "None" if value is None else f"a {type(value).__name__}"
