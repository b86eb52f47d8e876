"""Mistakes of a package that adds a store: each ends in a sentence, and no answer depends on it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from turret.service.errors import (
    HistoryDamagedError,
    HistoryUnavailableError,
    ItemsOvertakenError,
    ItemsUnavailableError,
    ServiceError,
)
from turret.service.settings import Settings
from turret.service.stores.checked import checked
from turret.service.stores.contract import Change, Changes, Event, History, HistoryStore, StoreKind, Stores
from turret.service.stores.memory import MEMORY, MemoryHistory, MemoryItems

ADDRESS = "shelf://me:secret@host"
SETTINGS = Settings(store=ADDRESS)
EVENT = Event("e", "u", 1, 0)


class Replying:
    """A store of both kinds whose methods all return, or raise, the same."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def method(*arguments: Any) -> Any:
            if isinstance(self.reply, Exception):
                raise self.reply
            return self.reply

        return method

    async def scan(self, first: int, last: int) -> AsyncIterator[Any]:
        if isinstance(self.reply, Exception):
            raise self.reply
        yield self.reply


def pair(histories: Any, items: Any) -> Stores:
    return Stores(histories, items)


def history(items: Any, times: Any) -> History:
    return History(items, times)


async def all_of(portions: AsyncIterator[list[Event]]) -> list[list[Event]]:
    return [events async for events in portions]


def opened(reply: Any) -> Stores:
    kind = StoreKind("shelf://", lambda settings: pair(Replying(reply), Replying(reply)))
    return checked(kind, "the shelf").open(SETTINGS)


def fails(settings: Settings) -> Stores:
    raise OSError(13, "Permission denied", settings.store)


class Part:
    async def append(self, events: Sequence[Event]) -> int:
        return 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda _: None, "returned None; return Stores"),
        (lambda _: (MemoryHistory(), MemoryItems()), "returned a tuple; return Stores"),
        (lambda _: MemoryHistory(), "returned a MemoryHistory; return Stores"),
        (lambda: None, "failed for .*TypeError: .* positional argument"),
        (
            fails,
            r"failed for 'shelf://\*\*\*@host': PermissionError: .*Permission denied: 'shelf://\*\*\*@host'",
        ),
        (
            lambda _: pair(Part(), MemoryItems()),
            "Part, .* of histories, has no method recent, events, scan, random_user, forget",
        ),
        (lambda _: pair(MemoryHistory(), MemoryHistory()), "store of items, has no method put, withdraw"),
        (
            lambda _: pair(MemoryHistory, MemoryItems()),
            "histories is the class MemoryHistory; make an object",
        ),
    ],
)
def test_a_faulty_builder_is_a_sentence_without_the_password(build: Any, message: str) -> None:
    with pytest.raises(ServiceError, match=f"the shelf: .*{message}") as caught:
        checked(StoreKind("shelf://", build), "the shelf").open(SETTINGS)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"form": None}, "form is None; give it a text"),
        ({"open": None}, "open is not callable"),
        ({"prepare": "folder"}, "prepare is not callable"),
        ({"descriptors": 3}, "descriptors is not callable"),
    ],
)
def test_a_kind_with_a_wrong_field_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ServiceError, match=f"the shelf: .*{message}"):
        checked(replace(MEMORY, **fields), "the shelf")


@pytest.mark.parametrize("count", [None, -1, 2.5, "3"])
def test_descriptors_are_counted_with_a_number(count: Any) -> None:
    kind = checked(replace(MEMORY, descriptors=lambda settings: count), "the shelf")
    with pytest.raises(ServiceError, match=r"the shelf: .*descriptors returned .*; return a number"):
        kind.descriptors(SETTINGS)


def test_a_preparation_that_fails_is_a_sentence() -> None:
    def prepare(address: str) -> None:
        raise KeyError("no folder")

    with pytest.raises(ServiceError, match=r"the shelf: StoreKind.prepare failed .*KeyError: 'no folder'"):
        checked(replace(MEMORY, prepare=prepare), "the shelf").prepare(ADDRESS)


HISTORY_CALLS: dict[str, Callable[[HistoryStore], Any]] = {
    "append": lambda store: store.append([EVENT]),
    "recent": lambda store: store.recent(["u"], 2),
    "events": lambda store: store.events("u", 2),
    "scan": lambda store: all_of(store.scan(0, 9)),
    "forget": lambda store: store.forget("u"),
    "health_warnings": lambda store: store.health_warnings(),
}
ITEM_CALLS: dict[str, Callable[[Any], Any]] = {
    "put": lambda store: store.put("i", b"{}", b"{}", 1),
    "withdraw": lambda store: store.withdraw("i", 1),
    "changes": lambda store: store.changes(0),
}


