"""The logs of `benchmarks.first_week`, and the options of `turret data prepare` for each."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from benchmarks.messy_shop import ORDERS, PRODUCTS, Shop, write_shop

_SHOP_COLUMNS = ("--user", "customer", "--item", "sku", "--time", "ordered_at", "--on-bad", "drop")
_GLOBO_DAYS = 2


@dataclass(frozen=True)
class WeekSet:
    """A log as a user has it.

    Attributes:
        name: of the set in the result.
        protocol: one sentence on the log; the split is each user's last event, unless it says otherwise.
        source: from the folder of the data sets and a scratch folder, the arguments of `turret data prepare`.
    """

    name: str
    protocol: str
    source: Callable[[Path, Path], list[str]]


def _messy_shop(_: Path, scratch: Path) -> list[str]:
    return _shop(scratch, Shop())


def _shop(scratch: Path, shop: Shop) -> list[str]:
    write_shop(scratch, shop)
    return [str(scratch / ORDERS), "--items", str(scratch / PRODUCTS), *_SHOP_COLUMNS]


def _online_retail(data: Path, _: Path) -> list[str]:
    folder = data / "online-retail"
    return [str(folder), "--quantity", "quantity", "--on-bad", "drop"]


def _movielens(data: Path, _: Path) -> list[str]:
    return [str(data / "ml-100k" / "original")]


def _globo(data: Path, scratch: Path) -> list[str]:
    clicks = pl.scan_parquet(data / "globo" / "clicks.parquet")
    # The newest complete day and the clicks after it, of which there are few.
    first = datetime(2017, 10, 16, tzinfo=UTC)
    begin, end = (1000 * int(at.timestamp()) for at in (first, first + timedelta(days=_GLOBO_DAYS)))
    wanted = pl.col("timestamp_ms").is_between(begin, end, closed="left")
    path = scratch / "clicks.parquet"
    scratch.mkdir(parents=True, exist_ok=True)
    clicks.filter(wanted).sink_parquet(path)
    return [str(path), "--user", "user_id", "--item", "item_id", "--time", "timestamp_ms", "--on-bad", "drop"]


SETS = {
    one.name: one
    for one in (
        WeekSet("messy_shop", "a generated shop, tastes for categories without an order", _messy_shop),
        WeekSet(
            "online-retail",
            "a year of a wholesaler of gifts; lines without a customer and returns are left out",
            _online_retail,
        ),
        WeekSet(
            "ml-100k",
            "MovieLens 100K as GroupLens ships it, with genres, years and attributes of users",
            _movielens,
        ),
        WeekSet("globo", f"clicks on news, of {_GLOBO_DAYS} days from 2017-10-16 on", _globo),
    )
}
QUICK = WeekSet(
    "small_shop", "the generated shop, small", lambda _, scratch: _shop(scratch, Shop(600, 200, 12, 10))
)
