"""Around a store: timeouts and circuits, portions, times, the registry, and Redis without a server."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from turret.service.errors import HistoryDamagedError, HistoryUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import (
    Event,
    History,
    HistoryStore,
    clamp_times,
    drop_expired,
    oldest_kept,
)
from turret.service.stores.guarded import Breaker, Stored, read_histories
from turret.service.stores.redis.client import Node, read_address
from turret.service.stores.redis.histories import decode_events, encode_event
from turret.service.stores.registry import open_stores
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.tower.engines.circuit import Circuit

EVENT = Event("e", "u", 1, 0)
NOTHING = {"u": History([], [])}


# The breaker, in a loop with its own clock


class Moody(SqliteHistory):
    """A store that answers, fails or hangs, by its `mood`."""

    def __init__(self, mood: Exception | float) -> None:
        super().__init__()
        self.mood, self.asked = mood, 0
        for name in ("append", "recent", "events", "forget"):
            setattr(self, name, partial(self._feel, getattr(self, name)))

    async def _feel(self, call: Callable[..., Awaitable[Any]], *given: Any) -> Any:
        self.asked += 1
        if isinstance(self.mood, Exception):
            raise self.mood
        await asyncio.sleep(self.mood)
        return await call(*given)


def breaker_of(store: HistoryStore, failures: int = 2) -> Breaker:
    """One second to read, two to write; its circuits open for thirty."""
    return Breaker(store, 1.0, 2.0, lambda: Circuit(failures, 30.0, asyncio.get_running_loop().time))


async def refused(breaker: Breaker) -> HistoryUnavailableError:
    with pytest.raises(HistoryUnavailableError) as caught:
        await breaker.recent(["u"], 1)
    return caught.value


async def test_a_slow_store_costs_its_budget_and_then_nothing() -> None:
    """Until it answers again; who is refused is told when to come back."""
    store = Moody(60.0)
    breaker, loop = breaker_of(store), asyncio.get_running_loop()
    for _ in range(2):
        assert "timed out after 1 seconds" in str(await refused(breaker))
    for _ in range(100):
        error = await refused(breaker)
        assert "circuit open" in str(error)
        assert error.retry_after == 30
    assert (store.asked, loop.time()) == (2, 2)
    store.mood = 0.0
    await asyncio.sleep(29)
    assert (await refused(breaker)).retry_after == 1
    await asyncio.sleep(1)
    assert await breaker.recent(["u"], 1) == NOTHING
    assert breaker.circuits["read"].state == "closed"


async def test_what_can_not_be_written_can_still_be_read() -> None:
    store = Moody(HistoryUnavailableError("the disk is full"))
    breaker = breaker_of(store)
    for _ in range(3):
        with pytest.raises(HistoryUnavailableError):
            await breaker.append([EVENT])
    store.mood = 0.0
    assert await breaker.recent(["u"], 1) == NOTHING
    assert breaker.circuits["write"].state == "open"


@pytest.mark.parametrize(
    ("error", "raised", "failures"),
    [
        (HistoryDamagedError("no event"), HistoryDamagedError, 0),
        (ZeroDivisionError("a bug"), HistoryUnavailableError, 1),
    ],
)
async def test_damaged_data_of_one_user_opens_nothing_and_a_fault_of_the_store_counts(
    error: Exception, raised: type[Exception], failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its traceback is in the log."""
    breaker = breaker_of(Moody(error), failures=9)
    for _ in range(5):
        with pytest.raises(raised):
            await breaker.recent(["u"], 1)
    assert breaker.circuits["read"].in_a_row == 5 * failures
    assert breaker.circuits["read"].state == "closed"
    assert caplog.text.count("ZeroDivisionError: a bug") == 5 * failures


