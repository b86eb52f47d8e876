"""The first week of a shop: does `turret train --experiment auto` beat every baseline on its log?

Protocol: for each set the commands of a newcomer run as they are, each in a process of its own: `turret data
prepare`, `turret train --experiment auto` and `turret evaluate --baselines all --json`. Nothing is set but
the columns that `turret data prepare` asks for. `auto` looks at the training and the validation part alone;
the figures are of the test part, each user's last event, ranked in the whole catalog with the same masks for
all. `auto_over_best_baseline` of a set is NDCG@10 of the towers over that of the best baseline, chosen on the
test part, and the result has the least of all sets. Differences are paired by user, with 95 % intervals.
`seconds` are the times of the three commands. `--resume` measures the sets that are not kept yet.

One log is generated: tastes for categories, no order, and columns as messy as shops export them.
"""

import csv
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import Options, run_rows
from benchmarks.processes import turret

ORDERS, PRODUCTS = "orders.csv", "products.csv"
_COLUMNS = (
    *("sku", "name", "category", "tags", "colours", "price"),
    *("listed", "in_stock", "ean", "bin", "supplier_id"),
)
_NO_IDS = ("NULL", "None", "nan", "-", "")
_COLOURS = ("red", "blue", "green", "black", "white", "oak", "steel", "linen")
_NOUNS = ("lamp", "chair", "kettle", "rug", "clock", "vase", "desk", "mirror", "shelf", "blanket")
_START = datetime(2025, 1, 6, tzinfo=UTC)
_DAYS = 330
_SHARE_OF_TASTE, _SHARE_OF_BAD_IDS, _SHARE_OF_COPIES = 0.9, 0.002, 0.003


@dataclass(frozen=True)
class Shop:
    """The size of a shop and the seed of its numbers."""

    users: int = 20_000
    items: int = 3_000
    categories: int = 60
    events_a_user: int = 15
    seed: int = 0


