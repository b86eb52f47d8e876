"""Baskets: the sessions of a log in place of its users, one item of each later basket held out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.conftest import prepared, trained
from turret.data.prepared import PARTS, Part, PreparedData
from turret.training.baselines.pair_models import fit_lift
from turret.training.batches.baskets import baskets_of
from turret.training.batches.batches import TrainingBatches
from turret.training.config.experiment import load_experiment
from turret.training.errors import TrainingError
from turret.training.pairs_start import REGULARIZATION
from turret.training.randomness import stream
from turret.training.run import build_model, with_validation

DAY, START = 86_400, 1_700_000_000
BY_TIME = {
    "columns__session": "order",
    "split__kind": "time",
    "split__validation_from": START + 60 * DAY,
    "split__test_from": START + 80 * DAY,
}
SMALL = ["tower.dimension=8", "training.device=cpu", "training.batch_size=64", "training.epochs=2"]
Basket = tuple[str, int]
Row = dict[str, Any]


def orders(kinds: tuple[str, ...] = ("buy",), days: int = 100) -> list[Row]:
    """An order a day of one to six lines, some of the same item; one line in ten comes the day after."""
    random, rows = np.random.default_rng(2), list[Row]()
    for day in range(days):
        user, size = f"u{random.integers(9)}", int(random.integers(1, 7))
        for item in random.integers(0, 12, size).tolist():
            late = DAY * (random.random() < 0.1)
            time, kind = START + DAY * day + int(random.integers(3_600)) + late, str(random.choice(kinds))
            rows.append({"user": user, "item": f"i{item:02}", "time": time, "order": day, "kind": kind})
    return rows


def naive(rows: list[Row]) -> dict[str, dict[frozenset[str], int]]:
    """The sets of items of the orders of two or more, by the part of their latest row, with their number."""
    baskets: dict[Basket, tuple[set[str], int]] = {}
    for row in rows:
        items, latest = baskets.get((row["user"], row["order"]), (set(), 0))
        baskets[row["user"], row["order"]] = items | {row["item"]}, max(latest, row["time"])
    result: dict[str, dict[frozenset[str], int]] = {part: {} for part in PARTS}
    for items, latest in baskets.values():
        if len(items) > 1:
            of_part = result[PARTS[(latest >= START + 60 * DAY) + (latest >= START + 80 * DAY)]]
            of_part[frozenset(items)] = of_part.get(frozenset(items), 0) + 1
    return result


def with_kinds(folder: Path, rows: list[Row]) -> PreparedData:
    kinds = ["view=signal", "buy=target"]
    return prepared(folder, rows, columns__kind="kind", kinds=kinds, **BY_TIME)


def sets_of(data: PreparedData, part: Part) -> dict[frozenset[str], int]:
    """The items of the baskets of a part: of held-out baskets, the history and the target."""
    starts, ends = data.bounds(part)
    found: dict[frozenset[str], int] = {}
    for basket in np.flatnonzero(ends > starts):
        items = [
            str(item) for item in data.item_ids.ids(data.event_items[data.offsets[basket] : ends[basket]])
        ]
        assert len(set(items)) == len(items)
        found[frozenset(items)] = found.get(frozenset(items), 0) + 1
    return found


def test_baskets_are_the_different_items_of_each_order_in_the_part_of_its_latest_row(tmp_path: Path) -> None:
    rows = orders()
    data = baskets_of(prepared(tmp_path, rows, **BY_TIME))
    for part in PARTS:
        assert sets_of(data, part) == naive(rows)[part]
    assert baskets_of(data) is data


def test_a_basket_holds_what_was_bought_and_not_what_was_viewed(tmp_path: Path) -> None:
    rows = orders(("view", "buy", "buy"))
    data = baskets_of(with_kinds(tmp_path, rows))
    for part in PARTS:
        assert sets_of(data, part) == naive([row for row in rows if row["kind"] == "buy"])[part]


def test_one_item_of_each_later_basket_is_held_out_and_training_reads_none_of_it(tmp_path: Path) -> None:
    data = baskets_of(prepared(tmp_path, orders(), **BY_TIME))
    counts = {part: np.diff(np.column_stack(data.bounds(part)), axis=1)[:, 0] for part in PARTS}
    assert counts["validation"].max() == counts["test"].max() == 1
    assert (np.count_nonzero([counts[part] for part in PARTS], axis=0) == 1).all()
    held_out = counts["train"] == 0
    for part in ("validation", "test"):
        rests = (data.history_ends(part) - data.offsets[:-1])[counts[part] > 0]
        assert rests.min() >= 1
        targets = np.flatnonzero(counts[part] > 0)
        newest = [data.times[data.offsets[basket] : data.offsets[basket + 1]].max() for basket in targets]
        is_newest = data.times[data.offsets[targets + 1] - 1] == newest
        assert is_newest.any()
        assert not is_newest.all()
    batches = TrainingBatches(data, 64, 50, 64, "leave_one_out")
    read = {int(owner) for batch in batches.epoch(stream(0, "order", 0)) for owner in batch.owners}
    assert read == set(np.flatnonzero(~held_out).tolist())
    refitted = TrainingBatches(with_validation(data), 64, 50, 64, "leave_one_out")
    read = {int(owner) for batch in refitted.epoch(stream(0, "order", 0)) for owner in batch.owners}
    assert read == set(np.flatnonzero(counts["test"] == 0).tolist())


def test_an_example_reads_the_whole_basket_but_its_target(tmp_path: Path) -> None:
    data = baskets_of(prepared(tmp_path, orders(), **BY_TIME))
    examples: list[tuple[list[int], int]] = []
    for batch in TrainingBatches(data, 64, 50, 64, "leave_one_out").epoch(stream(0, "order", 0)):
        histories = batch.histories
        assert histories.left_out is not None
        for start, end, left, target in zip(
            histories.starts, histories.ends, histories.left_out, batch.targets, strict=True
        ):
            places = [place for place in range(int(start), int(end)) if place != int(left)]
            examples.append((sorted(histories.rows[places].tolist()), int(target)))
    starts, ends = data.bounds("train")
    expected = [
        (sorted(set(items) - {item}), item)
        for start, end in zip(starts, ends, strict=True)
        for items in [data.event_items[start:end].tolist()]
        for item in items
    ]
    assert sorted(examples) == sorted(expected)


def test_a_run_is_evaluated_on_baskets_and_never_offers_what_is_in_one(tmp_path: Path) -> None:
    data = prepared(tmp_path, orders(days=200), **BY_TIME)
    baskets = baskets_of(data)
    run, _ = trained(tmp_path / "run", baskets, load_experiment("basket", SMALL))
    report = run.evaluate(run.open_data(data.folder), "test", ["item_knn", "co_occurrence", "lift"])
    starts, ends = baskets.bounds("test")
    assert report["baskets"] is True
    assert report["users"] == (ends > starts).sum()
    assert report["relevant_used_before"] == report["relevant_masked"] == 0
    assert report["towers"].keys() == report["lift"].keys()


def test_lift_is_the_share_of_baskets_over_that_of_chance_from_a_support_on(tmp_path: Path) -> None:
    data = baskets_of(prepared(tmp_path, orders(), **BY_TIME))
    starts, ends = data.bounds("train")
    sets = [set(data.event_items[start:end].tolist()) for start, end in zip(starts, ends, strict=True)]
    (users,) = np.nonzero(np.diff(np.column_stack(data.bounds("test")))[:, 0])
    scores = fit_lift(data, "test", support=5)(users)
    popularity, missing = fit_lift(data, "test", support=1_000)(users), 0
    for row, user in enumerate(users):
        for item in range(len(data.item_ids)):
            expected = 0.0
            for other in set(data.history(int(user), "test").tolist()) - {item}:
                both = sum({item, other} <= basket for basket in sets)
                alone = [sum(one in basket for basket in sets) for one in (item, other)]
                # Every session has a row, of which those that are held out have no training item.
                expected += len(starts) * both / (alone[0] * alone[1]) if both >= 5 else 0.0
            missing += expected == 0
            assert scores[row, item] == pytest.approx(expected or float(popularity[row, item]), rel=1e-5)
    assert 0 < missing < scores.numel()


@pytest.mark.parametrize(
    ("settings", "rows", "phrase"),
    [
        ({"columns__session": None}, orders(), "names none; prepare the data with --session"),
        ({"split__kind": "last"}, orders(), "prepare the data with --split time"),
        ({}, [{**row, "order": place} for place, row in enumerate(orders())], "two different items"),
        ({}, [{**row, "order": None} for row in orders()], "two different items"),
    ],
)
def test_data_without_baskets_is_refused(
    tmp_path: Path, settings: dict[str, object], rows: list[Row], phrase: str
) -> None:
    split = BY_TIME if settings.get("split__kind") != "last" else {"columns__session": "order"}
    data = prepared(tmp_path, rows, **{**split, **settings})
    with pytest.raises(TrainingError, match=phrase):
        baskets_of(data)


def test_item_vectors_begin_as_the_partial_correlations_of_items_in_baskets(tmp_path: Path) -> None:
    """With as many columns as items, their products are those of a naive inverse, but for the diagonal."""
    data = baskets_of(prepared(tmp_path, orders(), **BY_TIME))
    starts, ends = data.bounds("train")
    used = np.zeros((len(starts), len(data.item_ids)))
    for basket, (start, end) in enumerate(zip(starts, ends, strict=True)):
        used[basket, data.event_items[start:end]] = 1.0
    precision = np.linalg.inv(used.T @ used + REGULARIZATION * np.eye(used.shape[1]))
    expected = -precision / np.sqrt(np.outer(np.diag(precision), np.diag(precision)))
    np.fill_diagonal(expected, 1.0)
    assert np.linalg.eigvalsh(expected).min() > 0
    model = build_model(load_experiment("basket", ["tower.dimension=40"]), data)
    assert model.item.table is not None
    table = model.item.table.weight.detach().numpy()
    np.testing.assert_allclose(table @ table.T, expected, atol=1e-4)
    assert not table[:, 12:].any()
    narrow = build_model(load_experiment("basket", ["tower.dimension=5"]), data)
    assert narrow.item.table is not None
    values, vectors = np.linalg.eigh(expected)
    nearest = (vectors[:, -4:] * values[-4:]) @ vectors[:, -4:].T
    factors = narrow.item.table.weight.detach().numpy()
    np.testing.assert_allclose(factors @ factors.T, nearest, atol=1e-3)
    assert not factors[:, -1].any()
