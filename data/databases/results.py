"""Results of queries: each becomes a Parquet file, which is read as any other file of a log.

A result has the name `postgresql://host/shop#events` in messages and manifests: the address without
credentials, and the role of the rows.
"""

import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars as pl

from turret.data.configuration import is_url
from turret.data.databases.addresses import Database, advice, is_database, open_database, text_of
from turret.data.databases.drivers import READERS
from turret.data.errors import (
    ConfigurationError,
    EmptyResultError,
    SourceError,
    TurretError,
    text_without_credentials,
)
from turret.data.files import temporary_folder
from turret.data.moments import FORMS, parse_moment
from turret.data.object_stores import Place, naming
from turret.data.progress import progress
from turret.data.reading.schema import PrepareConfig

_OPTIONS = {"events": "--sql", "items": "--items-sql", "users": "--users-sql"}
_SINCE = re.compile(r"(?<![:\w]):since\b")
_PASSWORD = re.compile(r"'[^']*\b(password|passwd|pwd) *=[^']*'", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
_PER_SECOND = {"ms": 10**3, "us": 10**6}  # 64 bits of nanoseconds end in the year 2262
_FIRST = "1970-01-01"  # all events have the time 1970 or later


@contextmanager
def query_results(config: PrepareConfig, target: Path) -> Iterator[tuple[PrepareConfig, dict[Place, Path]]]:
    """Yield `config` with files in place of databases, and these files by the names of their results.

    The files are in a hidden folder beside `target` that goes with the block; after a kill, the next
    command that writes `target` removes the folder. A `TurretError` of the block names the results and not
    the files. Raises ConfigurationError for a database without a query and a query without a database,
    EmptyResultError for a query without rows, and SourceError for a database that can't be read.
    """
    queries = _queries(config)
    if not queries:
        yield config, {}
        return
    with temporary_folder(target.parent / f".{target.name}.{uuid.uuid4().hex}.new") as folder:
        files = dict[Place, Path]()
        changed: dict[str, object] = {}
        for role, (database, query) in queries.items():
            file = folder / f"{role}.parquet"
            write_result(database, role, query, file)
            files[f"{database.text}#{role}"] = file
            changed["source" if role == "events" else role] = file
        if "source" in changed:
            changed["format"] = config.format.model_copy(update={"kind": "auto"})
        with naming(files):
            yield config.model_copy(update=changed), files


def _queries(config: PrepareConfig) -> dict[str, tuple[Database, str]]:
    """Return the databases and the queries of a configuration by the role of the rows."""
    queries = dict[str, tuple[Database, str]]()
    databases = set[Place]()
    for role, place, query in (
        ("events", config.source, config.sql),
        ("items", config.items, config.items_sql),
        ("users", config.users, config.users_sql),
    ):
        if query is None and is_database(place):
            raise ConfigurationError(
                f"{text_of(place)} is a database; say which {role} to read by {_OPTIONS[role]} "
                f'"select ..."{advice(str(place))}'
            )
        if query is not None:
            _refuse_password(_OPTIONS[role], query)
            database = open_database(_database_of(_OPTIONS[role], place))
            queries[role] = (database, with_since(query, config.since))
            databases.add(place or "")
    if config.since is not None and not takes_since([config.sql, config.items_sql, config.users_sql]):
        raise ConfigurationError(
            f"--since {config.since}: no query has a place for it; write :since into one, such as "
            '--sql "select ... where ordered_at >= :since"'
        )
    for place in config.urls:
        if is_database(place) and place not in databases:
            raise ConfigurationError(
                f"{text_of(place)} is a database; only the SOURCE, --items and --users can be one"
            )
    return queries


def _refuse_password(option: str, query: str) -> None:
    """Raise ConfigurationError for a query with a password in a text, such as that of `postgres_scan`."""
    if text_without_credentials(query) != query or _PASSWORD.search(query):
        raise ConfigurationError(
            f"the query of {option} has a password in it, which the data would keep; name the database "
            "itself as the SOURCE, or leave the password to PGPASSWORD or ~/.pgpass"
        )


def _database_of(option: str, place: Place | None) -> Place:
    """Return the place on which a query is run. Raises ConfigurationError and SourceError for no database."""
    if place is None:
        raise ConfigurationError(f"{option} is a query on a database; name the database as the SOURCE")
    if not is_url(str(place)) and not Path(place).exists():
        raise SourceError(f"there is no file {place}; check the path")
    if not is_database(place):
        raise ConfigurationError(
            f"{text_of(place)} is no database, so it is read without {option}; databases are SQLite and "
            "DuckDB files, postgresql://HOST/NAME and mysql://HOST/NAME; of another one, write the result of "
            "the query as CSV or Parquet and name that file"
        )
    return place


def takes_since(queries: Iterable[object]) -> bool:
    """Tell whether a query has a place for a time."""
    return any(_SINCE.search(query) for query in queries if isinstance(query, str))


def with_since(query: str, since: str | float | None) -> str:
    """Return a query with a time in place of `:since`, in UTC; without `since`, it is 1970.

    A number stays a number, in the unit of the user's column. Raises ConfigurationError for another text.
    """
    text = str(_FIRST if since is None else since).strip()
    if _NUMBER.fullmatch(text):
        return _SINCE.sub(text, query)
    moment = parse_moment(text)
    if moment is None:
        raise ConfigurationError(f"--since can't be {text!r}; {FORMS}")
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment)
    # Without an offset, which no column of texts has: the sessions of all databases are in UTC. It is rounded
    # down, as an event may be read a second time, and must not be missed.
    literal = time.strftime("%Y-%m-%d %H:%M:%S") + f".{time.microsecond // 1000:03}" * bool(time.microsecond)
    return _SINCE.sub(f"'{literal}'", query)