def write_shop(folder: Path, shop: Shop) -> None:
    """Write `orders.csv` and `products.csv` into `folder`, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(shop.seed)
    category = np.sort(random.integers(0, shop.categories, shop.items))
    popularity = random.permutation(1.0 / np.arange(1, shop.items + 1) ** 0.6)
    _write(folder / PRODUCTS, _products(category, shop, random))
    _write(folder / ORDERS, _orders(category, popularity, shop, random))


def _write(path: Path, rows: Iterator[list[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def _products(category: NDArray[np.int64], shop: Shop, random: np.random.Generator) -> Iterator[list[Any]]:
    yield list(_COLUMNS)
    for item in range(shop.items):
        kind = int(category[item])
        noun = _NOUNS[kind % len(_NOUNS)]
        colours = random.choice(_COLOURS, size=random.integers(1, 4), replace=False).tolist()
        listed = _START - timedelta(days=int(random.integers(0, 900)))
        yield [
            _sku(item),
            f"{colours[0].title()} {noun} no. {item}",
            f"C{kind:02d}",
            "|".join([noun, f"room {kind % 7}", *colours]),
            json.dumps(colours),
            _price(float(np.exp(random.normal(4.0, 1.2)))),
            listed.strftime("%d.%m.%Y"),
            "yes" if random.random() < 0.9 else "no",
            f"40{random.integers(10**10, 10**11)}",
            f"{random.integers(0, shop.items)}-{'ABCD'[item % 4]}",
            random.integers(1000, 1000 + shop.items),
        ]


def _price(value: float) -> str:
    """A price as text, such as `1.299,00 €`."""
    whole, cents = divmod(round(100 * value), 100)
    return f"{whole:,}".replace(",", ".") + f",{cents:02d} €"


def _orders(
    category: NDArray[np.int64], popularity: NDArray[np.float64], shop: Shop, random: np.random.Generator
) -> Iterator[list[Any]]:
    yield ["order", "customer", "sku", "ordered_at", "price", "note", "note"]
    pairs = np.concatenate([_bought(user, category, popularity, shop, random) for user in range(shop.users)])
    pairs = random.permutation(pairs)
    seconds = random.integers(0, _DAYS * 86_400, len(pairs))
    for number, ((user, item), second) in enumerate(zip(pairs.tolist(), seconds.tolist(), strict=True)):
        customer, sku = f"k{user:06d}", _sku(item)
        if random.random() < _SHARE_OF_BAD_IDS:
            customer = _NO_IDS[number % len(_NO_IDS)]
        elif random.random() < _SHARE_OF_BAD_IDS:
            sku = _NO_IDS[number % len(_NO_IDS)]
        moment = (_START + timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S")
        note = "gift" if number % 9 else ""
        row = [10_000 + number, customer, sku, moment, _price(5.0 + item % 90), "", note]
        yield row
        if random.random() < _SHARE_OF_COPIES:
            yield row


def _bought(
    user: int,
    category: NDArray[np.int64],
    popularity: NDArray[np.float64],
    shop: Shop,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """The pairs [N, 2] of a user and the items of his orders, each item once."""
    tastes = random.choice(shop.categories, size=random.integers(1, 4), replace=False)
    count = int(random.geometric(1 / shop.events_a_user))
    taste = np.where(np.isin(category, tastes), popularity, 0.0)
    weights = (1 - _SHARE_OF_TASTE) * popularity / popularity.sum()
    if taste.any():
        weights += _SHARE_OF_TASTE * taste / taste.sum()
    # The items of the largest keys are a draw without replacement by these weights.
    keys = np.log(weights) + random.gumbel(size=shop.items)
    items = np.argpartition(-keys, min(count, shop.items - 1))[:count]
    return np.column_stack([np.full(len(items), user), items])


def _sku(item: int) -> str:
    return f"{(item * 7919) % 1_000_003:06d}"


_SHOP_COLUMNS = ("--user", "customer", "--item", "sku", "--time", "ordered_at", "--on-bad", "drop")
_GLOBO_DAYS = 2


def _shop(scratch: Path, shop: Shop) -> list[object]:
    write_shop(scratch, shop)
    return [scratch / ORDERS, "--items", scratch / PRODUCTS, *_SHOP_COLUMNS]


def _globo(data: Path, scratch: Path) -> list[object]:
    clicks = pl.scan_parquet(data / "globo" / "clicks.parquet")
    # The log has the newest complete day and the few clicks after it.
    first = datetime(2017, 10, 16, tzinfo=UTC)
    begin, end = (1000 * int(at.timestamp()) for at in (first, first + timedelta(days=_GLOBO_DAYS)))
    scratch.mkdir(parents=True)
    path = scratch / "clicks.parquet"
    clicks.filter(pl.col("timestamp_ms").is_between(begin, end, closed="left")).sink_parquet(path)
    return [path, "--user", "user_id", "--item", "item_id", "--time", "timestamp_ms", "--on-bad", "drop"]


# Gives the arguments of `turret data prepare`, from the folder of the data sets and a scratch folder.
Source = Callable[[Path, Path], list[object]]
SETS: dict[str, Source] = {
    "messy_shop": lambda _, scratch: _shop(scratch, Shop()),
    # Lines without a customer and returns are left out.
    "online-retail": lambda data, _: [data / "online-retail", "--quantity", "quantity", "--on-bad", "drop"],
    "ml-100k": lambda data, _: [data / "ml-100k" / "original"],
    "globo": _globo,
}
QUICK: dict[str, Source] = {"small_shop": lambda _, scratch: _shop(scratch, Shop(600, 200, 12, 10))}


METRIC = "ndcg@10"
Row = dict[str, Any]


def measured(name: str, source: Sequence[object], scratch: Path) -> Row:
    """Run the week of one set and summarise its evaluation."""
    prepared, run = scratch / "prepared", scratch / "run"
    commands: dict[str, list[object]] = {
        "prepare": ["data", "prepare", *source, "--to", prepared],
        "train": ["train", "--data", prepared, "--run", run, "--experiment", "auto"],
        "evaluate": ["evaluate", run, "--baselines", "all", "--json"],
    }
    seconds, printed = {}, ""
    for command, words in commands.items():
        clock = time.perf_counter()
        printed = turret(*words)
        seconds[command] = time.perf_counter() - clock
    return {"set": name, "seconds": seconds, **summary(json.loads(printed))}


def summary(report: Row) -> Row:
    """The figures of one evaluation: the towers, each baseline and the paired differences."""
    baselines = {name: report[name][METRIC] for name in report["differences"]}
    best = max(baselines, key=lambda name: baselines[name]["mean"])
    towers = report["towers"][METRIC]
    return {
        "picked": report["auto"]["picked"],
        "towers": towers,
        "baselines": baselines,
        "differences": {name: difference[METRIC] for name, difference in report["differences"].items()},
        "best_baseline": best,
        "auto_over_best_baseline": towers["mean"] / baselines[best]["mean"],
    }


def claim(rows: list[Row]) -> Row:
    """The least ratio of all sets."""
    return {"auto_over_best_baseline": min(row["auto_over_best_baseline"] for row in rows), "metric": METRIC}


def measure(options: Options, kept: Sequence[Row]) -> Iterator[Row]:
    """Measure the sets that are not kept yet; a quick run has one small set."""
    for name, source in (QUICK if options.quick else SETS).items():
        if all(row["set"] != name for row in kept):
            with TemporaryDirectory(prefix="first_week-") as scratch:
                yield measured(name, source(options.data, Path(scratch) / "log"), Path(scratch))


if __name__ == "__main__":
    run_rows(measure, summary=claim)