async def test_a_caller_that_goes_away_is_no_failure() -> None:
    breaker = breaker_of(Moody(0.9))
    for _ in range(5):
        call = asyncio.ensure_future(breaker.recent(["u"], 1))
        await asyncio.sleep(0.5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert (breaker.circuits["read"].in_a_row, breaker.circuits["read"].state) == (0, "closed")


async def test_how_much_there_is_of_a_user_is_no_failure_of_the_store() -> None:
    """Showing and deleting all of it, may take too long; others go on being answered."""
    store = Moody(60.0)
    breaker = breaker_of(store)
    for _ in range(3):
        for call in (breaker.events("u", 1), breaker.forget("u")):
            with pytest.raises(HistoryUnavailableError, match="timed out"):
                await call
    store.mood = 0.0
    assert [one.state for one in breaker.circuits.values()] == ["closed", "closed"]
    assert await breaker.recent(["u"], 1) == NOTHING
    assert await breaker.append([EVENT]) == 1


# Reading histories in portions


class Counted(SqliteHistory):
    """Histories by their lengths; records of each call the numbers of users, asked and returned events."""

    def __init__(self, **lengths: int) -> None:
        super().__init__()
        self.calls: list[tuple[int, int, int]] = []
        self.slow_from = 10**9
        self.fails_above = 10**9
        self._lengths = lengths

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        if limit > self.fails_above:
            raise HistoryUnavailableError("gone")
        newest = {user: range(self._lengths[user])[-limit:] for user in users}
        self.calls.append((len(users), limit, sum(map(len, newest.values()))))
        if len(self.calls) > self.slow_from:
            await asyncio.sleep(60)
        return {user: History([*found], [*found]) for user, found in newest.items()}


async def read(store: HistoryStore, users: Sequence[str], limit: int = 10_000) -> Stored:
    wanted: dict[str, Callable[[History], bool]] = dict.fromkeys(users, lambda _: False)
    return await read_histories(store, wanted, limit, 1.0)


def lengths(stored: Stored) -> dict[str, int]:
    return {user: len(one.items) for user, one in stored.histories.items()}


@pytest.mark.fault(56)
async def test_a_batch_of_long_histories_is_read_in_bounded_portions() -> None:
    """All get the newest events that the tower needs; truncated histories are marked."""
    users = {f"u{n}": 10_000 for n in range(100)}
    store = Counted(**users)
    stored = await read(store, list(users))
    assert max(given for _, _, given in store.calls) <= 10_000
    assert sum(given for _, _, given in store.calls) <= 110_000
    assert all(len(one.items) >= 100 and one.items[-1] == 9_999 for one in stored.histories.values())
    short = {user for user, count in lengths(stored).items() if count < 10_000}
    assert short == set(stored.truncated) != set()


async def test_what_is_enough_is_not_read_on() -> None:
    wanted = {"u": lambda newest: len(newest.items) >= 1_000, "v": lambda _: False}
    stored = await read_histories(Counted(u=20_000, v=20_000), wanted, 10_000, 9.0)
    assert (lengths(stored), set(stored.truncated)) == ({"u": 1_000, "v": 10_000}, set())


async def test_the_size_of_what_is_asked_for_is_no_failure_of_the_store() -> None:
    """If time runs out in a later portion, or that fails, the events read so far are used."""
    store = Counted(u=20_000)
    store.slow_from = 1
    breaker = breaker_of(store, failures=1)
    for _ in range(3):
        store.calls.clear()
        stored = await read(breaker, ["u"])
        assert (lengths(stored), set(stored.truncated)) == ({"u": 1_000}, {"u"})
    assert (breaker.circuits["read"].state, breaker.circuits["read"].in_a_row) == ("closed", 0)
    failing = Counted(u=1_000, v=20_000)
    failing.fails_above = 1_000
    stored = await read(failing, ["u", "v"])
    assert (lengths(stored), set(stored.truncated)) == ({"u": 1_000, "v": 1_000}, {"u", "v"})


# Times of events

NOW, DAY = 1_700_000_000_000, 86_400_000


def event(time: int) -> Event:
    return EVENT._replace(time=time)


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        *((time, time) for time in (0, NOW - 5, NOW, NOW + 1000)),
        *((time, NOW) for time in (NOW + 1001, NOW + 10 * DAY, 253_402_300_799_999)),
        *((time, 0) for time in (-1, -(10**14))),
    ],
)
def test_times_out_of_the_window_are_moved_into_it(given: int, counts: int) -> None:
    assert clamp_times([event(given)], NOW, skew=1000) == [event(counts)]


def test_what_is_too_old_to_be_kept_is_left_out() -> None:
    events = [event(time) for time in (NOW - 2 * DAY - 1, NOW - 2 * DAY, NOW)]
    assert drop_expired(events, oldest_kept(2, NOW)) == events[1:]
    assert drop_expired(events, oldest_kept(None, NOW)) == events


# The registry


def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("sqlite:///here/a.sqlite", f"sqlite:///{tmp_path}/there/b.sqlite"):
        asyncio.run(open_stores(Settings(store=address)).close())
    assert (tmp_path / "here" / "a.sqlite").exists()
    assert (tmp_path / "there" / "b.items.sqlite").exists()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        *((address, r"sqlite:///PATH.*redis://.*memory://") for address in ("", "sqlite")),
        *((address, r"entry point .* in turret\.stores") for address in ("mongodb://x", "/a/path")),
        *((address, "write sqlite:///PATH") for address in ("sqlite://", "sqlite:///")),
        ("mysql://me:a-secret@host/0", "'mysql://host/0'"),
    ],
)
def test_other_addresses_are_refused_with_those_that_work(address: str, words: str) -> None:
    with pytest.raises(ServiceError, match=words):
        open_stores(Settings(store=address))


# ---- Redis without a server: addresses, keys and replies


# Addresses


