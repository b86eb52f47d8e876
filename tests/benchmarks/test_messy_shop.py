"""The messy shop is the same for the same seed, and `turret data prepare` reads it."""

import csv
from pathlib import Path

import pytest

from benchmarks.messy_shop import ORDERS, PRODUCTS, Shop, write_shop
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

SMALL = Shop(users=120, items=80, categories=6, events_a_user=10, seed=4)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder, SMALL)
    return folder


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_a_seed_gives_the_same_files_and_another_seed_others(shop: Path, tmp_path: Path) -> None:
    write_shop(tmp_path / "same", SMALL)
    write_shop(tmp_path / "other", Shop(120, 80, 6, 10, seed=5))
    for name in (ORDERS, PRODUCTS):
        assert (tmp_path / "same" / name).read_bytes() == (shop / name).read_bytes()
        assert (tmp_path / "other" / name).read_bytes() != (shop / name).read_bytes()


def test_the_log_is_unsorted_and_has_missing_ids_and_repeated_rows_and_names(shop: Path) -> None:
    header, *orders = rows(shop / ORDERS)
    assert header.count("note") == 2
    times = [order[3] for order in orders]
    assert times != sorted(times)
    assert {"NULL", "None", "nan", "-", ""} & {name for order in orders for name in order[1:3]}
    assert len({tuple(order) for order in orders}) < len(orders)


def test_users_buy_in_their_categories_and_take_an_item_once(shop: Path) -> None:
    """Nine of ten orders are by taste, so the three largest categories of a user have most of them."""
    category = {row[0]: row[2] for row in rows(shop / PRODUCTS)[1:]}
    of_user: dict[str, list[str]] = {}
    for order in {tuple(order) for order in rows(shop / ORDERS)[1:] if order[2] in category}:
        of_user.setdefault(order[1], []).append(order[2])
    bought = {user: items for user, items in of_user.items() if user.startswith("k")}
    assert all(len(set(items)) == len(items) for items in bought.values())
    counts = [
        (sorted((names.count(name) for name in set(names)), reverse=True), len(names))
        for names in ([category[item] for item in items] for items in bought.values())
    ]
    assert sum(sum(largest[:3]) for largest, _ in counts) > 0.8 * sum(count for _, count in counts)


def test_the_columns_are_read_without_help(shop: Path, tmp_path: Path) -> None:
    """Only the three columns of the log are named; the features are guessed by their values."""
    events = {
        "source": shop / ORDERS,
        "items": shop / PRODUCTS,
        "on_bad": "drop",
        "columns": {"user": "customer", "item": "sku", "time": "ordered_at"},
    }
    report = prepare(PrepareConfig.model_validate(events), tmp_path / "prepared")
    kinds = {feature.name: feature.kind for feature in report.manifest.item_features}
    assert kinds == {
        "name": "text",
        "category": "category",
        "tags": "multi",
        "colours": "multi",
        "price": "number",
        "listed_days": "number",
        "listed_month": "category",
        "in_stock": "category",
    }
