import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.stores import ADDRESSES, LASTING
from tests.history.conftest import Prepare
from tests.support.redis_server import sweep
from turret.history import loading
from turret.history.loading import load_histories
from turret.service.errors import HistoryUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import Event, HistoryStore, Stores
from turret.service.stores.registry import open_stores

HEAD = "user_id,item_id,timestamp\n"
START = 1_700_000_000
LOG = HEAD + "".join(f"u{user},i{item % 3},{START + item}\n" for user in range(5) for item in range(4))


@pytest.fixture(params=LASTING)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    place = ADDRESSES[request.param](tmp_path)
    yield place
    sweep(place)


def settings(address: str, **others: Any) -> Settings:
    return Settings.model_validate({"store": address, **others})


def stored(address: str, user: str) -> list[Event]:
    async def read() -> list[Event]:
        stores = open_stores(Settings(store=address))
        try:
            return (await stores.histories.events(user, 100_000))[1]
        finally:
            await stores.close()

    return asyncio.run(read())


def append(address: str, *events: Event) -> None:
    async def write() -> None:
        stores = open_stores(Settings(store=address))
        assert await stores.histories.append(events) == len(events)
        await stores.close()

    asyncio.run(write())


def test_the_events_of_the_log_are_stored_and_a_second_time_nothing(address: str, prepared: Prepare) -> None:
    data = prepared(LOG)
    report = load_histories(data, settings(address))
    assert (report.read, report.kept, report.stored, report.users) == (20, 20, 20, 5)
    assert [(event.item, event.time) for event in stored(address, "u3")] == [
        (item, 1000 * (START + place)) for place, item in enumerate(["i0", "i1", "i2", "i0"])
    ]
    assert load_histories(data, settings(address)).stored == 0


def test_an_event_that_came_into_the_log_from_the_store_is_not_stored_again(
    address: str, prepared: Prepare
) -> None:
    """It has an id of its client there. A second use of the item at the same time is new, though."""
    append(address, Event("own", "a", 7, 1000 * START), Event("later", "a", "z", 1000 * START + 1))
    data = prepared(HEAD + f"a,7,{START}\na,7,{START}\na,8,{START}\n")
    assert load_histories(data, settings(address)).stored == 2
    events = stored(address, "a")
    assert [(event.item, event.time - 1000 * START) for event in events] == [(7, 0), (7, 0), (8, 0), ("z", 1)]
    assert events[0].event_id == "own"
    assert load_histories(data, settings(address)).stored == 0


def test_many_stored_events_newer_than_the_log_hide_none_of_its_own(address: str, prepared: Prepare) -> None:
    newer = (Event(f"e{number}", "a", "z", 1000 * START + 5_000 + number) for number in range(500))
    append(address, Event("own", "a", "x", 1000 * START), *newer)
    assert load_histories(prepared(HEAD + f"a,x,{START}\n"), settings(address)).stored == 0


def test_only_the_newest_events_that_an_answer_reads_are_loaded(address: str, prepared: Prepare) -> None:
    report = load_histories(prepared(LOG), settings(address, stored_history_limit=3))
    assert (report.read, report.stored) == (20, 15)
    assert "15 events of 5 users: 15 are new" in report.sentence(address)
    assert "5 older ones are not loaded" in report.sentence(address)
    assert [event.item for event in stored(address, "u0")] == ["i1", "i2", "i0"]


class Failing:
    """A store that becomes unavailable after some writes."""

    def __init__(self, store: HistoryStore, writes: int) -> None:
        self._store = store
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, events: list[Event]) -> int:
        self._left -= 1
        if self._left < 0:
            raise HistoryUnavailableError("history store unavailable: disk full")
        return await self._store.append(events)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let stores fail after so many writes of two events or a few more each."""
    monkeypatch.setattr(loading, "WRITE_EVENTS", 2)

    def arrange(writes: int) -> None:
        def begin(settings: Settings) -> Stores:
            stores = open_stores(settings)
            failing: Any = Failing(stores.histories, writes)
            return Stores(failing, stores.items)

        monkeypatch.setattr(loading, "open_stores", begin)

    return arrange


def test_an_interrupted_load_continues(
    address: str, prepared: Prepare, failing: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = prepared(LOG)
    monkeypatch.setattr(loading, "_RETRY_SECONDS", (0.0,))
    failing(3)
    with pytest.raises(
        ServiceError, match=r"disk full; 6 new events are stored, and the same command continues"
    ):
        load_histories(data, settings(address))
    failing(100)
    assert load_histories(data, settings(address)).stored == 14
    assert [event.item for event in stored(address, "u1")] == ["i0", "i1", "i2", "i0"]


def test_a_store_that_is_unavailable_for_a_moment_is_called_again(
    tmp_path: Path, prepared: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_RETRY_SECONDS", (0.0, 0.0))
    calls = iter([HistoryUnavailableError("locked"), HistoryUnavailableError("locked")])

    class Recovering(Failing):
        async def append(self, events: list[Event]) -> int:
            if error := next(calls, None):
                raise error
            return await self._store.append(events)

    def begin(settings: Settings) -> Stores:
        stores = open_stores(settings)
        recovering: Any = Recovering(stores.histories, 0)
        return Stores(recovering, stores.items)

    monkeypatch.setattr(loading, "open_stores", begin)
    assert load_histories(prepared(LOG), settings(f"sqlite:///{tmp_path}/h.sqlite")).stored == 20


def test_a_store_in_memory_is_refused(prepared: Prepare) -> None:
    with pytest.raises(ServiceError, match="memory:// is lost with its process, so nothing is loaded"):
        load_histories(prepared(LOG), settings("memory://"))


def test_a_log_without_times_is_refused_by_a_store_that_deletes_by_time(
    tmp_path: Path, prepared: Prepare
) -> None:
    data = prepared("user_id,item_id\na,x\n", columns={"in_file_order": True})
    with pytest.raises(ServiceError, match="has an order but no times, and with TURRET_KEEP_DAYS = 3"):
        load_histories(data, settings(f"sqlite:///{tmp_path}/h.sqlite", keep_days=3))


def test_old_events_are_left_out_where_the_store_deletes_them(tmp_path: Path, prepared: Prepare) -> None:
    report = load_histories(prepared(LOG), settings(f"sqlite:///{tmp_path}/h.sqlite", keep_days=3))
    assert (report.read, report.kept, report.stored) == (20, 0, 0)