def test_an_address_has_defaults_and_is_shown_without_the_password() -> None:
    address = read_address("redis://host")
    assert (address.nodes, address.is_cluster) == ((Node("host", 6379),), False)
    assert address.options == {"db": 0, "ssl": False, "username": None, "password": None}
    assert (address.prefix, address.replicas) == ("turret:", 0)
    address = read_address("rediss://me:p%40ss%2Fw%3Ard@[::1]:7000/3?prefix=shop.1:&replicas=2")
    assert address.nodes == (Node("::1", 7000),)
    assert address.options == {"db": 3, "ssl": True, "username": "me", "password": "p@ss/w:rd"}
    assert (address.prefix, address.replicas) == ("shop.1:", 2)
    assert str(address) == "rediss://[::1]:7000/3"
    assert "p@ss" not in repr(address)


def test_an_address_of_a_cluster_has_several_nodes() -> None:
    address = read_address("rediss+cluster://me:p%40ss@a,b:7000,[::1]:7001?prefix=shop:&replicas=1")
    assert address.nodes == (Node("a", 6379), Node("b", 7000), Node("::1", 7001))
    assert address.is_cluster
    assert (address.prefix, address.replicas) == ("shop:", 1)
    assert str(address) == "rediss+cluster://a:6379,b:7000,[::1]:7001"


WRONG = {
    "redis": [
        *("", "host:99999/0", "host:port/0", "host/-1", "host/0/1", "host/0#x", "[::1", "a,b/0"),
        *("host?prefix=", "host?prefix=a b", "host?replicas=-1", "host?replicas=x", "host?db=1"),
    ],
    "redis+cluster": ["", "a,", ",a", "a:x", "a/1", "a,b/2", "a?db=1", "a#x"],
}


@pytest.mark.parametrize(("scheme", "rest"), [(scheme, rest) for scheme in WRONG for rest in WRONG[scheme]])
def test_other_addresses_are_refused_without_the_password(scheme: str, rest: str) -> None:
    with pytest.raises(ServiceError) as caught:
        read_address(f"{scheme}://me:secret@{rest}")
    assert "write redis://" in str(caught.value)
    assert "secret" not in str(caught.value)


# Keys

IDS = ["", "7", "a b", "{", "}", "{}", "}{", "a}b", "{a}", "{a}b", ":", "{:7}", "é\n", "*", "user:7"]
ADDRESS = read_address("redis://host")


def test_all_keys_of_a_user_are_in_one_slot_and_tell_the_user() -> None:
    """Users are spread over the slots; the record of all members has one slot."""
    for user in IDS:
        keys = [ADDRESS.events(user), ADDRESS.ids(user)]
        assert len({key_slot(key.encode()) for key in keys}) == 1
        assert all(key.startswith("turret:") for key in keys)
    assert len({key_slot(ADDRESS.events(str(user)).encode()) for user in range(1_000)}) > 900
    assert len({key for user in IDS for key in (ADDRESS.events(user), ADDRESS.ids(user))}) == len(IDS) * 2
    assert [ADDRESS.user_of(ADDRESS.events(user).encode()) for user in IDS] == IDS
    shared = [ADDRESS.shared(name) for name in ("items", "items:order", "replicas:default:record")]
    assert [ADDRESS.user_of(key.encode()) for key in (ADDRESS.ids("u"), *shared)] == [None] * 4
    assert len({key_slot(key.encode()) for key in shared}) == 1


# Replies

REPLIES = [
    *(Event("a", "u", 1, -5), Event("b", "u", "1", 7, "view"), Event("ç\0", "u", 2**63 - 1, 2**47, "")),
    Event("d", "u", 1, 8, None, "0" * 32),
]


def reply(*events: Event) -> list[Any]:
    """As a Redis gives them, the members and their scores in turn."""
    pairs = [(b"%016d" % place + encode_event(one), b"%d" % one.time) for place, one in enumerate(events)]
    return [value for pair in pairs for value in pair]


@pytest.mark.parametrize(
    ("member", "score"),
    [
        *((reply(REPLIES[0])[0], score) for score in (b"inf", b"nan", b"", b"x")),
        *((member, b"5") for member in (b"", b"x", b"0" * 15 + b'["e", 1, null]')),
        *((b"0" * 16 + text, b"5") for text in (b"", b"1", b'"text"', b'{"a": 1}', b'["e", 1]')),
        *((b"0" * 16 + text, b"5") for text in (b'["e", 1, null, 2]', b'["e", 1, null], ["f", 1, null]')),
        *((b"0" * 16 + text, b"5") for text in (b'["e", 1, null, "a", null]', b"[]", b"[[], [], [], []]")),
    ],
)
def test_other_replies_are_refused_also_among_ours(member: bytes, score: bytes) -> None:
    assert decode_events("u", reply(*REPLIES)) == REPLIES
    for others in (reply(), reply(*REPLIES)):
        for place in range(0, len(others) + 1, 2):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                decode_events("u", [*others[:place], member, score, *others[place:]])
