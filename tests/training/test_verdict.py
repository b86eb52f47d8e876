"""The sentences that an evaluation ends with."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.checkpoint import Progress
from turret.training.config.experiment import TrainingConfig, load_experiment
from turret.training.verdict import unread
from turret.training.verdict.comparison import baseline_findings, left_out_findings, too_small
from turret.training.verdict.finding import paragraphs
from turret.training.verdict.repeats import repeat_share, repeats
from turret.training.verdict.training_end import training_end
from turret.training.verdict.unread import recurrences, unread_features, unread_order
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


M = "ndcg@10"


def against_ease(
    low: float = -0.001, high: float = 0.003, mean: float = 0.04, users: int = 1000
) -> dict[str, Any]:
    """Towers at 0.04 against EASE at `mean`, and popularity far behind both."""
    return {
        "users": users,
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


TARGETS = {"relevant_used_before": 2, "relevant_items": 9}


@pytest.fixture
def distinct(tmp_path: Path) -> PreparedData:
    """Users that have each item once."""
    rows = [f"{user},{item}" for user in "abc" for item in "pqrs"]
    (tmp_path / "events.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    config = {"source": tmp_path / "events.csv", "columns": {"in_file_order": True}}
    prepare(PrepareConfig.model_validate(config), tmp_path / "prepared")
    return PreparedData.open(tmp_path / "prepared")


def test_the_share_of_repeats_counts_later_events_of_an_item(
    handmade: PreparedData, distinct: PreparedData
) -> None:
    """Of a's seven events two repeat p and q; of all 18 events that is a ninth."""
    for data, share in ((handmade, 2 / 18), (distinct, 0)):
        assert repeat_share(data) == pytest.approx(share)
        older = replace(data, manifest=data.manifest.model_copy(update={"repeat_share": None}))
        assert repeat_share(older) == pytest.approx(share)


def test_many_repeats_that_are_masked_are_told(handmade: PreparedData, distinct: PreparedData) -> None:
    found = repeats({**TARGETS, "exclude_seen": True}, handmade)
    assert found is not None
    assert found.kind == "repeats"
    assert found.sentence.startswith("11% of the events repeat an item of their user")
    assert "2 of 9 targets can't be hit" in found.sentence
    assert repeats({**TARGETS, "exclude_seen": True}, distinct) is None


def test_no_repeats_and_no_mask_is_told(handmade: PreparedData, distinct: PreparedData) -> None:
    found = repeats({**TARGETS, "exclude_seen": False}, distinct)
    assert found is not None
    assert found.sentence.startswith("Only 0.0% of the events repeat an item of their user")
    assert "set it to true" in found.sentence
    assert repeats({**TARGETS, "exclude_seen": False}, handmade) is None


SETTINGS = TrainingConfig(epochs=8)


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


def test_features_that_nothing_reads_are_told(shop: PreparedData) -> None:
    """The shop's items and users have features, youtubednn reads ids alone."""
    found = unread_features(load_experiment("youtubednn"), shop)
    assert found is not None
    assert found.kind == "unread_features"
    assert found.figures["item_features"] == [one.name for one in shop.manifest.item_features]
    assert "the shipped experiment dssm reads them" in found.sentence
    assert found.figures["experiments"] == ["dssm"]


def test_features_that_are_read_are_not_told(shop: PreparedData, handmade: PreparedData) -> None:
    """By the experiment; or there are none."""
    assert unread_features(load_experiment("dssm"), shop) is None
    assert unread_features(load_experiment("youtubednn"), handmade) is None


def test_an_order_that_predicts_the_next_item_is_told(shop: PreparedData) -> None:
    """The shop's users read series, so successive items recur."""
    found = unread_order(load_experiment("ids"), shop)
    assert found is not None
    assert found.kind == "unread_order"
    assert "this experiment does not read that order" in found.sentence
    assert "transformer and transformer_short read it" in found.sentence
    found = unread_order(load_experiment("youtubednn"), shop)
    assert found is not None
    assert "this experiment reads little of that order" in found.sentence


def test_an_order_is_not_told_where_it_is_read_or_predicts_nothing(
    shop: PreparedData, handmade: PreparedData
) -> None:
    """By a transformer; of histories in any order; and of files in the order of their rows."""
    assert unread_order(load_experiment("transformer"), shop) is None
    assert unread_order(load_experiment("ids"), shuffled(shop)) is None
    assert unread_order(load_experiment("ids"), handmade) is None


