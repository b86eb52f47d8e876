"""A generated shop, written as shops export their files: tastes for categories, no order, and messy columns.

Each user buys from one to three categories, in which items are chosen by popularity, and now and then from
anywhere. The order of the events says nothing. `orders.csv` has ids such as NULL, unsorted times, rows twice
and a header twice; `products.csv` has prices with a decimal comma, dates as texts, booleans in words, lists
as texts and as JSON, another id, and codes that differ in nearly every row.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ORDERS, PRODUCTS = "orders.csv", "products.csv"
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
    yield [
        "sku",
        "name",
        "category",
        "tags",
        "colours",
        "price",
        "listed",
        "in_stock",
        "ean",
        "bin",
        "supplier_id",
    ]
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
    """Such as `1.299,00 €`."""
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
        row = [
            10_000 + number,
            customer,
            sku,
            moment,
            _price(5.0 + item % 90),
            "",
            "gift" if number % 9 else "",
        ]
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
