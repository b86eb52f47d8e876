"""What the pages and verdicts look up in a run: rankings, examples, exposure, names, curves and reports."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turret.data.prepared import PreparedData
from turret.training.errors import TrainingError
from turret.training.page.drawings import curves_of
from turret.training.page.recommended import (
    ITEMS,
    NEAREST,
    NEWEST,
    Rankings,
    examples,
    gini,
    item_namer,
    nearest_items,
    rankings_of,
    spread,
    title_of,
)
from turret.training.page.run_page import cut_off, evaluated_report
from turret.training.records.history import load_history
from turret.training.run import Run


@pytest.fixture(scope="module")
def rankings(evaluated: Run, shop: PreparedData) -> Rankings:
    """The first ten items of every user of the shop, by its evaluated run."""
    return rankings_of(evaluated, shop, "test", 10)


def test_rankings_are_those_that_evaluate_measured(rankings: Rankings, evaluated: Run) -> None:
    own = evaluated.metrics()["test"]["towers"]
    assert rankings.hits.any(axis=1).mean() == pytest.approx(own["hr@10"]["mean"])
    shown = np.unique(rankings.rows[rankings.rows >= 0])
    assert len(shown) / len(rankings.data.item_ids) == pytest.approx(own["coverage@10"])


def test_an_example_is_what_the_data_and_the_model_say(rankings: Rankings) -> None:
    """The rank of a target is at most k exactly where it is a hit."""
    data = rankings.data
    for one in examples(rankings, seed=0):
        user = data.users.row(one["user"])
        assert user is not None
        history = data.history(user, "test").tolist()
        assert one["history"] == history[-NEWEST:]
        assert one["history_length"] == len(history)
        assert one["targets"] == data.targets(user, "test").tolist()
        assert one["hits"] == [row in one["targets"] for row in one["recommended"]]
        for row, rank in zip(one["targets"], one["target_ranks"], strict=True):
            assert (rank is None) == (row in history)
            assert (rank is not None and rank <= 10) == (row in one["recommended"])


def test_the_nearest_items_are_those_of_the_largest_cosine(rankings: Rankings) -> None:
    popularity = rankings.data.item_counts("train")
    popular, rare = nearest_items(rankings, seed=0).values()
    assert [one["row"] for one in popular] == np.argsort(-popularity, kind="stable")[:ITEMS].tolist()
    with torch.no_grad():
        vectors = rankings.model.catalog_vectors()
    scoring = rankings.model.config.scoring
    plain = (vectors[:, :-1] if scoring.item_bias else vectors).double()
    for one in popular + rare:
        cosines = plain @ plain[one["row"]]
        cosines[one["row"]] = -torch.inf
        rows, similarities = zip(*one["nearest"], strict=True)
        assert similarities == pytest.approx(
            cosines.sort(descending=True).values[:NEAREST].tolist(), abs=1e-5
        )
        assert one["row"] not in rows
        assert one["events"] == popularity[one["row"]]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([1, 1, 1, 1], 0.0), ([0, 0, 0, 8], 0.75), ([0, 0, 0], 0.0), ([1, 3], 0.25), ([5], 0.0)],
)
def test_the_gini_coefficient_is_half_the_relative_mean_difference(
    counts: list[int], expected: float
) -> None:
    assert gini(np.array(counts)) == pytest.approx(expected)
    if sum(counts):
        pairs = np.abs(np.subtract.outer(counts, counts)).mean()
        assert gini(np.array(counts)) == pytest.approx(pairs / (2 * np.mean(counts)))


def test_shares_go_from_popular_to_rare_items() -> None:
    """Five items are five groups; the third item, not the first, is the most popular."""
    found = spread(np.array([0, 2, 6, 2, 0]), np.array([3, 4, 9, 1, 0]))
    assert found["shares"] == pytest.approx([0.6, 0.2, 0.0, 0.2, 0.0])
    assert found["coverage"] == pytest.approx(3 / 5)
    assert found["popularity"] == pytest.approx((2 * 4 + 6 * 9 + 2 * 1) / 10)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"genre": list("aabba"), "Title": list("vwxyz")}, "Title"),
        ({"genre": list("aaaaa"), "headline": list("vwxyz")}, "headline"),
        ({"genre": list("aaaab"), "price": [1.0, 2.0, 3.0, 4.0, 5.0]}, None),
        ({"title": [None] * 5}, None),
        ({}, None),
    ],
)
def test_the_title_is_a_field_of_the_usual_name_or_of_distinct_texts(
    fields: dict[str, list[Any]], expected: str | None
) -> None:
    assert (title_of(fields) or None) == expected


def test_an_item_is_named_by_its_title_and_its_first_other_fields(handmade: PreparedData) -> None:
    fields: dict[str, list[Any]] = {
        "genre": ["war"] * 5,
        "title": ["A", "B", "C", "D", "E"],
        "tags": [["x", "y"]] * 5,
    }
    named = item_namer(replace(handmade, fields=fields))(1)
    assert named == {"id": "q", "title": "B", "details": ["war", "x, y"]}


def test_the_curves_are_those_of_the_history_with_the_best_evaluation(evaluated: Run) -> None:
    found, progress = curves_of(evaluated), evaluated.progress()
    assert progress is not None
    assert [value for _, value in found.of("validation/ndcg@10")] == [
        value for _, value in progress.validated
    ]
    assert found.best is not None
    assert found.best[1] == progress.best
    assert found.best_epoch == progress.best_epoch
    losses = [entry["loss/epoch"] for entry in load_history(evaluated.folder) if "loss/epoch" in entry]
    assert [value for _, value in found.of("loss/epoch")] == losses
    assert found.of("loss/train")[0][0] == 1
    assert len(found.of("learning_rate")) == len(found.of("loss/train"))


def test_a_run_without_a_history_has_no_curves(evaluated: Run, tmp_path: Path) -> None:
    assert curves_of(replace(evaluated, folder=tmp_path)).of("validation/ndcg@10") == []


@pytest.fixture
def run(evaluated: Run, tmp_path: Path) -> Run:
    shutil.copytree(evaluated.folder, tmp_path / "run")
    return replace(evaluated, folder=tmp_path / "run")


def test_a_stored_report_is_not_measured_again(
    run: Run, shop: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Run, "evaluate")
    assert evaluated_report(run, shop, "test") == run.metrics()["test"]
    assert evaluated_report(run, shop, "test", ["co_occurrence"]) == run.metrics()["test"]


def test_what_is_missing_is_measured(run: Run, shop: PreparedData) -> None:
    """Another part, and another baseline."""
    assert evaluated_report(run, shop, "validation")["part"] == "validation"
    assert "item_knn" in evaluated_report(run, shop, "test", ["item_knn"])["differences"]


def test_the_cut_off_is_one_that_was_measured() -> None:
    metrics = ["hr@5", "ndcg@5", "ndcg@20", "auc", "coverage@7"]
    assert cut_off(metrics, "ndcg@20", None) == 20
    assert cut_off(metrics, "ndcg@10", None) == 5
    assert cut_off(metrics, "auc", None) == 5
    assert cut_off(metrics, "ndcg@20", 5) == 5
    with pytest.raises(TrainingError, match=r"-k 7: the evaluation has k = 5, 20 \(evaluation\.k\)"):
        cut_off(metrics, "ndcg@20", 7)
