"""A Postgres server as the source of events and items, read by processes that are killed."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.command_line import TURRET, environment
from tests.support.postgres_server import USER, PostgresServer, own_postgres
from tests.support.tools import require
from tests.support.until import until
from turret.data.databases.addresses import Database
from turret.data.databases.drivers import connect_postgres
from turret.data.errors import DataError
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

pytestmark = pytest.mark.process
SECRET = "p@ss/w#rd?%41:"
ORDERS = (
    "select customer as user_id, sku as item_id, ordered_at as time, price from orders"
    " where ordered_at >= :since"
)
PRODUCTS = "select sku as item_id, title, price, listed from products"
LOCK = 7
# The last of 200,000 rows waits for a lock, when the first batch of 16 MB is in a file already.
STOPPED = (
    "select 'u' || n % 40 as user_id, 'i' || n % 12 as item_id, 1714557600 + n as time,"
    " repeat('x', 100) as note,"
    f" case when n = 200000 then pg_advisory_lock({LOCK})::text end as stop"
    " from generate_series(1, 200000) as n"
)


@pytest.fixture(scope="module")
def shop() -> Iterator[PostgresServer]:
    require("postgres", "sql")
    with own_postgres(SECRET) as server:
        server.ask(
            "create table orders (customer uuid, sku bigint, ordered_at timestamptz, price numeric(9, 2))"
        )
        server.ask("create table products (sku numeric, title text, price numeric(9, 2), listed boolean)")
        server.ask(
            "insert into products select n, 'A cup with the number ' || n, n * 1.5, n > 2"
            " from generate_series(0, 11) as n"
        )
        order(server, 1, 7)
        yield server


def order(server: PostgresServer, first: int, last: int) -> None:
    """An order of each of 30 customers on each day from `first` to `last` of May 2024."""
    server.ask(
        "insert into orders select md5(u::text)::uuid, (u + day) % 12, "
        "timestamptz '2024-05-01 12:00:00+02' + (day - 1) * interval '1 day', 2.50 "
        f"from generate_series(1, 30) as u, generate_series({first}, {last}) as day"
    )


@pytest.fixture
def secrets(shop: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a command, with the file of the address."""
    file = tmp_path_factory.mktemp("secrets") / "database"
    file.write_text(shop.address.replace("://", f"://{USER}:{quote(SECRET, safe='')}@") + "\n")
    return environment() | {"TURRET_DATABASE_FILE": str(file)}


def turret(words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TURRET, *words], env=env, capture_output=True, text=True, timeout=120, check=False
    )


def test_orders_of_a_server_are_prepared_and_those_of_the_next_days_appended(
    shop: PostgresServer, secrets: dict[str, str], tmp_path: Path
) -> None:
    """Ids are UUIDs and numbers, times have zones, and the password is in a file alone."""
    target = str(tmp_path / "prepared")
    words = [shop.address, "--sql", ORDERS, "--items-sql", PRODUCTS, "--weight", "price", "--to", target]
    done = turret(["data", "prepare", *words], secrets)
    assert done.returncode == 0, done.stderr
    data = PreparedData.open(tmp_path / "prepared")
    assert (data.manifest.counts.events, data.manifest.counts.users, data.manifest.counts.items) == (
        210,
        30,
        12,
    )
    assert data.manifest.time.until == "2024-05-07T10:00:00.000+00:00"
    assert data.item_ids.all_ids == list(range(12))
    assert str(data.users.all_ids[0])[8] == "-"
    assert {feature.name for feature in data.manifest.item_features} == {"title", "price", "listed"}
    assert list(data.manifest.sources) == [f"{shop.address}#events", f"{shop.address}#items"]
    order(shop, 8, 9)
    added = turret(["data", "append", shop.address, "--to", target], secrets)
    assert "60 of 90 events are new (30 were there already" in added.stdout, added.stderr
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    everything = written + "".join((done.stdout, done.stderr, added.stdout, added.stderr)).encode()
    assert SECRET.encode() not in everything
    assert quote(SECRET, safe="").encode() not in everything
    assert (
        json.loads((tmp_path / "prepared" / "manifest.json").read_text())["settings"]["source"]
        == shop.address
    )


@pytest.mark.parametrize(
    ("query", "phrase"),
    [
        ("delete from orders", "cannot execute DELETE in a read-only transaction"),
        ("create temp table own as select 1", "cannot execute CREATE TABLE AS in a read-only transaction"),
        ("set work_mem = '1GB'", "gives no rows, as it is no single select"),
        ("select nothing from orders", 'column "nothing" does not exist'),
        ("select 1; select 2", "cannot insert multiple commands"),
        ("select 1 / (n - 5) as user_id from generate_series(1, 9) as n", "division by zero"),
        ("select interval '1 day' as span", "interval"),
        (
            STOPPED.replace("advisory_lock(7)", "terminate_backend(pg_backend_pid())"),
            "terminating connection due to",
        ),
        ("select null as user_id, 1 as item_id, 'infinity'::timestamptz as time -- never;\n ; ", "null user"),
        ("select * from orders where false", "gives no rows; check its conditions"),
        ("select null as user_id, 1 as item_id, 1714557600 as time", "null user"),
    ],
)
def test_a_query_that_gives_no_log_ends_in_a_sentence(
    query: str, phrase: str, shop: PostgresServer, tmp_path: Path
) -> None:
    address = shop.address.replace("://", f"://{USER}:{quote(SECRET, safe='')}@")
    with pytest.raises(DataError) as refused:
        prepare(PrepareConfig.model_validate({"source": address, "sql": query}), tmp_path / "prepared")
    assert phrase in str(refused.value)
    assert shop.address in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_password_is_refused_and_not_shown(shop: PostgresServer, tmp_path: Path) -> None:
    address = shop.address.replace("://", f"://{USER}:wr%40ng@")
    done = turret(["data", "prepare", address, "--sql", ORDERS, "--to", str(tmp_path / "a")], environment())
    assert f"{shop.address} can't be read: " in done.stderr
    assert "password authentication failed" in done.stderr
    assert [word for word in ("wr%40ng", "wr@ng") if word in done.stderr] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_that_is_killed_while_it_reads_leaves_older_data_whole(
    number: signal.Signals, shop: PostgresServer, secrets: dict[str, str], tmp_path: Path
) -> None:
    """The same command, run again, reads all rows and leaves no file of the killed one."""
    words = [shop.address, "--sql", ORDERS, "--to", str(tmp_path / "a")]
    assert turret(["data", "prepare", *words], secrets).returncode == 0
    before = PreparedData.open(tmp_path / "a").fingerprint
    words[2] = STOPPED
    with closing(connect(shop)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"select pg_advisory_lock({LOCK})::text")
        cursor.fetchall()
        command = subprocess.Popen([*TURRET, "data", "prepare", *words, "--overwrite"], env=secrets)
        try:
            until(lambda: [*tmp_path.glob(".a.*.new/events.parts/*0.parquet")], "a batch is in a file")
        finally:
            command.send_signal(number)
            command.wait()
    data = PreparedData.open(tmp_path / "a")
    data.verify()
    assert data.fingerprint == before
    done = turret(["data", "prepare", *words, "--overwrite"], secrets)
    assert done.returncode == 0, done.stderr
    assert PreparedData.open(tmp_path / "a").manifest.counts.events == 200_000
    assert os.listdir(tmp_path) == ["a"]


def connect(server: PostgresServer) -> Any:
    """A connection that a test holds."""
    return connect_postgres(Database("postgresql", "", server.address.partition("://")[2], USER, SECRET))
