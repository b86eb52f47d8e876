"""Checks of a store against its contract."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from turret.service.settings import Settings
from turret.service.stores.contract import (
    ARRIVALS_PAGE,
    Arrivals,
    Change,
    Event,
    History,
    HistoryStore,
    ListsArrivals,
    NewChange,
    StoreKind,
    Stores,
    event_digest,
)

_DAY = 86_400_000
_FIRST, _LAST = -(2**53), 2**53  # times before and after all that are stored here
_PORTION = 20_000  # events of a scan that may come together
# Texts that a store could take for one another, or for something of its own.
_TEXTS = (
    *("é", "e\u0301", "🎬", "a b", "a\nb", "a\0b", "a\0", "'\"\\", "{x}*?[y]", "x:y", "id:1", " ", "7", "07"),
    *("x" * 512, "\u202e", "user:7", "ids:a", "arrival", "\ufeff", "A", "a", "'; DROP TABLE events; --"),
)
# The same for a user and an event id that are written together.
_PARTS = ("", "a", "b", "ab", ":", "a:b", "a:", "\0", "a\0b", "1", "11", "ids:a", "\n")


def check_store(kind: StoreKind, place: Callable[[], str]) -> None:
    """Raise AssertionError, with a sentence, unless the stores of `kind` keep the contract.

    `place` returns the address of an empty place, another one at each call. Some checks store 30,000 events.
    """
    for check in _CHECKS:
        asyncio.run(check(_Place(kind, place())))


class _Place:
    """An address to open stores at."""

    def __init__(self, kind: StoreKind, address: str) -> None:
        self.kind = kind
        self._address = address

    @asynccontextmanager
    async def stores(self, **settings: object) -> AsyncIterator[Stores]:
        """Open the stores with further settings of the service, and close them."""
        stores = self.kind.open(Settings.model_validate({"store": self._address, **settings}))
        try:
            yield stores
        finally:
            await stores.close()


def expect(promise: str, found: object, wanted: object = True) -> None:
    """Raise AssertionError, with the promise, unless the values are equal."""
    if found != wanted:
        raise AssertionError(f"{promise}: {str(found)[:500]} instead of {str(wanted)[:500]}")


def _event(number: int, user: str = "u", item: int | str = 1, time: int = 0) -> Event:
    return Event(f"e{number}", user, item, time)


def _history(events: Sequence[Event]) -> History:
    kinds = [event.kind for event in events]
    times = [event.time for event in events]
    return History([event.item for event in events], times, kinds if any(kinds) else ())


async def _check_events(place: _Place) -> None:
    items: tuple[int | str, ...] = (42, "42", 2**63 - 1, -(2**63), "1e3", "café 🎬", *_TEXTS)
    events = [Event(str(n), "u", item, n, f"{item}"[:50]) for n, item in enumerate(items)]
    events.append(Event("late", "u", 1, 253_402_300_799_999, ""))
    others = [Event(text, text, text, -5, text) for text in _TEXTS]
    async with place.stores() as (store, _):
        promise = "append returns the number of new events"
        expect(promise, await store.append([]), 0)
        expect(promise, await store.append([*events, *others]), len(events) + len(others))
        expect(promise, await store.append([*others, *events]), 0)
        expect("events come back as they were", await store.events("u", 100), (len(events), events))
        wanted = {text: _history([event]) for text, event in zip(_TEXTS, others, strict=True)}
        found = await store.recent([*_TEXTS, "nobody"], 10)
        expect("every user has an own history", found, wanted | {"nobody": History([], [])})
        expect("nothing is read for nobody", await store.recent([], 10), {})
        for event in others:
            expect("any text is an id", await store.events(event.user, 9), (1, [event]))
        warnings = await store.health_warnings()
        expect("warnings are sentences", [type(warning) for warning in warnings], [str] * len(warnings))


async def _check_event_ids(place: _Place) -> None:
    async with place.stores() as (store, _):
        stored = await store.append([_event(1, item=1), _event(1, item=2), _event(1, "v", 3)])
        more = [_event(1, item=4), _event(2, item=5), _event(1, "v", 6), _event(1, "w", 7)]
        stored += await store.append(more)
        expect("an event id counts once for a user", stored, 4)
        found = {user: history.items for user, history in (await store.recent(["u", "v", "w"], 9)).items()}
        expect("the first event with an id stays", found, {"u": [1, 5], "v": [3], "w": [7]})
        pairs = [Event(part, f"x{user}", 1, 1) for user in _PARTS for part in _PARTS]
        expect("no two pairs of user and event id are one", await store.append(pairs), len(pairs))


async def _check_answers(place: _Place) -> None:
    named = [_event(n, "session:s", time=n)._replace(answer_id=f"{n:032x}") for n in range(3)]
    plain = [_event(n, "session:s", time=n) for n in range(3, 6)]
    both = [event for pair in zip(named, plain, strict=True) for event in pair]
    async with place.stores() as (store, _):
        await store.append(both)
        expect("an event keeps the id of its answer", (await store.events("session:s", 9))[1], named + plain)
        again = [event._replace(answer_id=f"{9:032x}") for event in both]
        expect("an event that names another answer is no other event", await store.append(again), 0)
        await store.move("session:s", "u")
        wanted = [event._replace(user="u") for event in named + plain]
        expect("an event that moves keeps the id of its answer", await store.events("u", 9), (6, wanted))
        expect("a scan has the ids of answers", await _scanned(store), {"u": wanted})
        expect(
            "the first event, with its answer, stays", await store.recent(["u"], 9), {"u": _history(wanted)}
        )


async def _check_order(place: _Place) -> None:
    draw = random.Random(7)
    events = [_event(n, item=n, time=draw.randrange(-5, 50)) for n in range(300)]
    equal = [Event(f"{n % 7}-{n}", "v", f"{n % 7}-{n}", 9) for n in range(120)]
    ordered = sorted(events, key=lambda event: event.time)
    async with place.stores() as (store, _):
        for first in range(0, 300, 12):
            await store.append(events[first : first + 12] + equal[first : first + 12])
        promise = "events are ordered by time and then by arrival"
        expect(promise, await store.events("u", 1_000), (300, ordered))
        expect(promise, await store.recent(["v"], 1_000), {"v": _history(equal)})
        promise = "a limit keeps the newest events"
        expect(promise, await store.events("u", 7), (300, ordered[-7:]))
        wanted = {"u": _history(ordered[-5:]), "v": _history(equal[-5:])}
        expect(promise, await store.recent(["u", "v"], 5), wanted)


async def _check_forgetting(place: _Place) -> None:
    async with place.stores() as (store, _):
        await store.append([_event(1), _event(2), _event(3, "v", 8)])
        expect("forget returns the number of events", [await store.forget("u") for _ in range(2)], [2, 0])
        wanted = {"u": History([], []), "v": History([8], [0])}
        expect("only the forgotten user is forgotten", await store.recent(["u", "v"], 9), wanted)
        again = await store.append([_event(1, item=3), _event(2, "v", 4), _event(2, item=5)])
        expect("the event ids of a forgotten user are forgotten", again, 3)
        for text in _TEXTS:
            await store.append([_event(1, text)])
            expect("a user of any id is forgotten", await store.forget(text), 1)


async def _check_moving(place: _Place) -> None:
    stranger = [_event(n, "session:s", f"i{n}", time=n)._replace(kind="view") for n in range(4)]
    own = [_event(1, item="own", time=1), _event(9, item="own", time=3)]
    async with place.stores() as (store, _):
        await store.append([*stranger, *own, _event(1, "v", 8)])
        expect("move counts new events and known ids", await store.move("session:s", "u"), (3, 1))
        kept = [stranger[0], own[0], *(event for event in stranger[2:])]
        wanted = [event._replace(user="u") for event in (*kept[:3], own[1], kept[3])]
        expect(
            "an id of both counts once, and times order the events", await store.events("u", 9), (5, wanted)
        )
        expect("a history has the kinds of events", await store.recent(["u"], 9), {"u": _history(wanted)})
        expect("nothing is left of the moved user", await store.events("session:s", 9), (0, []))
        again = await store.move("session:s", "u"), await store.append(stranger)
        expect("the event ids of a moved user are forgotten", again, ((0, 0), 4))
        expect("a move that is repeated adds nothing", await store.move("session:s", "u"), (0, 4))
        await store.append([_event(n, "session:two", n) for n in range(2_500)])
        both = await asyncio.gather(store.move("session:two", "first"), store.move("session:two", "second"))
        totals = [(await store.events(user, 9))[0] for user in ("first", "second", "session:two")]
        expect("each event of a session goes to one of the users who log in", sum(totals), 2_500)
        expect("of logins at once each returns its own events", [one.new for one in both], totals[:2])
        await store.append([_event(n, "long", n, n) for n in range(12_000)])
        late = [_event(n, "long", n, n - 100) for n in range(12_000, 12_020)]
        moving = asyncio.ensure_future(store.move("long", "w"))
        stored = await asyncio.gather(*(store.append([one]) for one in late))
        expect("events that come meanwhile are new", stored, [1] * 20)
        new = (await moving).new + (await store.move("long", "w")).new
        found = new, (await store.events("w", 9))[0], (await store.events("long", 9))[0]
        expect("events that come meanwhile are moved, or stay", found, (12_020, 12_020, 0))
        expect("other users keep their events", await store.recent(["v"], 9), {"v": History([8], [0])})


async def _check_concurrency(place: _Place) -> None:
    async with place.stores() as (store, _):
        calls = (store.append([_event(n, item=n), _event(999)]) for n in range(40))
        expect("calls at one time lose and double nothing", sum(await asyncio.gather(*calls)), 41)
        expect("calls at one time lose and double nothing", (await store.events("u", 9))[0], 41)
        await store.append([_event(n, f"u{n}", n) for n in range(50)])
        for turns in range(10):
            reads = [asyncio.ensure_future(store.recent([f"u{n}"], 1)) for n in range(50)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for read in reads[::3]:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
            for n, read in enumerate(reads):
                wanted = {f"u{n}": History([n], [0])}
                promise = "a call has its own reply, also after others were cancelled"
                expect(promise, wanted if read.cancelled() else read.result(), wanted)


async def _check_size(place: _Place) -> None:
    events = [_event(n, f"u{n % 3}", "x" * 50, n) for n in range(30_000)]
    async with place.stores() as (store, _):
        expect("a call may have any number of events", await store.append(events), 30_000)
        expect("all events are counted", await store.events("u0", 1_000), (10_000, events[::3][-1_000:]))
        found = await store.recent([f"u{n}" for n in range(100)], 10_000)
        lengths = [len(history.items) for history in found.values()]
        expect("a read may have any number of users", lengths, [10_000] * 3 + [0] * 97)
        await store.append([_event(n, "long", n, n) for n in range(25_000)])
        calls = (store.append([_event(n, "v", n)]) for n in range(5))
        deleted, *stored = await asyncio.gather(store.forget("long"), *calls)
        expect("a long history is forgotten while others write", (deleted, stored), (25_000, [1] * 5))
        expect("nothing is left of it", await store.events("long", 9), (0, []))


async def _scanned(store: HistoryStore, first: int = _FIRST, last: int = _LAST) -> dict[str, list[Event]]:
    users: dict[str, list[Event]] = {}
    previous = None
    async for portion in store.scan(first, last):
        expect("a portion of a scan has a bound, and isn't empty", 0 < len(portion) <= _PORTION)
        for event in portion:
            is_next = event.user == previous or event.user not in users
            expect("the events of a user come one after another", is_next)
            users.setdefault(event.user, []).append(event)
            previous = event.user
    return users


async def _check_arrivals(place: _Place) -> None:
    async with place.stores() as (store, _):
        if not isinstance(store, ListsArrivals):
            return
        listed: ListsArrivals = store

        async def arrived(after: str | None) -> tuple[list[tuple[str, int | str, int, str | None]], str]:
            """All that came behind a position, and the position behind it."""
            found, position, more = list[tuple[str, int | str, int, str | None]](), after, None
            while more is None or more.events:
                more = await listed.arrivals(position)
                assert more is not None, "a position of a moment ago is known"
                expect("a page of arrivals has a bound", len(more.events) <= ARRIVALS_PAGE)
                found += (
                    [(each.digest, each.item, each.time, each.kind) for each in more.events]
                    if position is not None
                    else []
                )
                position = more.position
            return found, str(position)

        def shown(events: Sequence[Event]) -> list[tuple[str, int | str, int, str | None]]:
            return sorted((event_digest(e.user, e.event_id), e.item, e.time, e.kind) for e in events)

        _, start = await arrived(None)
        expect("nothing has arrived in an empty store", await arrived(start), ([], start))
        events = [Event(f"e{n}", f"u{n % 7}", text, n, text) for n, text in enumerate(_TEXTS)]
        await store.append([*events, *events[:3]])
        await store.append(events[5:9])
        found, position = await arrived(start)
        expect("each new event is listed once", sorted(found), shown(events))
        await store.append([stranger := Event("s", "session:s", 5, 3, "buy")])
        await store.move("session:s", "u1")
        await store.forget("u2")
        found, position = await arrived(position)
        expect("an event that moves is not listed again", found, shown([stranger]))
        many = [_event(n, "many", n, n) for n in range(2 * ARRIVALS_PAGE + 1)]
        await store.append(many)
        found, position = await arrived(position)
        expect(
            "arrivals are listed in pages, and in their order",
            [item for _, item, *_ in found],
            [event.item for event in many],
        )
        calls = [store.append([_event(n, f"v{n % 5}", n)]) for n in range(300)]
        await asyncio.gather(*calls)
        found, end = await arrived(position)
        expect("calls at one time list each event once", sorted(item for _, item, *_ in found), [*range(300)])
    if place.kind.is_lasting:
        async with place.stores() as (again, _):
            assert isinstance(again, ListsArrivals)
            expect("a lasting store keeps the positions", await again.arrivals(end), Arrivals(end, []))


async def _check_scan(place: _Place) -> None:
    draw = random.Random(3)
    long = [_event(n, "long", n, draw.choice([5, 5, 5, 70, 8])) for n in range(5_000)]
    short = [_event(n, f"u{n % 700}", f"i{n}", n) for n in range(2_100)]
    texts = [Event(text, text, text, n - 100, text) for n, text in enumerate(("", *_TEXTS))]
    async with place.stores() as (store, _):
        expect("a scan of an empty store has no events", await _scanned(store), {})
        for first in range(0, 5_000, 1_000):
            await store.append(long[first : first + 1_000])
        await store.append([*short, *texts])
        wanted = {f"u{n}": short[n::700] for n in range(700)} | {event.user: [event] for event in texts}
        wanted["long"] = sorted(long, key=lambda event: event.time)
        expect("a scan has every event once, those of a user oldest first", await _scanned(store), wanted)
        found = await _scanned(store, 703, 705)
        expect("a scan has first <= time < last", found, {"u3": short[703:704], "u4": short[704:705]})


async def _check_scan_of_changes(place: _Place) -> None:
    kept = [_event(n, f"u{n % 50}", n, n) for n in range(30_000)]
    async with place.stores() as (store, _):
        await store.append(kept)
        seen: list[Event] = []
        turn = 30_000
        async for portion in store.scan(_FIRST, _LAST):
            seen += portion
            await store.append([_event(turn, f"u{turn % 50}", turn, turn), _event(turn, f"v{turn}", turn, 1)])
            await store.forget(f"v{turn - 2}")
            turn += 1
        found = sorted(set(kept).intersection(seen))
        expect("an event that is stored during a whole scan comes in it", found, sorted(kept))
        expect("no event comes twice in a scan", len(set(seen)), len(seen))


async def _check_age(place: _Place) -> None:
    now = time.time_ns() // 1_000_000
    old, young, again = _event(1, time=now - 3 * _DAY), _event(2, time=now - _DAY), _event(3, time=now)
    async with place.stores() as (store, _):
        await store.append([_event(3, time=now - 4 * _DAY), _event(4, "gone", time=now - 4 * _DAY)])
    async with place.stores(keep_days=2) as (store, _):
        expect("what is older than is kept is not read", await store.events("u", 9), (0, []))
        expect("what is older than is kept is not stored", await store.append([old, young]), 1)
        expect("the event id of an expired event is free", await store.append([again]), 1)
        expect("what is kept is read", await store.recent(["u"], 9), {"u": _history([young, again])})
        scanned = {user: set(events) for user, events in (await _scanned(store)).items()}
        expect("an expired event is not scanned", scanned, {"u": {young, again}})
        expect("expired events are not counted", await store.forget("u"), 2)


async def _check_items(place: _Place) -> None:
    given = [(text, b'{"a":"\\n"}', f'{{"b":"{n} é"}}'.encode()) for n, text in enumerate(_TEXTS)]
    count = len(given)
    async with place.stores() as (_, store):
        expect("an empty store has no changes", await store.changes(0), (0, []))
        named = [(item, (features, fields)) for item, features, fields in given]
        numbers = await store.change([NewChange(item, n, *parts) for n, (item, parts) in enumerate(named)])
        expect("each change has the next number", numbers, list(range(1, count + 1)))
        changes = [Change(item, n + 1, n, *parts) for n, (item, *parts) in enumerate(given)]
        expect("items come back as they were, in order", await store.changes(0), (count, changes))
        for since in (count - 2, count):
            expect("only later changes are read", await store.changes(since), (count, changes[since:]))
        expect("no more than the limit are read", await store.changes(1, 2), (3, changes[1:3]))
        expect("the last of a page may be the store's", (await store.changes(count - 2, 2))[0], count)
        later = NewChange("a", 6, b"3", b"4"), NewChange("7", 7), NewChange("never put", 8, None, b"5")
        expect("a later change has a later number", await store.change(later), [count + n for n in (1, 2, 3)])
        gone = [Change("7", count + 2, 7, None, None), Change("never put", count + 3, 8, None, b"5")]
        wanted = [Change("a", count + 1, 6, b"3", b"4"), *gone]
        expect("the last change counts", await store.changes(count), (count + 3, wanted))
        before = [change for change in changes if change.item not in ("a", "7")]
        expect("it replaces the one before", await store.changes(0), (count + 3, before + wanted))
        for turn in range(6):
            await store.change([NewChange("again", 6) if turn >= 3 else NewChange("again", 5, b"{}", b"1")])
        found = (await store.changes(count + 3)).items
        withdrawn = Change("again", count + 9, 6, None, None)
        expect("a repeated change is harmless", found, [withdrawn])
        last = await store.last(["again", "nothing", "a"])
        expect("the last change of each item is read", last, [withdrawn, None, wanted[0]])
        late = [
            (await store.change([NewChange("again", 7, b"1", b"1", after)]))[0] for after in (0, count + 8)
        ]
        late += await store.change([NewChange("nothing", 7, b"1", b"1", 1)])
        after_another = late, (await store.changes(count + 9)).items
        expect("a change after another than the last is not stored", after_another, ([0, 0, 0], []))
        follows = (("again", count + 9), ("a", 0), ("first", 0))
        numbers = await store.change([NewChange(item, 7, b"1", b"1", after) for item, after in follows])
        expect("of several, those after the last are stored", numbers, [count + 10, 0, count + 11])
        many = [NewChange(f"many {n}", n, b"{}", b"{}") for n in range(1_200)]
        expect(
            "many are stored in their order", await store.change(many), [count + 12 + n for n in range(1_200)]
        )
        newest = await store.last([change.item for change in many])
        expect("the last changes of many are read", [one and one.time for one in newest], [*range(1_200)])


async def _check_many_items(place: _Place) -> None:
    async with place.stores() as (_, store):
        numbers: list[int] = []
        for first in range(0, 300, 100):
            changes = [NewChange(f"i{(first + n) % 270}", 0, b"{}", b"{}") for n in range(100)]
            for (number,) in await asyncio.gather(*(store.change([change]) for change in changes)):
                numbers.append(number)
        expect("changes at one time have different numbers", sorted(numbers), list(range(1, 301)))
        (one,) = await store.change([NewChange("one", 0, b"{}", b"{}")])
        next_one = [NewChange("one", 0, b"{}", b"{}", one)]
        both = sorted(await asyncio.gather(*(store.change(next_one) for _ in range(9))))
        expect("one of several changes after the same one is stored", both, [[0]] * 8 + [[one + 1]])
        last, items = await store.changes(0)
        found = [change.number for change in items]
        expect("all changes are read, in order", (last, len(found), found), (302, 271, sorted(found)))


async def _check_lasting(place: _Place) -> None:
    """What is acknowledged survives the process, where the kind says so."""
    for number in range(2 * place.kind.is_lasting):
        async with place.stores() as (histories, items):
            found = await histories.events("u", 9), await items.changes(0)
            events = [_event(n, item=n) for n in range(number)]
            changes = [Change("a", number, 0, b"1", b"2")][:number]
            expect("a lasting store keeps all", found, ((number, events), (number, changes)))
            await histories.append([_event(number, item=number)])
            await items.change([NewChange("a", number, b"1", b"2")])


async def _check_sharing(place: _Place) -> None:
    """Stores that are open at one address see each other, where the kind says so."""
    if not place.kind.is_shared:
        return
    async with place.stores() as one, place.stores() as other:
        for number, (writing, reading) in enumerate(((one, other), (other, one))):
            await writing.histories.append([_event(number), _event(7, "v")])
            await writing.items.change([NewChange("a", number, b"{}", b"{}")])
            total, _ = await reading.histories.events("u", 9)
            found = total, (await reading.items.changes(0)).last
            expect("an open store reads the changes of another", found, (number + 1, number + 1))
        expect("an event id counts once for all of them", (await one.histories.events("v", 9))[0], 1)
        await one.histories.append([_event(1, "session:s")])
        moved = await other.histories.move("session:s", "w"), await one.histories.move("session:s", "w")
        expect("a session is moved once for all of them", moved, ((1, 0), (0, 0)))
        deleted = await one.histories.forget("u"), (await other.histories.events("u", 9))[0]
        expect("what one has forgotten is gone for all", deleted, (2, 0))


_CHECKS = (
    *(_check_events, _check_event_ids, _check_order, _check_forgetting, _check_moving, _check_age),
    *(_check_answers, _check_concurrency),
    *(_check_items, _check_lasting, _check_sharing),
    *(_check_scan, _check_many_items, _check_arrivals, _check_scan_of_changes, _check_size),
)
