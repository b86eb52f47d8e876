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
from turret.training.verdict.finding import Finding, paragraphs
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


@pytest.mark.parametrize(
    ("low", "high", "result", "opening"),
    [
        (0.001, 0.003, "better", "Better than EASE: ndcg@10 is 0.0400 against 0.0380"),
        (-0.003, -0.001, "worse", "Worse than EASE: ndcg@10 is 0.0400 against 0.0380"),
        (-0.001, 0.003, "unclear", "No clear difference from EASE: ndcg@10 is 0.0400 against 0.0380"),
    ],
)
def test_the_interval_decides_between_better_worse_and_neither(
    low: float, high: float, result: str, opening: str
) -> None:
    """One of three sentences; the other two don't appear."""
    popularity, ease = baseline_findings(against_ease(low, high, mean=0.038), M)
    assert ease.sentence.startswith(opening)
    assert f"+0.0020 (+5%), 95 % interval over paired users [{low:+.4f}, {high:+.4f}]" in ease.sentence
    assert ease.figures["result"] == result
    assert ease.figures["difference"]["low"] == low
    assert popularity.sentence.startswith("Better than popularity")


def test_a_baseline_without_a_hit_has_no_share() -> None:
    _, ease = baseline_findings(against_ease(0.01, 0.06, mean=0.0), M)
    assert "a difference of +0.0400, 95 %" in ease.sentence


def test_an_evaluation_that_can_not_tell_a_tenth_is_too_small() -> None:
    """0.008 to either side of 0.04 is 20 %; four times the users halve that."""
    found = too_small(against_ease(-0.008, 0.008), M)
    assert found is not None
    assert found.kind == "too_small"
    assert "with 1,000 users the interval of the difference from EASE is 20% of its ndcg@10" in found.sentence
    assert "about 4,000 users would make it 10%" in found.sentence
    assert found.figures["users_needed"] == 4000


def test_the_users_of_an_auc_are_those_with_negatives() -> None:
    of_auc = json.loads(json.dumps(against_ease(-0.008, 0.008)).replace(M, "auc"))
    found = too_small({**of_auc, "users_with_negatives": 250}, "auc")
    assert found is not None
    assert "with 250 users the interval" in found.sentence
    assert (found.figures["users"], found.figures["users_needed"]) == (250, 1000)


def test_an_evaluation_that_can_tell_says_nothing() -> None:
    assert too_small(against_ease(-0.003, 0.003), M) is None


def test_an_evaluation_without_any_hit_tells_nothing() -> None:
    nothing = against_ease(0.0, 0.0, mean=0.0)
    nothing["towers"][M]["mean"] = nothing["popularity"][M]["mean"] = 0.0
    found = too_small(nothing, M)
    assert found is not None
    assert found.sentence == "The evaluation can't tell anything: ndcg@10 of all 1,000 users is 0."
    nothing["towers"][M]["mean"] = 0.2
    assert too_small(nothing, M) is None


def test_limits_and_baselines_that_are_missing_are_told() -> None:
    """And neither where there are none."""
    assert list(left_out_findings(against_ease())) == []
    limited = {**against_ease(), "baseline_limits": {"ease": "the 10,000 most popular items"}}
    (found,) = left_out_findings(limited)
    assert found.kind == "baseline_limits"
    assert found.sentence.startswith("The baseline ease was fitted on the 10,000 most popular items alone")
    missing = {**against_ease(), "baselines_left_out": {"als": "implicit is not installed"}}
    (found,) = left_out_findings(missing)
    assert (found.kind, found.sentence) == (
        "baseline_left_out",
        "The baseline als was left out: implicit is not installed.",
    )


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


def test_a_rise_over_the_last_quarter_is_told() -> None:
    """From epoch 6 to 8: 0.050 to 0.055 is 10 %."""
    found = training_end(progress([0.01, 0.02, 0.03, 0.04, 0.045, 0.05, 0.052, 0.055]), SETTINGS)
    assert found is not None
    assert found.kind == "still_improving"
    assert found.sentence == (
        "Training was still improving at its end: validation ndcg@10 rose by 10.0% from epoch 6 (0.0500) to "
        "8 (0.0550); train again with --set training.epochs=16."
    )
    assert found.figures["rise"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "values",
    [
        [0.01, 0.02, 0.03, 0.04, 0.045, 0.05, 0.0501, 0.0502],  # hardly any rise
        [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.06],  # the best came before
        [0.01, 0.02, 0.03, 0.04],  # stopped early, as nothing got better
        [0.05],
    ],
)
def test_a_training_that_came_to_its_end_says_nothing(values: list[float]) -> None:
    assert training_end(progress(values), SETTINGS) is None


def test_an_interrupted_training_is_told() -> None:
    found = training_end(progress([0.01, 0.02, 0.03], finished=False), SETTINGS)
    assert found is not None
    assert found.kind == "unfinished"
    assert "interrupted after epoch 3 of 8; `turret train --resume` continues it" in found.sentence
    assert training_end(progress([0.01, 0.02, 0.03]), SETTINGS) is None


def test_without_records_nothing_is_said() -> None:
    assert training_end(None, SETTINGS) is None


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


def test_a_single_feature_that_is_left_over_is_named(shop: PreparedData) -> None:
    *some, last = [one.name for one in shop.manifest.item_features]
    chosen = {"tower.item.features": some, "tower.user.features": "all"}
    found = unread_features(load_experiment("youtubednn", chosen), shop)
    assert found is not None
    assert f"items have the feature ({last}); the shipped experiment dssm reads it" in found.sentence


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


def test_each_sentence_is_a_paragraph_of_the_width_of_the_tables() -> None:
    findings = [Finding("repeats", "word " * 40 + "end.", {"share": 0.5}), Finding("too_small", "Short.", {})]
    text = paragraphs({"verdict": [finding.as_json() for finding in findings]})
    head, first, *_, last = text.splitlines()
    assert (head, last) == ("verdict", "- Short.")
    assert first.startswith("- word word")
    assert max(map(len, text.splitlines())) <= 100