@pytest.mark.parametrize("reply", [None, KeyError("a bug"), TimeoutError(), ServiceError("other"), "text"])
def test_what_a_store_raises_or_replies_by_mistake_makes_it_unavailable(reply: Any) -> None:
    async def work() -> None:
        stores = opened(reply)
        for call in HISTORY_CALLS.values():
            with pytest.raises(HistoryUnavailableError, match="history store failed; the log"):
                await call(stores.histories)
        for call in ITEM_CALLS.values():
            with pytest.raises(ItemsUnavailableError, match="item store failed; the log"):
                await call(stores.items)
        await stores.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"u": ([1], [2])},
        {"u": history([1, 2], [3])},
        {"u": history([1, 2, 3], [4, 5, 6])},
        {"u": history([1.0], [2])},
        {"u": history([1], ["2"])},
        {"u": history([None], [2])},
    ],
)
def test_a_history_of_another_shape_or_type_is_not_used(reply: Any) -> None:
    with pytest.raises(HistoryUnavailableError):
        asyncio.run(opened(reply).histories.recent(["u"], 2))


def test_replies_that_keep_the_contract_are_passed_on() -> None:
    async def work() -> None:
        found = {"u": history(["a", 2], [1, 2]), "other": None}
        assert await opened(found).histories.recent(["u"], 2) is found
        assert await opened((1, [EVENT])).histories.events("u", 1) == (1, [EVENT])
        changes = Changes(1, [Change("i", 1, 1, b"{}", b"{}")])
        assert await opened(changes).items.changes(0) is changes
        assert await opened(3).histories.append([EVENT]) == 3

    asyncio.run(work())


class Scanning(Replying):
    """A store whose scan yields some portions."""

    async def scan(self, first: int, last: int) -> AsyncIterator[Any]:
        for portion in self.reply:
            yield portion


def test_portions_of_a_scan_are_checked_one_by_one() -> None:
    async def work() -> None:
        kind = StoreKind("shelf://", lambda settings: pair(Scanning([[EVENT], "text"]), Replying(None)))
        portions = checked(kind, "the shelf").open(SETTINGS).histories.scan(0, 9)
        assert await anext(portions) == [EVENT]
        with pytest.raises(HistoryUnavailableError, match="history store failed; the log"):
            await anext(portions)

    asyncio.run(work())


@pytest.mark.parametrize("error", [HistoryUnavailableError("full", 7.0), HistoryDamagedError("not a line")])
def test_the_errors_of_the_contract_are_passed_on(error: HistoryUnavailableError) -> None:
    with pytest.raises(type(error)) as caught:
        asyncio.run(opened(error).histories.recent(["u"], 1))
    assert caught.value is error


def test_items_that_were_overtaken_are_passed_on() -> None:
    with pytest.raises(ItemsOvertakenError):
        asyncio.run(opened(ItemsOvertakenError()).items.put("i", b"", b"", 1, 1))


def test_a_method_that_is_not_async_is_logged_as_the_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryHistory()
    monkeypatch.setattr(store, "append", lambda events: 0)
    kind = StoreKind("shelf://", lambda settings: pair(store, MemoryItems()))
    with caplog.at_level(logging.ERROR), pytest.raises(HistoryUnavailableError):
        asyncio.run(checked(kind, "the shelf").open(SETTINGS).histories.append([EVENT]))
    assert "the shelf: the history store failed in append: TypeError" in caplog.text


def test_a_series_of_equal_failures_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        histories = Replying(KeyError("a bug"))
        kind = StoreKind("shelf://", lambda settings: pair(histories, MemoryItems()))
        store = checked(kind, "the shelf").open(SETTINGS).histories
        for reply in (KeyError("a bug"), KeyError("a bug"), OSError("the disk"), 0, OSError("the disk")):
            histories.reply = reply
            with suppress(HistoryUnavailableError):
                await store.forget("u")

    asyncio.run(work())
    assert [record.getMessage().rpartition(" in ")[2] for record in caplog.records] == [
        "forget: KeyError('a bug')",
        "forget: OSError('the disk')",
        "forget: OSError('the disk')",
    ]
