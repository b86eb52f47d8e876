import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from turret.data.prepared import PreparedData
from turret.training.errors import TrainingError
from turret.training.inspection.evaluations import best_baseline, cut_off, evaluated_report
from turret.training.run import METRICS, MODEL, Run


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
    """Another part, another baseline, a report of an earlier release."""
    assert evaluated_report(run, shop, "validation")["part"] == "validation"
    assert "item_knn" in evaluated_report(run, shop, "test", ["item_knn"])["differences"]
    run.save_metrics("test", {"towers": {}})
    report = evaluated_report(run, shop, "test")
    assert report == run.metrics()["test"]
    assert "popularity" in report["differences"]


def test_a_run_without_a_model_is_refused_in_a_sentence(run: Run, shop: PreparedData) -> None:
    (run.folder / MODEL).unlink()
    with pytest.raises(TrainingError, match=r"no model was saved yet, .*`turret train --run .* --resume`"):
        evaluated_report(run, shop, "test")


def test_damaged_metrics_are_named(run: Run, shop: PreparedData) -> None:
    (run.folder / METRICS).write_text("{")
    with pytest.raises(TrainingError, match=r"metrics\.json: it can't be read"):
        evaluated_report(run, shop, "test")


def test_the_cut_off_is_one_that_was_measured() -> None:
    metrics = ["hr@5", "ndcg@5", "ndcg@20", "auc", "coverage@7"]
    assert cut_off(metrics, "ndcg@20", None) == 20
    assert cut_off(metrics, "ndcg@10", None) == 5
    assert cut_off(metrics, "auc", None) == 5
    assert cut_off(metrics, "ndcg@20", 5) == 5
    with pytest.raises(TrainingError, match=r"-k 7: the evaluation has k = 5, 20 \(evaluation\.k\)"):
        cut_off(metrics, "ndcg@20", 7)


def test_the_best_baseline_is_the_one_with_the_highest_mean() -> None:
    report = {"differences": {"a": {}, "b": {}}, "a": {"m": {"mean": 0.1}}, "b": {"m": {"mean": 0.2}}}
    assert best_baseline(report, "m") == "b"
