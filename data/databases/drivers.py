"""The result of a query in batches, by the driver of each kind of database; a query can't change anything."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

import polars as pl

from turret.data.databases.addresses import Database
from turret.data.errors import ConfigurationError, MissingExtraError, SourceError
from turret.data.extras import install_command

PIECE = 1 << 17  # rows of a batch
_CONNECT_SECONDS = 10
_NO_SELECT = "it gives no rows, as it is no single select"
_UUID = r"^(.{8})(.{4})(.{4})(.{4})(.{12})$"


Reader = Callable[[Database, str], Iterator[pl.DataFrame]]
"""Yields the result of a query in batches, at least one, which may have no rows."""


def _driver(name: str, database: Database) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"{database.text} needs a driver that is not installed; run: {install_command('sql')}"
        ) from None


def _columns(names: Sequence[str]) -> list[str]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if not names:
        raise SourceError(_NO_SELECT)
    if repeated:
        raise SourceError(f"it has two columns {repeated[0]!r}; give one another name by AS")
    return [*names]


def _row_batches(cursor: Any) -> Iterator[pl.DataFrame]:
    """Yield the rows of a cursor of Python's database interface; a batch infers its types from all rows."""
    columns = _columns([column[0] for column in cursor.description or ()])
    is_first = True
    while (rows := cursor.fetchmany(PIECE)) or is_first:
        is_first = False
        # SQLite has texts in columns of integers; such a column is one of texts.
        yield pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None, strict=False)


def read_sqlite(database: Database, query: str) -> Iterator[pl.DataFrame]:
    """Yield the result of a query on a SQLite file."""
    uri = f"file:{quote(str(Path(database.place).absolute()))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        yield from _row_batches(connection.execute(query))


def read_duckdb(database: Database, query: str) -> Iterator[pl.DataFrame]:
    """Yield the result of a query on a DuckDB file."""
    duckdb = _driver("duckdb", database)
    with closing(duckdb.connect(database.place, read_only=True)) as connection:
        connection.execute("set timezone = 'UTC'")
        # A read-only database still writes files by COPY, and of several statements only the last is read.
        kinds = [statement.type for statement in connection.extract_statements(query)]
        if kinds != [duckdb.StatementType.SELECT]:
            raise SourceError(_NO_SELECT)
        result = connection.sql(query)
        _columns(result.columns)
        yield from _arrow_batches(result.to_arrow_reader(PIECE))


def read_postgres(database: Database, query: str) -> Iterator[pl.DataFrame]:
    """Yield the result of a query on a Postgres server, which sends it by a binary COPY."""
    with closing(connect_postgres(database)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("set transaction read only")
        cursor.execute("set local timezone = 'UTC'")
        # The driver puts the query in parentheses, behind which a semicolon is an error, and a comment at the
        # end would take the second one.
        cursor.execute(query.rstrip("; \n\t") + "\n")
        _columns([column[0] for column in cursor.description or ()])
        yield from _arrow_batches(cursor.fetch_record_batch())


def connect_postgres(database: Database) -> Any:
    """Return a connection to a Postgres server.

    libpq itself looks up a password that the address lacks: PGPASSWORD, PGPASSFILE, ~/.pgpass.
    """
    host = database.place.partition("?")[0]
    parameters = {"connect_timeout": str(_CONNECT_SECONDS)} | database.parameters
    # Characters of the password that no URL may hold are encoded.
    secret = "" if database.password is None else f":{quote(database.password, safe='')}"
    user = "" if database.user is None else f"{quote(database.user, safe='')}{secret}@"
    uri = f"postgresql://{user}{host}?{urlencode(parameters, quote_via=quote)}"
    return _driver("adbc_driver_postgresql.dbapi", database).connect(uri)


def read_mysql(database: Database, query: str) -> Iterator[pl.DataFrame]:
    """Yield the result of a query on a MySQL or MariaDB server.

    The section [client] of ~/.my.cnf has the parts that the address lacks. Times are those of UTC.
    """
    driver = _driver("pymysql", database)
    hosts, _, name = database.place.partition("?")[0].partition("/")
    host, _, port = hosts.partition(":")
    known = {"unix_socket", "charset", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity"}
    if unknown := sorted(database.parameters.keys() - known):
        raise ConfigurationError(
            f"{database.text}: there is no parameter {unknown[0]!r}; known are {', '.join(sorted(known))}"
        )
    options = {"user": database.user, "password": database.password, "host": host, "database": unquote(name)}
    options = {option: value for option, value in (options | database.parameters).items() if value}
    configuration = Path("~/.my.cnf").expanduser()
    if configuration.is_file():
        options["read_default_file"] = str(configuration)
    connected = driver.connect(
        **options,
        port=int(port or 0),
        connect_timeout=_CONNECT_SECONDS,
        cursorclass=import_module("pymysql.cursors").SSCursor,  # reads the rows as they arrive
    )
    with closing(connected) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("set time_zone = '+00:00'")
        cursor.execute("set session transaction read only")
        cursor.execute(query)
        yield from _row_batches(cursor)


def _arrow_batches(batches: Any) -> Iterator[pl.DataFrame]:
    """Yield the batches of a reader of Arrow, and one without rows if it has none."""
    is_empty = True
    for batch in batches:
        is_empty = False
        yield _frame(batch)
    if is_empty:
        yield _frame(batches.schema.empty_table())


def _frame(batch: Any) -> pl.DataFrame:
    """Return a batch with the types of Polars; UUIDs become texts, and Postgres's numeric becomes numbers."""
    columns = {}
    for place, name in enumerate(batch.schema.names):
        column, dtype = batch.column(place), batch.schema.field(place).type
        extension = getattr(dtype, "extension_name", None)
        if extension is not None:
            column = column.cast(dtype.storage_type)
        columns[name] = values = pl.Series(name, column)
        if extension == "arrow.uuid":
            parts = values.bin.encode("hex").str.replace(_UUID, "$1-$2-$3-$4-$5")
            columns[name] = parts
        elif getattr(dtype, "type_name", None) == "numeric":
            columns[name] = _numbers(values)
    return pl.DataFrame(columns)


def _numbers(texts: pl.Series) -> pl.Series:
    """Return numbers without a stated precision as integers if all are, else as floats."""
    integers = texts.cast(pl.Int64, strict=False)
    return integers if integers.null_count() == texts.null_count() else texts.cast(pl.Float64)


READERS: dict[str, Reader] = {
    "sqlite": read_sqlite,
    "duckdb": read_duckdb,
    "postgresql": read_postgres,
    "mysql": read_mysql,
}
