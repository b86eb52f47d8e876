"""Databases as sources: SQLite and DuckDB files in this process."""

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import turret.cli
from tests.support.tools import require
from turret.data.databases import drivers
from turret.data.databases.addresses import Database, is_database, open_database
from turret.data.databases.drivers import READERS
from turret.data.databases.results import plain, with_since, write_result
from turret.data.errors import ConfigurationError, DataError, EmptyResultError, MissingExtraError, SourceError
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

ORDERS = (
    "select customer as user_id, sku as item_id, ordered_at as time from orders where ordered_at >= :since"
)
PRODUCTS = "select sku as item_id, title from products"
SECRET = "p@ss/w#rd%41"
ENCODED = "p%40ss%2Fw%23rd%2541"


def rows(days: Sequence[int]) -> list[tuple[str, str, str]]:
    """An order of each of 30 customers on each of some days of May 2024."""
    return [
        (f"u{user}", f"i{(user + day) % 12}", f"2024-05-{day:02} 10:00:00")
        for user in range(30)
        for day in days
    ]


def fill(connection: Any, days: Sequence[int]) -> None:
    """Write the tables of a shop, or further orders."""
    connection.execute("create table if not exists orders (customer text, sku text, ordered_at text)")
    connection.execute("create table if not exists products (sku text primary key, title text)")
    connection.executemany("insert into orders values (?, ?, ?)", rows(days))
    titles = [(f"i{item}", f"A cup with the number {item}") for item in range(12)]
    connection.executemany("insert into products values (?, ?) on conflict do nothing", titles)
    connection.commit()


def connect(kind: str, path: Path) -> Any:
    """A connection to a database file of a kind."""
    if kind == "sqlite":
        return sqlite3.connect(path)
    require("sql")
    return pytest.importorskip("duckdb").connect(str(path))


