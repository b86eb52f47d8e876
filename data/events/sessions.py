"""Sessions: the users of rows without a user, and the numbers of the sessions of each user."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from turret.data.events.event_arrays import Events
from turret.data.events.ids import IdColumn
from turret.data.moments import milliseconds_of
from turret.data.progress import counted
from turret.data.ranges import stable_order
from turret.data.reading.tables import ROW
from turret.data.rows import Rows
from turret.data.vocabulary import STRANGER

NO_SESSION = -1
_USER, _SESSION, _NUMBER, _NAME, _SOURCE = "__user", "__session", "__number", "__name", "__source"


def with_strangers(
    sources: Sequence[tuple[Rows, Mapping[str, IdColumn], pl.Expr]], part: str, gap: str | None
) -> tuple[list[Rows], str]:
    """Give each row of a session without a user a user, as text in `raw_user`, and describe these rows.

    `sources` are the rows of each source with sessions, their id columns, and the time of a row. The same id
    is the same session in all sources. ROW and the column `part` identify a row of a source. A row without a
    user gets the next user who logs in during its session, else the last user who did, else `session:ID`.
    After a pause of more than `gap`, an id stands for another session, `session:ID#2` and so on. Memory holds
    all rows of the sessions that have a row without a user.
    """
    users = [_user(ids) for _, ids, _ in sources]
    clicks = [
        _clicks(rows, part, user, id_text(ids["raw_session"]), time)
        for (rows, ids, time), user in zip(sources, users, strict=True)
    ]
    is_strange = pl.col(_USER).is_null()
    strange = pl.concat(
        rows.collect(lambda frame: frame.filter(is_strange).select(pl.col(_SESSION).unique()))
        for rows in clicks
    ).unique()
    session_rows = pl.concat(
        rows.collect(lambda frame: frame.join(strange.lazy(), on=_SESSION, how="semi")).with_columns(
            pl.lit(number, pl.Int32).alias(_SOURCE)
        )
        for number, rows in enumerate(clicks)
    )
    session_rows = session_rows.sort(_SESSION, "time", _SOURCE, part, ROW, nulls_last=True)
    is_new = pl.lit(False)
    if gap is not None:
        is_new = pl.col("time").diff().over(_SESSION) > milliseconds_of(gap)
    session_rows = session_rows.with_columns(is_new.fill_null(False).cum_sum().over(_SESSION).alias(_NUMBER))
    # The same rule as in the service: at login, a session's events move to the user.
    known = pl.coalesce(pl.col(_USER).backward_fill(), pl.col(_USER).forward_fill()).over(_SESSION, _NUMBER)
    number = pl.when(pl.col(_NUMBER) > 0).then(pl.format("#{}", pl.col(_NUMBER) + 1)).otherwise(pl.lit(""))
    stranger = pl.concat_str(pl.lit(STRANGER), _SESSION, number)
    named = session_rows.with_columns(known.alias(_USER), pl.col(_USER).is_null().alias("__is_missing"))
    named = named.filter("__is_missing").with_columns(pl.coalesce(_USER, stranger).alias(_NAME))
    joined = [
        _joined(rows, part, user, named.filter(pl.col(_SOURCE) == number).select(ROW, part, _NAME))
        for number, ((rows, _, _), user) in enumerate(zip(sources, users, strict=True))
    ]
    return joined, _sentence(named)


def id_text(column: IdColumn) -> pl.Expr:
    """Return ids as text, null where a column has no type."""
    return pl.lit(None, pl.String) if column.dtype == pl.Null else column.key().cast(pl.String)


def _user(ids: Mapping[str, IdColumn]) -> pl.Expr:
    """Return the user of a row as text; a log without users names its sessions twice."""
    if ids["raw_user"].name == ids["raw_session"].name:
        return pl.lit(None, pl.String)
    return id_text(ids["raw_user"])


def _clicks(rows: Rows, part: str, user: pl.Expr, session: pl.Expr, time: pl.Expr) -> Rows:
    """Return the user, the session and the time of each row with a session."""
    moment = time.cast(pl.Float64).alias("time")
    columns = [ROW, part, user.alias(_USER), session.alias(_SESSION), moment]
    return rows.then(lambda frame: frame.select(columns).drop_nulls(_SESSION))


def _joined(rows: Rows, part: str, user: pl.Expr, names: pl.DataFrame) -> Rows:
    """Return the rows with a user for those in `names`."""
    return rows.then(
        lambda frame: (
            frame.join(names.lazy(), on=[ROW, part], how="left", nulls_equal=True, maintain_order="left")
            .with_columns(pl.coalesce(user, _NAME).alias("raw_user"))
            .drop(_NAME)
        )
    )


def _sentence(named: pl.DataFrame) -> str:
    """Say how many rows without a user are of strangers, and of users who log in."""
    strangers = named.filter(pl.col(_USER).is_null())
    people = counted(strangers[_NAME].n_unique(), "stranger")
    return (
        f"sessions: of {counted(len(named), 'event')} without a user {len(strangers):,} are of {people} "
        f"(users {STRANGER}...), and {len(named) - len(strangers):,} of users who log in during their session"
    )


def hashed(session: pl.Expr) -> pl.Expr:
    """Return a non-negative Int64 of the id of a session, or NO_SESSION: equal ids have equal numbers."""
    number = (session.hash() // 2).cast(pl.Int64)
    return pl.when(session.is_null()).then(pl.lit(NO_SESSION, pl.Int64)).otherwise(number)  # null has a hash


def numbered(events: Events, gap: str | None) -> Events:
    """Number the sessions of sorted events of whole users, in place of the hashes of their ids.

    The sessions of a user are 0, 1, ... in the order of their first events, so that the numbers of a log do
    not depend on the hash; negatives have none. After a pause of more than `gap`, an id stands for another
    session.
    """
    assert events.sessions is not None
    are_events = np.ones(len(events)) if events.labels is None else events.labels == 1
    has_session = np.flatnonzero((events.sessions != NO_SESSION) & (are_events > 0))
    users, sessions, times = (values[has_session] for values in (events.users, events.sessions, events.times))
    order = stable_order([users, sessions])  # stable: the events of a session stay in order of time
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = (np.diff(users[order]) != 0) | (np.diff(sessions[order]) != 0)
    if gap is not None:
        is_new[1:] |= np.diff(times[order]) > milliseconds_of(gap)
    firsts = order[is_new]
    by_first = np.argsort(firsts)
    owners = users[firsts[by_first]]
    numbers = np.empty(len(firsts), dtype=np.int32)
    numbers[by_first] = np.arange(len(firsts)) - np.searchsorted(owners, owners)
    result = np.full(len(events), NO_SESSION, dtype=np.int32)
    result[has_session[order]] = numbers[np.cumsum(is_new) - 1]
    return replace(events, sessions=result)
