import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.contracts.stores import ADDRESSES, LASTING
from tests.history.conftest import Prepare
from tests.support.redis_server import sweep
from turret.data.errors import ConfigurationError
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.history import dumping
from turret.history.dumping import TimeRange, dump_histories
from turret.history.loading import load_histories
from turret.service.errors import HistoryUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import Event, Stores
from turret.service.stores.registry import open_stores

START = 1_700_000_000_000
ALL = TimeRange(0, 2**50)


@pytest.fixture(params=LASTING)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    place = ADDRESSES[request.param](tmp_path)
    yield place
    sweep(place)


def append(address: str, *events: Event) -> Settings:
    settings = Settings(store=address)

    async def write() -> None:
        stores = open_stores(settings)
        await stores.histories.append(events)
        await stores.close()

    asyncio.run(write())
    return settings


def rows(path: Path) -> list[tuple[Any, ...]]:
    frame = pl.read_parquet(path).with_columns(pl.col("timestamp").dt.epoch("ms") - START)
    return sorted(frame.rows())


def test_a_dump_has_the_stored_events(address: str, tmp_path: Path) -> None:
    settings = append(
        address,
        Event("e1", "a", "x", START, "view"),
        Event("e2", "b", 7, START + 1),
        Event("e3", "a", "y", START),
    )
    report = dump_histories(settings, ALL, tmp_path / "new" / "events.parquet")
    assert (report.events, report.users, report.first, report.last) == (3, 2, START, START + 1)
    assert rows(tmp_path / "new" / "events.parquet") == [
        ("a", "x", 0, "view", "e1"),
        ("a", "y", 0, None, "e3"),
        ("b", "7", 1, None, "e2"),
    ]
    assert stat.S_IMODE((tmp_path / "new" / "events.parquet").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["events.parquet"]


def test_a_dump_has_the_events_of_a_range_of_times(address: str, tmp_path: Path) -> None:
    settings = append(address, *(Event(f"e{place}", "a", place, START + place) for place in range(5)))
    dump_histories(settings, TimeRange(START + 1, START + 3), tmp_path / "e.parquet")
    assert [row[1:3] for row in rows(tmp_path / "e.parquet")] == [(1, 1), (2, 2)]


def test_users_are_counted_over_parts(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose events are in two parts is one user, and parts may differ in the type of their ids."""
    monkeypatch.setattr(dumping, "PART_EVENTS", 2)
    events = [Event(f"e{place}", f"{place // 1500}", place, START + place) for place in range(4_500)]
    settings = append(address, *events)
    report = dump_histories(settings, ALL, tmp_path / "e.parquet")
    assert (report.events, report.users) == (4_500, 3)
    assert rows(tmp_path / "e.parquet") == [
        (place // 1500, place, place, None, f"e{place}") for place in range(4_500)
    ]


@pytest.mark.parametrize("other", ["x", "07", "9" * 30])
def test_ids_are_integers_only_if_all_of_them_print_as_integers(tmp_path: Path, other: str) -> None:
    settings = append(
        f"sqlite:///{tmp_path}/h.sqlite", Event("e1", "1", 1, START), Event("e2", "2", other, START)
    )
    dump_histories(settings, ALL, tmp_path / "e.parquet")
    assert sorted(row[:2] for row in rows(tmp_path / "e.parquet")) == [(1, "1"), (2, other)]


def test_a_loaded_log_is_dumped_as_a_log_that_prepares_to_the_same(
    address: str, tmp_path: Path, prepared: Prepare
) -> None:
    """Without options, and bit for bit: equal times keep their order."""
    lines = [f"u{place % 7},i{place % 5},{1_700_000_000 + place // 3}" for place in range(300)]
    data = prepared("user_id,item_id,timestamp\n" + "\n".join(lines))
    load_histories(data, Settings(store=address))
    dump_histories(Settings(store=address), ALL, tmp_path / "e.parquet")
    prepare(PrepareConfig(source=tmp_path / "e.parquet"), tmp_path / "again")
    assert PreparedData.open(tmp_path / "again").fingerprint == data.fingerprint


def test_nothing_is_written_where_the_store_holds_nothing(address: str, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"holds no events from the beginning to .* nothing is written"):
        dump_histories(Settings(store=address), TimeRange.of(None, "2024-01-01"), tmp_path / "e.parquet")
    assert not list(tmp_path.glob("*.parquet"))
    assert not list(tmp_path.glob(".e.parquet*"))


def test_a_failure_leaves_the_file_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "e.parquet").write_text("before")
    settings = append(f"sqlite:///{tmp_path}/h.sqlite", Event("e", "a", "x", START))

    class Failing:
        async def scan(self, first: int, last: int) -> Any:
            yield [Event("e", "a", "x", START)]
            raise HistoryUnavailableError("history store unavailable: it went away")

        async def close(self) -> None:
            pass

    failing: Any = Failing()
    monkeypatch.setattr(dumping, "open_stores", lambda settings: Stores(failing, failing))
    with pytest.raises(HistoryUnavailableError, match="it went away"):
        dump_histories(settings, ALL, tmp_path / "e.parquet")
    assert (tmp_path / "e.parquet").read_text() == "before"
    assert not list(tmp_path.glob(".e.parquet*"))


def test_a_name_that_prepare_would_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"give it a name like events\.parquet"):
        dump_histories(Settings(store="memory://"), ALL, tmp_path / "events.csv")


def test_times_are_dates_or_numbers() -> None:
    assert TimeRange.of("2024-05-01", "1714521601") == TimeRange(1_714_521_600_000, 1_714_521_601_000)
    assert TimeRange.of(None, "2024-05-01").first < -(10**15)
    assert TimeRange.of("2024-05-01", None).last > 1_714_521_600_000


def test_times_that_are_none_and_empty_ranges_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="--until 'monday' is no date or time; write it like"):
        TimeRange.of(None, "monday")
    with pytest.raises(ConfigurationError, match=r"--since 2024-05-02T.* is not before --until 2024-05-01T"):
        TimeRange.of("2024-05-02", "2024-05-01")
