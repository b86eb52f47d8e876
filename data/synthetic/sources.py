"""The log of the messy shop as a web log and a file of orders, as the systems of a shop write them."""

from pathlib import Path

import numpy as np
import polars as pl

FILES = ("web.jsonl", "orders.csv", "sources.toml")
SETTINGS = """\
[[sources]]
name = "web"
columns = { time = "ts", session = "session_id", kind = "event" }

[[sources]]
name = "orders"
kinds = { shipped = "purchase", delivered = "purchase", refunded = "return" }

[sources.columns]
user = "customer"
session = "session"
item = "sku"
quantity = "quantity"
kind = "state"
time = "ordered_at"
"""
_WRITTEN, _OF_ORDERS = "%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M:%S"
_MOST = 4  # pieces in an order


def write_sources(events: pl.DataFrame, folder: Path, seed: int) -> None:
    """Write the events of `messy_tables` as `web.jsonl` and `orders.csv`, and `sources.toml` about both.

    Views and carts are in the web log. Purchases and returns are orders in a state, those of returns with a
    quantity below zero. Bad times and missing items stay as they are.
    """
    is_order = pl.col("event").is_in(["purchase", "return"])
    events.filter(~is_order).rename({"time": "ts"}).write_ndjson(folder / FILES[0])
    orders = events.filter(is_order)
    random = np.random.default_rng(seed)
    pieces = pl.Series(random.integers(1, _MOST, orders.height))
    is_delivered = pl.Series(random.random(orders.height) < 0.9)
    is_return = pl.col("event") == "return"
    day = pl.col("time").str.to_datetime(_WRITTEN, strict=False).dt.strftime(_OF_ORDERS)
    orders.select(
        order=pl.int_range(pl.len()) + 100_000,
        customer="user_id",
        session="session_id",
        sku="item_id",
        quantity=pl.when(is_return).then(-1).otherwise(pieces),
        state=pl.when(is_return)
        .then(pl.lit("refunded"))
        .otherwise(pl.when(is_delivered).then(pl.lit("delivered")).otherwise(pl.lit("shipped"))),
        ordered_at=pl.coalesce(day, "time"),
    ).write_csv(folder / FILES[1], separator=";")
    (folder / FILES[2]).write_text(SETTINGS, "utf-8")
