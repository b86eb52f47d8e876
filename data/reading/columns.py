"""The roles of columns: as named, or by their usual names."""

from collections.abc import Sequence
from typing import Literal

from turret.data.errors import ColumnError
from turret.data.manifest import Columns
from turret.data.reading.source_settings import ColumnSettings

Role = Literal["user", "item"]
FeaturesOf = Role | Literal["context"]

_NAMES = {
    "user": "user_id userId userid user customer_id customerId CustomerID visitor_id session_id",
    "item": "item_id itemId itemid item movie_id movieId product_id productId StockCode",
    "time": "timestamp timestamp_ms time datetime date created_at InvoiceDate pos position",
}
KINDS = ("event_type", "event", "kind", "action", "behavior", "behavior_type", "interaction")
"""Usual names of a column of kinds, which is looked for where kinds are wanted."""
ANSWER = "answer_id"
"""The usual name of a column with ids of answers, as `turret history dump` writes it."""
USUAL = {role: names.split() for role, names in _NAMES.items()}
"""Usual names of the columns of each role."""
ONE_ROW_AN_EVENT = "write one row for each event, that is, explode lists and flatten records into columns"
"""The remedy for a row that has several events."""


def choose_columns(settings: ColumnSettings, existing: Sequence[str], where: str, hint: str = "") -> Columns:
    """Choose the columns of the events: the named ones, or the first existing common name of each role.

    `where` is the file, for messages, which end with `hint`. Raises ColumnError when a named column does not
    exist, when a user, item or time column is neither named nor found, and when one column has two of these
    roles. A log with sessions needs no user column: all its events are strangers'.
    """
    session, time = settings.session, None
    usual = [name for name in USUAL["user"] if name != session]
    others = ("weight", "quantity", "kind", "label", "negatives", "session", "answer")
    named = {role: name for role in others if (name := getattr(settings, role)) is not None}
    try:
        if session is not None and settings.user is None and not {*usual} & {*existing}:
            user = require(session, existing, where, "session (--session)")
        else:
            user = choose("user", settings.user, usual, existing, where)
        item = choose("item", settings.item, USUAL["item"], existing, where)
        if not settings.in_file_order:
            time = choose("time", settings.time, USUAL["time"], existing, where)
        if len({user, item, time}) < 3:
            raise ColumnError(
                f"the user ({user}), item ({item}) and time ({time}) of {where} have to be different "
                "columns; name them with --user, --item and --time"
            )
        optional = {role: require(name, existing, where, role) for role, name in named.items()}
    except ColumnError as error:
        raise ColumnError(f"{error}{hint}") from None
    return Columns(user=user, item=item, time=time, **optional)


def choose(
    role: str,
    named: str | None,
    usual: Sequence[str],
    existing: Sequence[str],
    where: str,
    option: str | None = None,
) -> str:
    """Choose one column: as named, or the first of the usual names that exists.

    `option` is called like the role unless it is given. Raises ColumnError as `require` does, and if no usual
    name exists.
    """
    if named is not None:
        return require(named, existing, where, f"{role} (--{option or role})")
    column = next((name for name in usual if name in existing), None)
    if column is None:
        remedy = f"name it with --{option or role}, or "
        remedy += (
            "give --in-file-order if the rows of every user are in order"
            if role == "time"
            else "join the file that has it"
        )
        raise ColumnError(
            f"{where} has none of the usual columns for the {role}; {_listed(existing)}: {remedy}"
        )
    return column


def require(name: str, existing: Sequence[str], where: str, role: str) -> str:
    """Return `name`. Raises ColumnError when the columns lack it."""
    if name not in existing:
        record = name.partition(".")[0]
        nested = f"; if {record!r} holds records, flatten them into columns" * (record in existing)
        raise ColumnError(f"{where} has no column {name!r} for the {role}; {_listed(existing)}{nested}")
    return name


def _listed(names: Sequence[str]) -> str:
    # Blanks around a name, signs without width and commas are only visible in quotes.
    plain = {name for name in names if name.isprintable() and name == name.strip() and "," not in name}
    shown = ", ".join(name if name in plain else repr(name) for name in names)
    return f"its columns are {shown}" if names else "it has no columns"
