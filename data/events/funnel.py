"""A table of kinds for a log with a funnel, such as views, carts and purchases, proposed from its events."""

import json
import math
import re
import shlex

import polars as pl

from turret.data.events.log import VERDICT, Log
from turret.data.kinds import Kind, KindTable, text_of_kind
from turret.data.reading.tables import ROW, readable

_NEGATIVE = re.compile(
    "return|refund|cancel|dislike|unlike|downvote|thumbs.?down|remove|reject|skip|hide|block", re.IGNORECASE
)
_MOST_KINDS, _RARE, _FOLLOWS, _SELDOM = 10, 0.25, 0.5, 0.05
_FIRST, _SAMPLE = 10_000, 1_000_000  # events
_KIND = "__name"


def propose_kinds(log: Log) -> tuple[KindTable, str]:
    """Return a table for the kinds of a log, empty without a funnel, and sentences about it.

    A funnel has two to ten kinds. One kind is rare, at most a quarter of the events, and most of its events
    follow an event of another kind of the same user and item: this kind is the target, or the latest of
    several such kinds. The target consumes where hardly anybody chooses an item twice. Kinds that are called
    like a return or a dislike are negatives, the others signals. Large logs are judged by a sample of their
    users.
    """
    (source,) = log.sources
    column = source.names["raw_kind"]
    none = f"kinds: the events of column {column!r} are no funnel, so all events are alike"
    name = pl.col("raw_kind").cast(pl.String).str.strip_chars().alias(_KIND)
    names = source.rows.then(lambda frame: frame.select(name).drop_nulls().filter(pl.col(_KIND) != ""))
    with readable(log.path):
        if names.first(_FIRST, lambda frame: frame)[_KIND].n_unique() > _MOST_KINDS:
            return {}, none
        counts = names.collect(lambda frame: frame.group_by(_KIND).len()).group_by(_KIND).sum()
        sizes = dict(counts.sort("len", _KIND, descending=[True, False]).iter_rows())
        total = sum(sizes.values())
        chosen = [kind for kind in sizes if not _NEGATIVE.search(kind)]
        if not 2 <= len(chosen) <= len(sizes) <= _MOST_KINDS:
            return {}, none
        is_sampled = pl.col("user").hash() % math.ceil(total / _SAMPLE) == 0
        sample = source.rows.collect(
            lambda frame: frame.filter(pl.col(VERDICT).is_null() & is_sampled).select(
                "user", "item", "time", ROW, name
            )
        )
    figures = _figures(sample.filter(pl.col(_KIND).is_in(chosen)))
    late = [
        kind for kind in chosen if sizes[kind] <= _RARE * total and figures.get(kind, (0.0,))[0] >= _FOLLOWS
    ]
    if not late:
        return {}, none
    target = max(late, key=lambda kind: figures[kind][2])
    follows, again, _ = figures[target]
    roles = {kind: Kind(role="signal" if kind in chosen else "negative") for kind in sizes}
    numbers = ", ".join(f"{kind} ({count:,})" for kind, count in sizes.items())
    return roles | {target: Kind(consume=again < _SELDOM)}, (
        f"kinds: column {column!r} has a funnel of {numbers}: of the events {target!r} {follows:.0%} follow "
        f"another kind of their user and item, and {again:.0%} repeat an earlier one"
    )


def _figures(sample: pl.DataFrame) -> dict[str, tuple[float, float, float]]:
    """Return for each kind three figures over the events of the same user and item.

    The figures are the share of the kind's events that follow another kind, the share that repeat the kind,
    and the mean number of kinds that come before it.
    """
    pair = ("user", "item")
    events = sample.sort(*pair, "time", ROW).with_columns(
        (pl.col(_KIND).first().over(pair) != pl.col(_KIND)).alias("follows"),
        (pl.int_range(pl.len()).over(*pair, _KIND) > 0).alias("again"),
    )
    shares = events.group_by(_KIND).agg(pl.col("follows", "again").mean())
    firsts = events.unique([*pair, _KIND], keep="first", maintain_order=True)
    depths = firsts.with_columns(pl.int_range(pl.len()).over(pair).alias("before"))
    joined = shares.join(depths.group_by(_KIND).agg(pl.col("before").mean()), on=_KIND)
    return {kind: (follows, again, before) for kind, follows, again, before in joined.iter_rows()}


def shown_table(column: str, table: KindTable) -> str:
    """Return a table of kinds as options, and as TOML."""
    texts = {name: text_of_kind(kind) for name, kind in table.items()}
    options = [f"--kind-column {shlex.quote(column)}"]
    options += [f"--kind {shlex.quote(f'{name}={text}')}" for name, text in texts.items()]
    lines = [f"{_key(name)} = {json.dumps(text)}" for name, text in texts.items()]
    toml = "\n".join(["[columns]", f"kind = {json.dumps(column)}", "", "[kinds]", *lines])
    return f"  {' '.join(options)}\n\n{toml}\n"


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
