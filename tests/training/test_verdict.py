"""The sentences that an evaluation ends with."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.conftest import QUICK, prepared, trained
from turret.data.prepared import PreparedData
from turret.training.checkpoint import Progress
from turret.training.config.experiment import TrainingConfig, load_experiment
from turret.training.evaluation.table import verdict_text
from turret.training.verdict.verdict import (
    baseline_findings,
    comparison_findings,
    left_out_findings,
    repeats,
    strangers,
    too_small,
    training_end,
    unread_order,
    verdict,
)

M = "ndcg@10"


def against_ease(
    low: float = -0.001, high: float = 0.003, mean: float = 0.04, users: int = 1000
) -> dict[str, Any]:
    """Towers at 0.04 against EASE at `mean`, and popularity far behind both."""
    return {
        "users": users,
        "relevant_items": users,
        "relevant_cold": 0,
        "towers": {M: {"mean": 0.04}},
        "ease": {M: {"mean": mean}},
        "popularity": {M: {"mean": 0.01}},
        "differences": {
            "popularity": {M: {"mean": 0.03, "low": 0.02, "high": 0.035}},
            "ease": {M: {"mean": 0.04 - mean, "low": low, "high": high}},
        },
        "baseline_limits": {},
        "baselines_left_out": {},
    }


def test_what_the_towers_leave_unread_is_told_unless_trials_have_tried_it(shop: PreparedData) -> None:
    experiment, finished = load_experiment("youtubednn"), Progress(epoch=3, finished=True)
    report = {**against_ease(), "exclude_seen": True, "relevant_masked": 0, "slices": {}}
    choice = {"picked": "pooled", "reasons": [], "trials": []}
    sentences = {one["kind"]: one["sentence"] for one in verdict(report, experiment, shop, finished, choice)}
    assert "the shipped experiment dssm reads them" in sentences["unread_features"]
    assert "the shipped experiments" in sentences["unread_order"]
    tried = {**choice, "trials": [{"candidate": "pooled", "value": 0.3}]}
    kinds = {one["kind"] for one in verdict(report, experiment, shop, finished, tried)}
    assert not kinds & {"unread_features", "unread_order"}


def test_strangers_get_popular_items_which_is_told_beside_recent_ones() -> None:
    group: dict[str, Any] = {"users": 40, "towers": {M: {"mean": 0.0233}}}
    found = strangers({"slices": {"history 0": group}}, M)
    assert found is not None
    assert found["sentence"].startswith("Users without a history (40) get the items that are popular")
    assert found["sentence"].endswith("0.0233 for them.")
    group["recent_popularity"] = {M: {"mean": 0.52}}
    found = strangers({"slices": {"history 0": group}}, M)
    assert found is not None
    assert found["sentence"].endswith("0.0233 for them, and by recent popularity 0.5200.")
    assert strangers({"slices": {"history 1-9": group}}, M) is None


TARGETS = {"relevant_masked": 2, "relevant_items": 9}


@pytest.fixture
def distinct(tmp_path: Path) -> PreparedData:
    rows = [{"user": user, "item": item} for user in "abc" for item in "pqrs"]
    return prepared(tmp_path, rows, columns__in_file_order=True)


def test_many_repeats_that_are_masked_are_told(handmade: PreparedData, distinct: PreparedData) -> None:
    manifest = handmade.manifest.model_copy(update={"repeat_share": 0.11})
    returning = replace(handmade, manifest=manifest)
    found = repeats({**TARGETS, "exclude_seen": True}, returning)
    assert found is not None
    assert found["kind"] == "repeats"
    assert found["sentence"].startswith("11% of the training events repeat an item of their user")
    assert "2 of 9 targets can't be hit" in found["sentence"]
    assert repeats({**TARGETS, "exclude_seen": True}, distinct) is None
    unharmed = {"relevant_masked": 0, "relevant_items": 9, "exclude_seen": True}
    assert repeats(unharmed, returning) is None, "no target is lost"


def test_repeats_within_a_visit_are_told_only_where_they_are_masked(distinct: PreparedData) -> None:
    manifest = distinct.manifest.model_copy(update={"visit_repeat_share": 0.4})
    found = repeats({**TARGETS, "exclude_seen": True}, replace(distinct, manifest=manifest))
    assert found is not None
    assert found["sentence"].startswith("40% of the training events repeat an item of the same visit")
    assert "Prepare with --duplicates strongest" in found["sentence"]
    other = repeats(
        {**TARGETS, "relevant_masked": 0, "exclude_seen": False}, replace(distinct, manifest=manifest)
    )
    assert other is not None
    assert "set it to true" in other["sentence"]


def progress(values: list[float], finished: bool = True) -> Progress:
    """A training with these validation values, from epoch 1 on."""
    best = max(range(len(values)), key=values.__getitem__) + 1
    validated = [[float(epoch), value] for epoch, value in enumerate(values, start=1)]
    return Progress(epoch=len(values), best_epoch=best, finished=finished, validated=validated)


def shuffled(data: PreparedData) -> PreparedData:
    """The same data, each history in another order."""
    random, items = np.random.default_rng(0), np.array(data.event_items)
    for start, end in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        items[start:end] = random.permutation(items[start:end])
    return PreparedData(**{**vars(data), "event_items": items})


def test_users_who_take_their_last_item_again_show_an_order(loyal: PreparedData) -> None:
    """Where used items are ranked. A shuffled history has two equal items side by side more seldom."""
    found = unread_order(load_experiment("ids", {"evaluation.exclude_seen": False}), loyal)
    assert found is not None
    pairs = [pair for user in range(60) for pair in pairwise(loyal.history(user, "validation").tolist())]
    again = sum(first == second for first, second in pairs) / len(pairs)
    assert found["figures"]["again_share"] == pytest.approx(again)
    assert f"users take their last item again ({again:.0%}) 3." in found["sentence"]
    assert unread_order(load_experiment("ids"), loyal) is None
    mixed = {"evaluation.exclude_seen": False}
    assert unread_order(load_experiment("ids", mixed), shuffled(loyal)) is None


RISING = [0.01, 0.02, 0.03, 0.04, 0.045, 0.05, 0.052, 0.055]


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        (progress(RISING), "still_improving", "rose by 10.0% from epoch 6 (0.0500) to 8 (0.0550)"),
        (progress([*RISING[:6], 0.0501, 0.0502]), None, ""),
        (progress([0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.06]), None, ""),
        (progress(RISING[:4]), None, ""),
        (progress(RISING[:3], finished=False), "unfinished", "after epoch 3 of 8; `turret train --resume`"),
    ],
    ids=["a rise of a tenth", "hardly any", "best before", "stopped", "interrupted"],
)
def test_a_training_that_could_go_on_is_told(end: Progress | None, kind: str | None, words: str) -> None:
    found = training_end(end, TrainingConfig(epochs=8))
    assert (found["kind"] if found else None) == kind
    assert words in (found["sentence"] if found else "")


NO_HIT = {**against_ease(0.0, 0.0), **{name: {M: {"mean": 0.0}} for name in ("towers", "popularity", "ease")}}


@pytest.mark.parametrize(
    ("report", "result", "needed"),
    [
        (against_ease(0.001, 0.003, mean=0.038), "better", "enough"),
        (against_ease(-0.003, -0.001, mean=0.038), "worse", "enough"),
        (against_ease(-0.001, 0.003, mean=0.038), "unclear", "enough"),
        (against_ease(0.01, 0.06, mean=0.0), "better", 3516),
        (against_ease(-0.008, 0.008), "unclear", 4000),
        (against_ease(-0.05, 0.05), "unclear", None),
    ],
    ids=["better", "worse", "unclear", "ease without a hit", "a fifth", "wider than the metric"],
)
def test_a_baseline_is_beaten_or_not_and_an_evaluation_large_enough_or_not(
    report: dict[str, Any], result: str, needed: object
) -> None:
    """`needed` users would bring the interval to a tenth of this model's metric, not of a baseline's."""
    of_popularity, of_ease = baseline_findings(report, M)
    assert [one["figures"]["result"] for one in (of_popularity, of_ease)] == ["better", result]
    small = too_small(report, M)
    assert (small[0]["figures"].get("users_needed") if small else "enough") == needed


ALL_EQUAL = {name: {M: {"mean": 1.0}} for name in ("towers", "popularity", "ease")}


@pytest.mark.parametrize(
    ("report", "kinds", "words"),
    [
        (NO_HIT, "too_small", "can't tell anything: ndcg@10 of all 1,000 users is 0, by every ranker."),
        ({**NO_HIT, "towers": {M: {"mean": 0.2}}}, "baseline baseline", ""),
        ({**against_ease(), **ALL_EQUAL}, "too_small", "of all 1,000 users is 1, by every ranker"),
        (against_ease(users=1), "too_small", "an interval over 1 user says nothing; it needs at least 30"),
        ({**against_ease(), "relevant_cold": 500}, "cold_targets", "by chance; the two are not compared."),
        (
            {**against_ease(), "relevant_cold": 100},
            "cold_targets baseline baseline",
            "100 of 1,000 targets are items without an event",
        ),
        ({**against_ease(), "relevant_cold": 99}, "baseline baseline", ""),
    ],
    ids=["no hit", "towers alone", "hits only", "one user", "half cold", "many cold", "few cold"],
)
def test_an_evaluation_that_can_not_tell_says_why_instead_of_comparing(
    report: dict[str, Any], kinds: str, words: str
) -> None:
    found = comparison_findings(report, M)
    assert " ".join(finding["kind"] for finding in found) == kinds
    assert words in found[0]["sentence"]


def test_a_limited_or_missing_baseline_is_told_in_lines_of_a_hundred_characters() -> None:
    report = {
        **against_ease(-0.003, -0.001, mean=0.038),
        "baseline_limits": {"ease": "the 10,000 most popular items"},
        "baselines_left_out": {"item_knn": "gone"},
    }
    shown = verdict_text({"verdict": [*baseline_findings(report, M), *left_out_findings(report)]})
    assert max(map(len, shown.splitlines())) <= 100
    said = " ".join(shown.split())
    assert "- Worse than EASE: ndcg@10 is 0.0400 against 0.0380, a difference of +0.0020 (+5%)" in said
    assert "The baseline ease was fitted on the 10,000 most popular items alone" in said
    assert "The baseline item_knn was left out: gone." in said


def test_a_model_that_loses_to_the_users_own_items_is_told_so(loyal: PreparedData, tmp_path: Path) -> None:
    """Without asking for a baseline, and for items used before and new ones apart. Trains an epoch."""
    changes = ["training.epochs=1", "training.repeats=false", "evaluation.exclude_seen=false"]
    run, _ = trained(tmp_path / "run", loyal, load_experiment("demo", [*QUICK, *changes]))
    report = run.evaluate(loyal, "test")
    hits = [loyal.targets(user, "test")[0] == loyal.history(user, "test")[-1] for user in range(60)]
    assert report["last_used"]["hr@10"]["mean"] >= np.mean(hits) > 0.3
    lost = {one["figures"]["baseline"]: one for one in report["verdict"] if one["kind"] == "baseline"}
    assert lost.keys() == {"popularity", "last_used", "most_used", "due_again", "five_then_ease"}
    results = [one["figures"].get("result") for one in report["verdict"]]
    worse = results.count("worse")
    assert results[:worse] == ["worse"] * worse
    assert lost["last_used"]["sentence"].startswith("Worse than last used items: ndcg@10 is 0.")
    slots = [one for one in report["verdict"] if one["kind"] == "slot"]
    assert report["verdict"][0] == slots[0]
    assert slots[0]["sentence"].startswith("Below last used items for items that the user had used, ")