@pytest.fixture(params=["sqlite", "duckdb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A database file with the orders of a week."""
    path = tmp_path / f"shop.{request.param}"
    with closing(connect(request.param, path)) as connection:
        fill(connection, range(1, 8))
    return path


@pytest.fixture
def sqlite(tmp_path: Path) -> Callable[[str], Path]:
    """A function that makes a SQLite file by a script."""

    def made(script: str) -> Path:
        with closing(sqlite3.connect(tmp_path / "any.db")) as connection:
            connection.executescript(script)
        return tmp_path / "any.db"

    return made


def csv(path: Path, days: Sequence[int]) -> Path:
    """The same orders as a file."""
    path.write_text("user_id,item_id,time\n" + "".join(",".join(row) + "\n" for row in rows(days)))
    return path


def turret_data(*words: object) -> Result:
    return CliRunner().invoke(turret.cli.app, ["data", *map(str, words)])


def test_a_query_gives_the_data_of_the_same_rows_in_a_file(shop: Path, tmp_path: Path) -> None:
    done = turret_data(
        "prepare", shop, "--sql", ORDERS, "--items-sql", PRODUCTS, "--to", tmp_path / "prepared"
    )
    assert done.exit_code == 0, done.stderr
    pl.DataFrame(
        {"item_id": [f"i{n}" for n in range(12)], "title": [f"A cup with the number {n}" for n in range(12)]}
    ).write_parquet(tmp_path / "items.parquet")
    events = csv(tmp_path / "events.csv", range(1, 8))
    expected = prepare(PrepareConfig(source=events, items=tmp_path / "items.parquet"), tmp_path / "expected")
    assert PreparedData.open(tmp_path / "prepared").fingerprint == expected.manifest.fingerprint


@pytest.mark.parametrize("address", ["{kind}:///{path}", "{path}"])
def test_a_file_is_named_by_its_path_or_by_an_address(
    address: str, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.parent)
    place = address.format(kind=shop.suffix[1:], path=shop.name)
    report = prepare(PrepareConfig.model_validate({"source": place, "sql": ORDERS}), tmp_path / "prepared")
    assert list(report.manifest.sources) == [f"{place}#events"]
    absolute = address.format(kind=shop.suffix[1:], path=shop)
    report = prepare(PrepareConfig.model_validate({"source": absolute, "sql": ORDERS}), tmp_path / "again")
    assert report.manifest.counts.events == 210


def test_the_next_day_is_read_by_the_query_of_the_first_time(shop: Path, tmp_path: Path) -> None:
    """The items are read again, and only the newest events."""
    assert (
        turret_data(
            "prepare", shop, "--sql", ORDERS, "--items-sql", PRODUCTS, "--to", tmp_path / "a"
        ).exit_code
        == 0
    )
    with closing(connect(shop.suffix[1:], shop)) as connection:
        fill(connection, [8])
        connection.execute("delete from orders where ordered_at < '2024-05-03'")
        connection.commit()
    added = turret_data("append", shop, "--to", tmp_path / "a")
    assert added.exit_code == 0, added.stderr
    assert "30 of 60 events are new (30 were there already" in added.stdout
    with closing(connect(shop.suffix[1:], shop)) as connection:
        fill(connection, [9, 10])
    added = turret_data("append", shop, "--since", "2024-05-10", "--to", tmp_path / "a")
    assert "30 of 30 events are new; " in added.stdout
    assert PreparedData.open(tmp_path / "a").manifest.counts.events == 270
    assert (
        turret_data("append", shop, "--sql", ORDERS.partition(" where")[0], "--to", tmp_path / "a").exit_code
        == 0
    )
    assert PreparedData.open(tmp_path / "a").manifest.counts.events == 300
    whole = prepare(
        PrepareConfig(source=csv(tmp_path / "events.csv", range(1, 11))), tmp_path / "whole"
    ).manifest
    settings = PreparedData.open(tmp_path / "a").manifest.settings
    assert (settings["sql"], settings["items_sql"], settings["since"]) == (ORDERS, PRODUCTS, None)
    files = PreparedData.open(tmp_path / "a").manifest.files
    same = ["times.npy", "offsets.npy", "splits.npy", "users.json", "items.json"]
    assert {name: files[name] for name in same} == {name: whole.files[name] for name in same}


def test_a_file_of_items_takes_the_place_of_their_query(shop: Path, tmp_path: Path) -> None:
    assert (
        turret_data(
            "prepare", shop, "--sql", ORDERS, "--items-sql", PRODUCTS, "--to", tmp_path / "a"
        ).exit_code
        == 0
    )
    (tmp_path / "items.csv").write_text("item_id,title\n" + "".join(f"i{n},Cup {n}\n" for n in range(12)))
    events = csv(tmp_path / "events.csv", [9])
    done = turret_data("append", events, "--items", tmp_path / "items.csv", "--to", tmp_path / "a")
    assert done.exit_code == 0, done.stderr
    settings = PreparedData.open(tmp_path / "a").manifest.settings
    assert (settings["items"], settings["items_sql"]) == (str(tmp_path / "items.csv"), None)


def test_odd_values_become_those_of_a_file(sqlite: Callable[[str], Path], tmp_path: Path) -> None:
    """A user or an item without an id is a bad row, texts and numbers mix, and a number is no text."""
    path = sqlite(
        "create table e (user_id, item_id, time);"
        "insert into e values (null, 'a', 1714600000), (1, null, 1714600000), (1, 'a', 1714600000),"
        "('x', 7, 1714600001), (9007199254740993, 'a', 1714600002), (2.0, 'b', 1714600003);"
    )
    done = turret_data(
        "prepare", path, "--sql", "select * from e", "--on-bad", "drop", "--to", tmp_path / "a"
    )
    assert done.exit_code == 0, done.stderr
    data = PreparedData.open(tmp_path / "a")
    assert {bad.kind: bad.count for bad in data.manifest.bad_rows} == {"null user": 1, "null item": 1}
    assert "9007199254740993" in data.users.all_ids


@pytest.mark.parametrize(
    "query", ["copy one to 'leak.csv'", "select 1; select 2", "create table two(a int)", "-- nothing", ""]
)
def test_a_query_on_duckdb_is_a_single_select(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """A session that is read-only would still write files."""
    require("sql")
    monkeypatch.chdir(tmp_path)
    with closing(connect("duckdb", tmp_path / "shop.duckdb")) as connection:
        connection.execute("create table one as select 1 as a")
    database = Database("duckdb", "shop.duckdb", "shop.duckdb")
    with pytest.raises(SourceError, match="it gives no rows, as it is no single select"):
        write_result(database, "events", query, tmp_path / "events.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["shop.duckdb"]
    for select in ("from one", "with two as (from one) select * from two -- two;", "(select a from one);"):
        write_result(database, "events", select, tmp_path / "events.parquet")
        assert pl.read_parquet(tmp_path / "events.parquet").rows() == [(1,)]


@pytest.mark.parametrize(
    "query",
    [
        "from postgres_scan('host=db password=hidden', 'public', 'orders')",
        "select * from read_csv('https://shop:hidden@shop.example/orders.csv')",
        "select * from read_csv('https://shop.example/orders.csv?token=hidden')",
    ],
)
def test_a_query_with_a_password_is_refused(shop: Path, tmp_path: Path, query: str) -> None:
    """The data would keep it, for the next append."""
    done = turret_data("prepare", shop, "--sql", query, "--to", tmp_path / "prepared")
    assert done.exit_code == 1
    assert "the query of --sql has a password in it" in done.stderr
    assert "hidden" not in done.stderr
    assert not (tmp_path / "prepared").exists()


def test_types_of_duckdb_keep_their_values(tmp_path: Path) -> None:
    require("sql")
    with closing(connect("duckdb", tmp_path / "shop.duckdb")) as connection:
        connection.execute("create table one as select 1")
    query = (
        "select 4::hugeint as big, 1.50::decimal(9, 2) as price, 7::decimal(9, 0) as id, true as sold,"
        " date '2024-05-01' as day, timestamptz '2024-05-01 12:00:00+02' as at, null as nothing,"
        " 'a'::blob as raw,"
        " '12345678-1234-1234-1234-123456789012'::uuid as uuid, [1, 2] as list"
    )
    database = Database("duckdb", "shop.duckdb", str(tmp_path / "shop.duckdb"))
    write_result(database, "events", query, tmp_path / "events.parquet")
    frame = pl.read_parquet(tmp_path / "events.parquet")
    row = frame.with_columns(pl.col("at").dt.epoch("s"), pl.col("day").cast(pl.String)).row(0, named=True)
    assert row == {
        "big": 4,
        "price": 1.5,
        "id": 7,
        "sold": True,
        "day": "2024-05-01",
        "at": 1714557600,
        "nothing": None,
        "raw": b"a",
        "uuid": "12345678-1234-1234-1234-123456789012",
        "list": [1, 2],
    }
    assert [frame[name].dtype for name in ("big", "price", "id")] == [pl.Int64, pl.Float64, pl.Int64]


def test_batches_of_other_types_are_one_column(
    sqlite: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows stay in order, and a batch without a value has no type of its own."""
    monkeypatch.setattr(drivers, "PIECE", 2)
    path = sqlite("create table e (v); insert into e values (null), (null), (1), (2), (2.5), (null), ('a');")
    database = Database("sqlite", "any.db", str(path))
    write_result(database, "events", "select v from e order by rowid", tmp_path / "a.parquet")
    assert pl.read_parquet(tmp_path / "a.parquet")["v"].to_list() == [
        None,
        None,
        "1",
        "2",
        "2.5",
        None,
        "a",
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.parquet", "any.db"]


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ("drop table orders", ["can't be read: ", "read"]),
        ("select customer from nowhere", ["nowhere", "check the query of --sql"]),
        ("select price from orders", ["price"]),
        ("select 1 as a, 2 as a", ["two columns 'a'; give one another name by AS"]),
        ("", ["gives no rows, as it is no single select"]),
        (
            "select * from orders where 1 = 0",
            ["the query of --sql on ", "gives no rows; check its conditions"],
        ),
        (
            "select customer from orders",
            ["none of the usual columns for the user; its columns are customer", "#events"],
        ),
        ("select customer as user_id, sku as item_id, 'soon' as time from orders", ["#events"]),
    ],
)
def test_a_query_that_gives_no_log_ends_in_a_sentence(
    query: str, phrases: list[str], shop: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    done = turret_data("prepare", shop, "--sql", query, "--to", tmp_path / "prepared")
    assert done.exit_code == 1
    assert done.stderr.startswith("turret: ")
    assert [phrase for phrase in (*phrases, shop.name) if phrase not in done.stderr] == [], done.stderr
    assert ".parquet" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_read_that_ends_in_the_middle_leaves_the_older_data_and_nothing_else(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "prepared"
    prepare(PrepareConfig(source=shop, sql=ORDERS), target)
    before, files = PreparedData.open(target).fingerprint, sorted(tmp_path.iterdir())
    read, written = READERS[shop.suffix[1:]], list[Path]()

    def interrupted(database: Database, query: str) -> Iterator[pl.DataFrame]:
        yield from read(database, query)
        written.extend(tmp_path.glob(".*.new/events.parts/00000000.parquet"))
        raise KeyboardInterrupt

    monkeypatch.setitem(READERS, shop.suffix[1:], interrupted)
    for command in (
        lambda: prepare(PrepareConfig(source=shop, sql=ORDERS), target, overwrite=True),
        lambda: append(shop, target, {"sql": ORDERS}),
        lambda: prepare(PrepareConfig(source=shop, sql=ORDERS), tmp_path / "other"),
    ):
        with pytest.raises(KeyboardInterrupt):
            command()
        assert sorted(tmp_path.iterdir()) == files
        PreparedData.open(target).verify()
    assert PreparedData.open(target).fingerprint == before
    assert len(written) == 3, "a part was there in the middle"


# ---- Addresses and passwords


@pytest.mark.parametrize(
    ("address", "user", "password", "text"),
    [
        ("postgresql://host/shop", None, None, "postgresql://host/shop"),
        (
            "postgres://me@host:5433/shop?sslmode=require",
            "me",
            None,
            "postgres://host:5433/shop?sslmode=require",
        ),
        (f"postgresql://me:{ENCODED}@host/shop", "me", SECRET, "postgresql://host/shop"),
        ("postgresql://me:p@ss@host/shop", "me", "p@ss", "postgresql://host/shop"),
        ("postgresql://me:p/w@host/shop", "me", "p/w", "postgresql://host/shop"),
        ("mysql://me:@host/shop", "me", "", "mysql://host/shop"),
    ],
)
def test_an_address_is_printed_without_its_credentials(
    address: str, user: str | None, password: str | None, text: str
) -> None:
    database = open_database(address)
    assert (database.user, database.password, database.text) == (user, password, text)
    assert database.place == text.partition("://")[2]
    assert not password or password not in repr(database)


def test_the_environment_or_a_file_has_the_password_of_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURRET_DATABASE", "mysql://m:1@host/shop postgresql://me:2@host/shop")
    assert open_database("postgresql://host/shop").password == "2"
    assert open_database("postgres://me@host/shop").password == "2", "of the same kind, by another name"
    assert open_database("mysql://host/shop").user == "m"
    assert open_database("postgresql://you@host/shop").password is None
    assert open_database("postgresql://you:3@host/shop").password == "3", "the address itself wins"
    assert open_database("postgresql://host/other").password is None
    (tmp_path / "addresses").write_text("postgresql://you:4@host/shop\npostgresql://o:5@host/other\n")
    monkeypatch.setenv("TURRET_DATABASE_FILE", str(tmp_path / "addresses"))
    assert open_database("postgresql://you@host/shop").password == "4"
    assert open_database("postgresql://host/other").password == "5"
    monkeypatch.setenv("TURRET_DATABASE_FILE", str(tmp_path / "nothing"))
    with pytest.raises(
        ConfigurationError, match=r"nothing can't be read: No such file .*PASSWORD@\]HOST/NAME"
    ):
        open_database("postgresql://host/shop")


def contents(folder: Path) -> bytes:
    """All bytes of all files below a folder, with their names."""
    return b"".join(os.fsencode(path) + path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_password_is_in_no_file_message_or_log(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver of a server reads a file here, and another one quotes the password in its error."""
    read = READERS[shop.suffix[1:]]

    def served(database: Database, query: str) -> Iterator[pl.DataFrame]:
        assert database.password == SECRET
        yield from read(Database("", "", str(shop)), query)

    def refusing(database: Database, query: str) -> Iterator[pl.DataFrame]:
        raise RuntimeError(f"no access by {database.password} as in mysql://me:{SECRET}@host/shop")
        yield

    caplog.set_level(0)
    secrets = (SECRET.encode(), ENCODED.encode())
    addresses = (f"mysql://me:{ENCODED}@host/shop", "mysql://me:p@ss%2Fw%23rd%2541@host/shop")
    for number, address in enumerate(addresses):
        target = tmp_path / f"prepared{number}"
        monkeypatch.setitem(READERS, "mysql", served)
        done = turret_data("prepare", address, "--sql", ORDERS, "--items-sql", PRODUCTS, "--to", target)
        assert done.exit_code == 0, done.stderr
        settings = json.loads((target / "manifest.json").read_text())["settings"]
        assert (settings["source"], settings["items"]) == ("mysql://host/shop", "mysql://host/shop")
        monkeypatch.setitem(READERS, "mysql", refusing)
        refused = turret_data("prepare", address, "--sql", "select", "--to", tmp_path / "other")
        assert "mysql://host/shop can't be read: no access by *** as in mysql://host/shop;" in refused.stderr
        assert refused.exception is None or isinstance(refused.exception, SystemExit)
        printed = (done.output + refused.output + caplog.text).encode()
        assert not [secret for secret in secrets if secret in printed + contents(target)]
    monkeypatch.setitem(READERS, "mysql", served)
    with closing(connect(shop.suffix[1:], shop)) as connection:
        fill(connection, [8])
    monkeypatch.setenv("TURRET_DATABASE", addresses[0])
    added = turret_data("append", "mysql://host/shop", "--to", tmp_path / "prepared0")
    assert "30 of 60 events are new" in added.stdout, added.stderr
    assert not [
        secret for secret in secrets if secret in added.output.encode() + contents(tmp_path / "prepared0")
    ]


@pytest.mark.parametrize(
    ("address", "phrase"),
    [
        (
            "postgresql://me@host/shop?password=pw",
            "has a password among its parameters; write it before the host",
        ),
        ("mysql://me:pw pw@host/shop", "mysql://host/shop: write %40 for @, %2F for /, %20 for a blank and"),
        ("mysql://me:p@pw/x@host/shop", "mysql://host/shop: write %40 for @, %2F for /"),
        (
            "oracle://me:pw@host/shop",
            "oracle://host/shop can't be read: oracle:// is none of sqlite, duckdb, postgresql",
        ),
        ("snowflake://me:pw@host/shop", "name it as the SOURCE: COPY INTO @STAGE/events/ FROM (select ...)"),
    ],
)
def test_an_address_that_is_not_read_is_refused_without_its_password(address: str, phrase: str) -> None:
    with pytest.raises(DataError) as refused:
        open_database(address)
    assert phrase in str(refused.value)
    assert "pw" not in str(refused.value)


def test_a_missing_driver_is_named_by_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(drivers, "import_module", missing)
    for address in ("duckdb:///shop.duckdb", "postgresql://host/shop", "mysql://host/shop"):
        with pytest.raises(MissingExtraError, match=r"shop.* needs a driver .* pip install .*\[sql\]'"):
            prepare(PrepareConfig.model_validate({"source": address, "sql": "select 1"}), tmp_path / "a")


@pytest.mark.parametrize(
    ("address", "phrase"),
    [
        ("postgresql://me:pw1@/shop?host={tmp_path}", "/shop?host={tmp_path} can't be read: .*No such file"),
        (
            "postgresql://me:p%zzpw1@/shop?host={tmp_path}",
            "/shop?host={tmp_path} can't be read: .*No such file",
        ),
        ("mysql://me:pw1@127.0.0.1:1/shop", "mysql://127.0.0.1:1/shop can't be read: .*refused"),
        ("mysql://me:pw1@host/shop?ssl=yes", "there is no parameter 'ssl'; known are charset, ssl_ca"),
        ("mysql://me:pw1@host:port/shop", "mysql://host:port/shop can't be read: .*'port'"),
    ],
)
def test_a_server_that_is_not_there_is_named_without_the_password(
    address: str, phrase: str, tmp_path: Path
) -> None:
    require("sql")
    config = PrepareConfig.model_validate({"source": address.format(tmp_path=tmp_path), "sql": "select 1"})
    with pytest.raises(DataError) as refused:
        prepare(config, tmp_path / "prepared")
    assert re.search(phrase.format(tmp_path=tmp_path).replace("?", r"\?"), str(refused.value))
    assert "pw1" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


# ---- Times


@pytest.mark.parametrize(
    ("since", "literal"),
    [
        (None, "'1970-01-01 00:00:00'"),
        ("2024-05-01", "'2024-05-01 00:00:00'"),
        ("2024-05-01T12:30+02:00", "'2024-05-01 10:30:00'"),
        ("2024-05-01T12:30:01.2399Z", "'2024-05-01 12:30:01.239'"),
        ("1714557600", "1714557600"),
        (1714557600.5, "1714557600.5"),
    ],
)
def test_since_is_a_time_in_utc_or_the_number_of_the_column(since: str | float | None, literal: str) -> None:
    query = with_since("select a::since, b where t >= :since and u > :since", since)
    assert query == f"select a::since, b where t >= {literal} and u > {literal}"


def test_since_that_is_no_time_is_refused() -> None:
    for text in ("yesterday", "1 or 1=1", "nan", "2024-05-01'; drop table orders --"):
        with pytest.raises(ConfigurationError, match=r"--since can't be .* write it like 2024-05-01"):
            with_since(":since", text)


def test_a_database_is_told_by_its_first_bytes(shop: Path, tmp_path: Path) -> None:
    assert is_database(shop)
    for content in (b"", b"SQLite", b"user_id,item_id,time\n"):
        (tmp_path / "file").write_bytes(content)
        assert not is_database(tmp_path / "file")
    assert not is_database("s3://bucket/events.parquet")
    assert not is_database(tmp_path)
    assert not is_database(None)


def test_a_result_without_rows_is_an_error_of_its_own(shop: Path, tmp_path: Path) -> None:
    """By which a schedule tells a day without events from a broken query."""
    prepare(PrepareConfig(source=shop, sql=ORDERS), tmp_path / "prepared")
    with pytest.raises(EmptyResultError):
        append(shop, tmp_path / "prepared", {"since": "2025-01-01"})
    with pytest.raises(SourceError):
        append(shop, tmp_path / "prepared", {"sql": "select nothing"})


def test_times_that_python_does_not_have_are_null() -> None:
    """Postgres has the time infinity."""
    frame = pl.DataFrame({"day": [date.min, date.max], "time": [datetime.min, datetime.max]})
    assert plain(frame).equals(frame)
    beyond = pl.DataFrame({"number": [2**31 - 1, -(2**31)]}).select(
        pl.col("number").cast(pl.Int32).cast(pl.Date).alias("day"),
        pl.lit(2**63 - 1).cast(pl.Datetime("us", "UTC")).alias("time"),
    )
    assert plain(beyond).rows() == [(None, None)] * 2
    assert plain(beyond).schema == beyond.schema
