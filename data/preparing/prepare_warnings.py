"""The warnings of `prepare`: choices that it made, and surprising properties of a log."""

from collections.abc import Iterator

import polars as pl

from turret.data.events.dropped_rows import names_of
from turret.data.preparing.ingest import IngestedSource
from turret.data.preparing.repeats import Repeats
from turret.data.reading.tables import Table, readable

_QUANTITY = "quantity"


def prepare_warnings(ingested: IngestedSource, repeats: Repeats) -> Iterator[str]:
    """Yield one sentence per warning."""
    yield f"time: {ingested.log.time.note}"
    for _, table in ingested.source.parts:
        if len(table.files) > 1:
            first, *_, last = (file.relative_to(table.path).as_posix() for file in table.files)
            yield f"{table.path}: {len(table.files):,} parts by the numbers in their names, {first} to {last}"
    if ingested.source.unread:
        yield f"not read: {names_of(ingested.source.unread)}"
    if _has_unused_returns(ingested):
        yield (
            f"column {_QUANTITY!r} holds values of zero and below and is not used; "
            f"--quantity {_QUANTITY} drops such rows as returns"
        )
    if repeats.repeated_targets:
        yield (
            f"{repeats.share:.1%} of the events repeat an item of their user, and "
            f"{repeats.repeated_targets:,} of {repeats.targets:,} test targets were used before; evaluation "
            "and the service leave out used items by default, so these can't be hit: if users come back for "
            "the same items, train with --set evaluation.exclude_seen=false, else prepare with "
            "--duplicates first, which keeps only first uses"
        )


def _has_unused_returns(ingested: IngestedSource) -> bool:
    if ingested.columns.quantity is not None or ingested.columns.weight is not None:
        return False
    return any(_holds_returns(table) for _, table in ingested.source.parts)


def _holds_returns(table: Table) -> bool:
    with readable(table.path):
        dtype = table.frame.collect_schema().get(_QUANTITY, pl.Null())
        if not (dtype.is_numeric() or dtype == pl.String):
            return False
        quantity = pl.col(_QUANTITY).cast(pl.Float64, strict=False)
        returns = table.frame.filter(quantity <= 0).select(_QUANTITY).head(1).collect(engine="streaming")
    return not returns.is_empty()
