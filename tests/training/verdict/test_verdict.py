from typing import Any

from turret.data.prepared import PreparedData
from turret.training.checkpoint import Progress
from turret.training.config.experiment import load_experiment
from turret.training.verdict.verdict import main_metric, verdict

VALUE = {"mean": 0.5, "low": 0.46, "high": 0.54}
REPORT: dict[str, Any] = {
    "users": 100,
    "exclude_seen": True,
    "relevant_items": 100,
    "relevant_used_before": 0,
    "towers": {"ndcg@20": VALUE, "ndcg@50": VALUE},
    "popularity": {"ndcg@20": VALUE, "ndcg@50": VALUE},
    "differences": {"popularity": {"ndcg@20": VALUE, "ndcg@50": VALUE}},
    "baseline_limits": {},
    "baselines_left_out": {},
}


def test_the_metric_is_that_of_training_where_the_report_has_it() -> None:
    shared = {"evaluation.k": [50, 20]}
    same = load_experiment("youtubednn", {**shared, "training.metric": "ndcg@50"})
    assert main_metric(REPORT, same) == "ndcg@50"
    other = load_experiment("youtubednn", {**shared, "training.metric": "ndcg@10"})
    assert main_metric(REPORT, other) == "ndcg@20"


def test_findings_that_do_not_hold_are_left_out(handmade: PreparedData) -> None:
    """A finished training, no features, no order, and repeats that are masked."""
    experiment = load_experiment("youtubednn", {"evaluation.k": [20, 50], "training.metric": "ndcg@20"})
    finished = Progress(epoch=3, finished=True)
    found = verdict(REPORT, experiment, handmade, finished)
    assert [finding["kind"] for finding in found] == ["baseline", "repeats"]
    assert set(found[0]) == {"kind", "sentence", "figures"}


def test_candidates_that_auto_rejected_are_not_recommended(shop: PreparedData) -> None:
    """Neither by a trial that failed nor by the picked candidate."""
    trials = [
        {"candidate": name, "value": value}
        for name, value in (("set", 0.25), ("pooled", 0.3), ("features", 0.2), ("transformer", None))
    ]
    experiment = load_experiment("youtubednn", {"evaluation.k": [20, 50], "training.metric": "ndcg@20"})
    choice = {"picked": "pooled", "reasons": [], "trials": trials}
    finished = Progress(epoch=3, finished=True)
    sentences = {one["kind"]: one["sentence"] for one in verdict(REPORT, experiment, shop, finished, choice)}
    preferred = "`--experiment auto` preferred it to set (0.2500) and features (0.2000) by their validation"
    assert preferred in sentences["unread_features"]
    assert preferred in sentences["unread_order"]
    without_trials = {**choice, "trials": []}
    sentences = {
        one["kind"]: one["sentence"] for one in verdict(REPORT, experiment, shop, finished, without_trials)
    }
    assert "the shipped experiment dssm reads them" in sentences["unread_features"]