def write_result(database: Database, role: str, query: str, file: Path) -> None:
    """Write the result of a query as a Parquet file; memory holds a batch of rows.

    Raises EmptyResultError for no rows, and SourceError for a failing query or database.
    """
    parts, rows = file.with_suffix(".parts"), 0
    with temporary_folder(parts), _sentences(database, role), progress(f"Reading {role}") as advance:
        for number, batch in enumerate(READERS[database.kind](database, query)):
            plain(batch).write_parquet(parts / f"{number:08}.parquet")
            rows += batch.height
            advance(batch.height)
        if not rows:
            raise EmptyResultError(
                f"the query of {_OPTIONS[role]} on {database.text} gives no rows; check its conditions"
            )
        # A batch of a database that tells no types may have other types than those before it.
        frames = [pl.scan_parquet(part, glob=False) for part in sorted(parts.iterdir())]
        pl.concat(frames, how="vertical_relaxed").sink_parquet(file)


def plain(batch: pl.DataFrame) -> pl.DataFrame:
    """Return a batch with integers and floats in place of decimals and of integers of 128 bits.

    Times beyond the years 1 to 9999, such as Postgres's infinity, are null, as Python has no such times.
    """
    changed = []
    for values in batch.iter_columns():
        dtype = values.dtype
        if isinstance(dtype, pl.Decimal):
            changed.append(values.cast(pl.Float64 if dtype.scale else pl.Int64))
        elif dtype in (pl.Int128, pl.UInt128):
            changed.append(values.cast(pl.Int64))
        elif isinstance(dtype, pl.Date) or (isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns"):
            a_day = 86_400 * _PER_SECOND[dtype.time_unit] if isinstance(dtype, pl.Datetime) else 1
            number = values.to_physical().cast(pl.Int64)
            is_known = (number >= _FIRST_DAY * a_day) & (number < (_LAST_DAY + 1) * a_day)
            changed.append(values.set(~is_known, None))
    return batch.with_columns(changed)


@contextmanager
def _sentences(database: Database, role: str) -> Iterator[None]:
    """Raise SourceError for an error of a driver, without the password."""
    query = f"the query of {_OPTIONS[role]}"
    try:
        yield
    except EmptyResultError:
        raise
    except SourceError as error:  # one of the drivers' module, about the query
        raise SourceError(f"{query} can't be read: {error} ({database.text})") from None
    except TurretError:
        raise
    except Exception as error:  # each driver has errors of its own
        raise SourceError(
            f"{database.text} can't be read: {_reason(error, database.password)}; check {query}, the address "
            "and the credentials (docs/data.md, Databases)"
        ) from None


def _reason(error: Exception, password: str | None) -> str:
    """Return the first lines of a driver's error in one line, without the password."""
    # Drivers add the query, or options of theirs.
    number, *message = error.args if len(error.args) == 2 else (None, error)  # MySQL numbers its errors
    text = str(message[0] if isinstance(number, int) else error) or type(error).__name__
    text = re.split(r"\n\s*\n|\nLINE \d|Query was:| Hint: ", text)[0]
    text = " ".join(re.sub(r"\.? SQLSTATE: \w+|^.*(?:ERROR|FATAL): ", "", text).split()).rstrip(".;")
    return text_without_credentials(text.replace(password, "***") if password else text)
