"""Addresses of databases: kinds, credentials, and the credentials that the environment has."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from turret.data.configuration import Place, is_url
from turret.data.errors import ConfigurationError, SourceError, address_parts, without_credentials

VARIABLE = "TURRET_DATABASE"
"""Names addresses with passwords, with blanks between; the variable VARIABLE_FILE names a file of them."""
_KINDS = {"sqlite": "sqlite", "duckdb": "duckdb", "postgresql": "postgresql", "postgres": "postgresql"}
_KINDS |= {"mysql": "mysql", "mariadb": "mysql"}
_DUMPS = {
    "redshift": "UNLOAD ('select ...') TO 's3://BUCKET/events/' FORMAT PARQUET",
    "snowflake": "COPY INTO @STAGE/events/ FROM (select ...) FILE_FORMAT = (TYPE = PARQUET) HEADER = TRUE",
    "bigquery": "EXPORT DATA OPTIONS (uri = 'gs://BUCKET/*.parquet', format = 'PARQUET') AS select ...",
    "clickhouse": "select ... INTO OUTFILE 'events.parquet' FORMAT Parquet",
    "mssql": 'sqlcmd -Q "select ..." -s , -W -o events.csv',
    "oracle": "SET SQLFORMAT csv and SPOOL events.csv of SQLcl",
    "mongodb": "mongoexport --type=csv --fields=... --out=events.csv",
    "trino": 'trino --execute "select ..." --output-format CSV_HEADER > events.csv',
}
"""How other databases write the result of a query as a file."""
_MAGIC = 20  # bytes; SQLite's mark is at the beginning of a file, DuckDB's at the byte 8


@dataclass(frozen=True)
class Database:
    """The address of a database.

    `text` is the address without credentials, for messages and manifests. `place` is the path of a file, or
    hosts, name and parameters as in a URL; user and password are decoded.
    """

    kind: str
    text: str
    place: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters behind the question mark."""
        return dict(parse_qsl(self.place.partition("?")[2], keep_blank_values=True))


def is_database(place: Place | None) -> bool:
    """Tell whether a place is a database: by the scheme of an address, or the first bytes of a file."""
    if isinstance(place, str):
        return _scheme(place) in _KINDS | _DUMPS
    return place is not None and _kind_of_file(place) is not None


def _scheme(address: str) -> str:
    # SQLAlchemy writes postgresql+psycopg://
    return address.partition("://")[0].lower().partition("+")[0]


def _kind_of_file(path: Path) -> str | None:
    try:
        if not path.is_file():  # a pipe can be read only once
            return None
        with path.open("rb") as file:
            head = file.read(_MAGIC)
    except OSError:  # the reader of files describes it
        return None
    if head.startswith(b"SQLite format 3\0"):
        return "sqlite"
    return "duckdb" if head[8:12] == b"DUCK" else None


def text_of(place: Place | None) -> str:
    """Return a place without credentials, however its password is written."""
    scheme, is_address, rest = str(place).partition("://")
    return without_credentials(f"{scheme}://{rest.rpartition('@')[2]}") if is_address else str(place)


def advice(address: str) -> str:
    """Return how the database of an address without a reader writes a file; empty for one with a reader."""
    scheme = _scheme(address)
    if not is_url(address) or scheme in _KINDS:
        return ""
    return f"; but {_dump(scheme)}"


def _dump(scheme: str) -> str:
    kinds = ", ".join(dict.fromkeys(_KINDS.values()))
    return f"{scheme}:// is none of {kinds}; write a file and name it as the SOURCE: {_DUMPS[scheme]}"


def open_database(place: Place) -> Database:
    """Return the database of a place, with the credentials that the environment has for its address.

    Raises SourceError for a kind of database that is not read, and ConfigurationError for a password among
    the parameters and for an unreadable file of addresses.
    """
    if not is_url(str(place)):
        return Database(str(_kind_of_file(Path(place))), str(place), str(place))
    address = str(place)
    scheme = _scheme(address)
    if scheme not in _KINDS:
        raise SourceError(f"{text_of(place)} can't be read: {_dump(scheme)}")
    database = _database(address)
    if database.password is None:
        others = [_database(other) for other in _addresses().split() if _scheme(other) in _KINDS]
        for other in others:
            is_same = (other.kind, other.place) == (database.kind, database.place)
            if is_same and database.user in (None, other.user):
                return other
    return database


def _database(address: str) -> Database:
    _, credentials, place = address_parts(address)
    kind, text = _KINDS[_scheme(address)], without_credentials(address)
    if re.search(r'[\s"]', address) or "@" in text:
        raise ConfigurationError(
            f"{text_of(address)}: write %40 for @, %2F for /, %20 for a blank and %22 for a quote in it"
        )
    if re.search(r"[?&](password|passwd|pwd)=", place, re.IGNORECASE):
        raise ConfigurationError(
            f"{text} has a password among its parameters; write it before the host, as USER:PASSWORD@HOST, "
            f"or into {VARIABLE}"
        )
    if kind in ("sqlite", "duckdb"):
        return Database(kind, text, place.removeprefix("/"))
    user, has_password, password = credentials.partition(":")
    return Database(kind, text, place, unquote(user) or None, unquote(password) if has_password else None)


def _addresses() -> str:
    """Return the addresses of the environment, with blanks between."""
    addresses, file = os.environ.get(VARIABLE, ""), os.environ.get(f"{VARIABLE}_FILE")
    if file is None:
        return addresses
    try:
        return f"{addresses} {Path(file).read_text('utf-8')}"
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(
            f"{VARIABLE}_FILE = {file} can't be read: {reason}; it holds addresses such as "
            "postgresql://[[USER]:PASSWORD@]HOST/NAME"
        ) from None
