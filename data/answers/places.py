"""The place and the propensity of each event that names an answer, from the answer log."""

import polars as pl

from turret.data.answers.log import damage_told
from turret.data.rows import Rows

ANSWER_ID = "answer_id"
"""The column of the ids of answers in a log of events, as `turret history dump` writes it."""
RAW = "raw_answer"
PLACE, PROPENSITY = "place", "propensity"
_ITEM = "__item"


def shown_items(answers: pl.LazyFrame) -> pl.LazyFrame:
    """Return a row for each item of the answers: ANSWER_ID, `item`, PLACE and PROPENSITY.

    An answer that is in the log twice, as of a file that was written twice, counts once.
    """
    lists = {"item": "items", PLACE: "places", PROPENSITY: "propensities"}
    columns = (pl.col(column).alias(name) for name, column in lists.items())
    distinct = answers.unique(ANSWER_ID, keep="any").select(ANSWER_ID, *columns)
    return distinct.explode(*lists).filter(pl.col("item").is_not_null())


def with_places(rows: Rows, answers: pl.LazyFrame) -> Rows:
    """Add PLACE and PROPENSITY to rows with RAW and `item`; null for no such answer, or one without the item.

    Memory holds the items of the answers that rows name. Raises SourceError for a damaged log.
    """
    answer, item = pl.col(RAW).cast(pl.String), pl.col("item").cast(pl.String)
    ids = rows.collect(lambda frame: frame.select(answer.alias(ANSWER_ID)).unique()).unique().lazy()
    named = shown_items(answers.join(ids, on=ANSWER_ID, how="semi"))
    with damage_told("of --answers"):
        places = named.rename({ANSWER_ID: RAW, "item": _ITEM}).collect()

    def joined(frame: pl.LazyFrame) -> pl.LazyFrame:
        keys = frame.with_columns(answer.alias(RAW), item.alias(_ITEM))
        return keys.join(places.lazy(), on=[RAW, _ITEM], how="left", maintain_order="left").drop(_ITEM)

    return rows.then(joined)
