"""Users for rows without a user: the user of a later login in the session, else the session itself."""

from collections.abc import Mapping

import polars as pl

from turret.data.events.ids import IdColumn
from turret.data.moments import milliseconds_of
from turret.data.progress import counted
from turret.data.reading.tables import ROW
from turret.data.rows import Rows
from turret.data.vocabulary import STRANGER

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
