"""From a log of orders to what goes with a cart: answers and figures are those of `turret evaluate`."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import turret.cli
from tests.support.service_app import ids, recommended, serving
from turret.data.prepared import PreparedData
from turret.model import load
from turret.training.evaluation.ranking import rank
from turret.training.run import Run

DAY, START, PAIRS = 86_400, 1_700_000_000, 30


def log_of_orders() -> pl.DataFrame:
    """Orders of two pairs of items that go together, and of one item of a third pair; some lines twice.

    Half of the orders are of nobody, and the lines of an order are some minutes apart.
    """
    random, rows = np.random.default_rng(4), list[tuple[str | None, str, str, int]]()
    for order in range(900):
        first, second, third = random.choice(PAIRS, 3, replace=False).tolist()
        lines = [2 * first, 2 * first + 1, 2 * second, 2 * second + 1, 2 * third + int(random.integers(2))]
        lines += lines[: int(random.integers(2))]
        user = f"u{random.integers(50)}" if order % 2 else None
        begin = START + int(order * 100 * DAY / 900)
        for place, item in enumerate(random.permutation(lines).tolist()):
            rows.append((user, f"o{order}", f"i{item:02}", begin + 60 * place))
    return pl.DataFrame(rows, schema=["user", "order", "item", "time"], orient="row")


def said(words: str) -> str:
    result = CliRunner().invoke(turret.cli.app, shlex.split(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@dataclass(frozen=True)
class Shop:
    """What the commands of a user leave behind, and the test baskets: the items beside the one held out."""

    log: pl.DataFrame
    run: Run
    data: PreparedData
    report: dict[str, Any]
    bundles: Path

    def carts(self) -> list[tuple[list[str], str]]:
        starts, ends = self.data.bounds("test")
        histories = [
            (self.data.history(int(cart), "test"), starts[cart]) for cart in np.flatnonzero(ends > starts)
        ]
        return [
            (
                [*map(str, self.data.item_ids.ids(rows))],
                str(self.data.item_ids.id(int(self.data.event_items[last]))),
            )
            for rows, last in histories
        ]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder, log = tmp_path_factory.mktemp("baskets"), log_of_orders()
    log.write_csv(folder / "orders.csv")
    said(
        f"data prepare {folder}/orders.csv --session order --split time --validation-fraction 0.1 "
        f"--test-fraction 0.1 --to {folder}/prepared"
    )
    said(
        f"train --data {folder}/prepared --experiment basket --run {folder}/run --set training.epochs=8 "
        "--set tower.dimension=32 --set training.batch_size=64 --set training.device=cpu "
        "--set evaluation.k=[10]"
    )
    report = json.loads(said(f"evaluate {folder}/run --baselines item_knn,co_occurrence --json"))
    said(f"export {folder}/run --bundles {folder}/bundles --version v1")
    run = Run.read(folder / "run")
    return Shop(log, run, run.open_data(), report, folder / "bundles")


def test_the_service_completes_a_cart_as_the_evaluation_ranks_it(shop: Shop) -> None:
    """The order of the cart makes no difference, and no item of the cart is in the answer."""
    carts = shop.carts()
    (users,) = np.nonzero(np.diff(np.column_stack(shop.data.bounds("test")))[:, 0])
    ranker = shop.run.open_ranker(shop.data, "test")
    ranked = np.concatenate([block["all"] for block in rank(ranker, shop.data, users, "test", 10, True)])
    gains, model = [], load(shop.bundles)
    with serving(shop.bundles) as client:
        for (cart, target), rows in zip(carts, ranked, strict=True):
            answer = ids(recommended(client, history=cart, k=10))
            assert answer == shop.data.item_ids.ids(rows)
            assert answer == ids(recommended(client, history=[*reversed(cart)], k=10))
            assert answer == [item.id for item in model.recommend(cart, k=10)]
            assert not {*answer} & {*cart}
            gains.append(1 / np.log2(answer.index(target) + 2) if target in answer else 0.0)
    assert len(gains) == shop.report["users"] > 80
    assert np.mean(gains) == pytest.approx(shop.report["towers"]["ndcg@10"]["mean"], abs=1e-6)


def test_a_test_basket_is_a_later_order_of_the_log(shop: Shop) -> None:
    orders = shop.log.group_by("order").agg(pl.col("item"), pl.col("time").max())
    latest = orders.filter(pl.col("time") >= orders["time"].quantile(0.9, "nearest"))
    expected = {frozenset(items) for items in latest["item"]}
    found = {frozenset([*cart, target]) for cart, target in shop.carts()}
    assert len(found & expected) >= 0.95 * len(found)


def test_the_item_that_goes_with_another_comes_first(shop: Shop) -> None:
    """The figures say so, too, and the verdict says how often similar items are those that go together."""
    with serving(shop.bundles) as client:
        firsts = [ids(recommended(client, history=[f"i{item:02}"], k=1))[0] for item in range(2 * PAIRS)]
    assert np.mean([first == f"i{item ^ 1:02}" for item, first in enumerate(firsts)]) > 0.9
    report = shop.report
    assert report["towers"]["ndcg@10"]["low"] > report["popularity"]["ndcg@10"]["high"]
    assert {"lift", "item_knn", "co_occurrence"} < report.keys()
    (found,) = [entry for entry in report["verdict"] if entry["kind"] == "complements"]
    with serving(shop.bundles) as client:
        shares = []
        for item in range(2 * PAIRS):
            similar = client.get(f"/v1/items/i{item:02}/similar", params={"k": 10}).json()
            complements = ids(recommended(client, history=[f"i{item:02}"], k=10))
            shares.append(len({*ids(similar)} & {*complements}) / 10)
    assert found["figures"]["share"] == pytest.approx(np.mean(shares), abs=1e-6)