def test_a_few_recurrences_are_no_order(shop: PreparedData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "LEAST_RECURRENCES", 10**9)
    assert unread_order(load_experiment("ids"), shop) is None


def test_recurrences_count_coincidences_of_pairs(handmade: PreparedData) -> None:
    """Of the pairs of the training part, qr and st are there twice."""
    pairs: dict[str, int] = {}
    for user in range(len(handmade.users)):
        items = list(dict.fromkeys(handmade.history(user, "validation").tolist()))
        for pair in pairwise(items):
            pairs[str(pair)] = pairs.get(str(pair), 0) + 1
    expected = sum(count * (count - 1) // 2 for count in pairs.values())
    assert recurrences(handmade, False) == expected == 2


RISING = [0.01, 0.02, 0.03, 0.04, 0.045, 0.05, 0.052, 0.055]


@pytest.mark.parametrize(
    ("trained", "kind", "words"),
    [
        (
            progress(RISING),
            "still_improving",
            "rose by 10.0% from epoch 6 (0.0500) to 8 (0.0550); train again",
        ),
        (progress([*RISING[:6], 0.0501, 0.0502]), None, ""),
        (progress([0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.06]), None, ""),
        (progress(RISING[:4]), None, ""),
        (progress([0.05]), None, ""),
        (progress(RISING[:3], finished=False), "unfinished", "after epoch 3 of 8; `turret train --resume`"),
        (None, None, ""),
    ],
    ids=[
        "a rise of a tenth",
        "hardly any",
        "best before",
        "stopped",
        "one epoch",
        "interrupted",
        "no records",
    ],
)
def test_a_training_that_could_go_on_is_told(trained: Progress | None, kind: str | None, words: str) -> None:
    end = training_end(trained, SETTINGS)
    assert (end.kind if end else None) == kind
    assert words in (end.sentence if end else "")


NO_HIT = {**against_ease(0.0, 0.0), **{name: {M: {"mean": 0.0}} for name in ("towers", "popularity", "ease")}}


@pytest.mark.parametrize(
    ("report", "result", "needed"),
    [
        (against_ease(0.001, 0.003, mean=0.038), "better", "enough"),
        (against_ease(-0.003, -0.001, mean=0.038), "worse", "enough"),
        (against_ease(-0.001, 0.003, mean=0.038), "unclear", "enough"),
        (against_ease(0.01, 0.06, mean=0.0), "better", 56251),
        (against_ease(-0.008, 0.008), "unclear", 4000),
        (NO_HIT, "unclear", None),
        ({**NO_HIT, "towers": {M: {"mean": 0.2}}}, "unclear", "enough"),
    ],
    ids=["better", "worse", "unclear", "ease without a hit", "a tenth", "no hit", "towers alone"],
)
def test_a_baseline_is_beaten_or_not_and_an_evaluation_large_enough_or_not(
    report: dict[str, Any], result: str, needed: object
) -> None:
    """`needed` users would bring the interval to a tenth of the metric; without a hit nothing can."""
    of_popularity, of_ease = baseline_findings(report, M)
    assert (of_popularity.figures["result"], of_ease.figures["result"]) == ("better", result)
    small = too_small(report, M)
    assert (small.figures.get("users_needed") if small else "enough") == needed


def test_the_sentences_give_the_figures() -> None:
    """On lines of a hundred characters; the AUC is that of the users with negatives."""
    report = {
        **against_ease(-0.003, -0.001, mean=0.038),
        "baseline_limits": {"ease": "the 10,000 most popular items"},
        "baselines_left_out": {"als": "gone"},
    }
    found = [*baseline_findings(report, M), *left_out_findings(report)]
    shown = paragraphs({"verdict": [finding.as_json() for finding in found]})
    assert max(map(len, shown.splitlines())) <= 100
    said = " ".join(shown.split())
    assert (
        "- Better than popularity: ndcg@10 is 0.0400 against 0.0100, a difference of +0.0300 (+300%), 95 % "
        "interval over paired users [+0.0200, +0.0350]."
    ) in said
    assert "- Worse than EASE: ndcg@10 is 0.0400 against 0.0380, a difference of +0.0020 (+5%)" in said
    assert "The baseline ease was fitted on the 10,000 most popular items alone" in said
    assert "The baseline als was left out: gone." in said
    of_auc = json.loads(json.dumps(against_ease(-0.008, 0.008)).replace(M, "auc"))
    small = too_small({**of_auc, "users_with_negatives": 250}, "auc")
    assert small is not None
    assert "with 250 users the interval of the difference from EASE is 20% of its auc" in small.sentence
