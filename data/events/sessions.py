"""Sessions: the users of rows without a user, and the numbers of the sessions of each user."""

from collections.abc import Mapping
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
_USER, _SESSION, _NUMBER, _NAME = "__user", "__session", "__number", "__name"


def with_strangers(
    raw: Rows, part: str, ids: Mapping[str, IdColumn], time: pl.Expr, gap: str | None
) -> tuple[Rows, str]:
    """Give each row of a session without a user a user, as text in `raw_user`, and describe these rows.

    ROW and the column `part` identify a row. A row without a user gets the next user who logs in during its
    session, else the last user who did, else `session:ID`. After a pause of more than `gap`, an id stands for
    another session, `session:ID#2` and so on. Memory holds all rows of the sessions that have a row without a
    user.
    """
    user, session = (
        pl.lit(None, pl.String) if ids[name].dtype == pl.Null else ids[name].text()
        for name in ("raw_user", "raw_session")
    )
    if ids["raw_user"].name == ids["raw_session"].name:  # a log without users names the sessions twice
        user = pl.lit(None, pl.String)
    moment = time.cast(pl.Float64).alias("time")
    rows = raw.then(
        lambda frame: frame.select(ROW, part, user.alias(_USER), session.alias(_SESSION), moment).drop_nulls(
            _SESSION
        )
    )
    is_strange = pl.col(_USER).is_null()
    strange = rows.collect(lambda frame: frame.filter(is_strange).select(pl.col(_SESSION).unique())).unique()
    session_rows = rows.collect(lambda frame: frame.join(strange.lazy(), on=_SESSION, how="semi"))
    session_rows = session_rows.sort(_SESSION, "time", part, ROW, nulls_last=True)
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
    names = named.select(ROW, part, _NAME)
    joined = raw.then(
        lambda frame: (
            frame.join(names.lazy(), on=[ROW, part], how="left", nulls_equal=True, maintain_order="left")
            .with_columns(pl.coalesce(user, _NAME).alias("raw_user"))
            .drop(_NAME)
        )
    )
    return joined, _sentence(named)


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
