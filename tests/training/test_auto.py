"""`--experiment auto`: what the data says, the candidates that it leads to, their trials, and the reasons."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import prepared, with_events
from turret.data.prepared import PreparedData
from turret.training.auto import choice as choice_module
from turret.training.auto import trials as module
from turret.training.auto.candidates import Facts, candidates, facts_of
from turret.training.auto.choice import (
    RULE_AHEAD,
    choose,
    data_reasons,
    pick_reasons,
    recency_reason,
    rule_values,
    trial_reason,
    window_reasons,
)
from turret.training.auto.picking import Pick, Tried, pick
from turret.training.auto.trials import Begun, Trial, run_trials, rungs, seconds_left
from turret.training.begin import AUTO, begin_run
from turret.training.checkpoint import Progress, load_progress
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import means_of
from turret.training.evaluation.metrics import Values
from turret.training.loop.train import train
from turret.training.loop.trainer import Trainer
from turret.training.run import AUTO_TRIALS, CHECKPOINT, CHOSEN, MODEL, Run
from turret.training.verdict.order import Order

ORDINARY = Facts(
    items=3_000,
    examples=250_000,
    item_features=(),
    item_tastes={},
    user_features=(),
    order=Order(2.0),
    in_file_order=False,
    repeat_share=0.0,
    ranks_repeats=False,
    has_validation=True,
    has_negatives=False,
)


def facts(**others: Any) -> Facts:
    """An ordered log of ids without repeats, but for `others`."""
    return replace(ORDINARY, **others)


def experiments(overrides: Mapping[str, object] | None = None, **others: Any) -> dict[str, ExperimentConfig]:
    return candidates(facts(**others), overrides or {})[0]


def test_given_settings_win_over_all_rules() -> None:
    """A setting of a section that the rules replace, or a whole section."""
    sampler = {"kind": "uniform", "negatives": 7}
    for given in (
        {"training.epochs": 2, "objective.sampler.negatives": 7},
        {"training.epochs": 2, "objective": {"loss": "sampled_softmax", "sampler": sampler}},
    ):
        for experiment in experiments(given, items=200_000).values():
            assert experiment.training.epochs == 2
            assert experiment.objective.sampler is not None
            assert experiment.objective.sampler.model_dump()["negatives"] == 7


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        ({}, 256),
        ({"tower.scoring.pairs": 0}, 0),
        ({"tower.user.interests": 2}, 0),
        ({"tower.scoring.absolute": True}, 0),
        ({"objective": {"loss": "hierarchical_softmax"}}, 0),
    ],
    ids=str,
)
def test_pairs_of_items_give_way_to_given_settings(given: dict[str, object], pairs: int) -> None:
    found = experiments(given)
    assert {experiment.tower.scoring.pairs for experiment in found.values()} == {pairs}


SHORT = {"training.epochs": 1, "training.batch_size": 512, "tower.dimension": 8, "training.device": "cpu"}


@pytest.mark.parametrize(
    ("seconds", "shares", "kept"),
    [
        ((10.0, 10.0), [0.5], [2]),
        ((10.0, 10.0, 10.0), [0.25, 0.5], [2, 2]),
        ((10.0, 10.0, 10.0, 10.0), [0.25, 0.5], [2, 2]),
        ((10.0,) * 5, [0.125, 0.25, 0.5], [3, 2, 2]),
        # The dearest trial, of 30 seconds, takes as long as the training of the first.
        ((10.0, 30.0), [1 / 3], [2]),
    ],
)
def test_the_trials_of_the_others_take_at_most_as_long_as_the_training_of_the_favourite(
    seconds: tuple[float, ...], shares: list[float], kept: list[int]
) -> None:
    plan = rungs(seconds)
    assert [rung.share for rung in plan] == pytest.approx(shares)
    assert [rung.kept for rung in plan] == kept
    for picked in permutations(range(len(seconds))):
        spent, before, left = 0.0, 0.0, picked
        for rung in plan:
            spent += (rung.share - before) * sum(seconds[place] for place in left[1:])
            before, left = rung.share, left[: rung.kept]
        assert spent <= seconds[0] + 1e-9


def stub(
    monkeypatch: pytest.MonkeyPatch, reached: Mapping[int, float], rises: Mapping[int, float] | None = None
) -> list[tuple[int, int]]:
    """Let an epoch take a second, and the candidate with a seed reach these values; seeds and epochs.

    What a candidate `rises` is what the later half of its epochs adds.
    """
    trained = []

    def train(run: Run, data: PreparedData, until: int) -> tuple[Progress, dict[str, Values]]:
        seed = run.experiment.training.seed
        trained.append((seed, until))
        run.folder.mkdir(exist_ok=True)
        values = np.full(30, reached[seed]) + np.linspace(0.0, 0.001, 30)
        curve = [[until // 2, reached[seed] - (rises or {}).get(seed, 0.0)], [until, reached[seed]]]
        progress = Progress(epoch=until, best_epoch=until, best=reached[seed], validated=curve)
        return progress, {"ndcg@10": values}

    monkeypatch.setattr(module, "train_trial", train)
    monkeypatch.setattr(module, "_seconds", lambda experiment, data: float(experiment.training.epochs))
    return trained


def planned(*epochs: int) -> dict[str, ExperimentConfig]:
    """Candidates with so many epochs, named and seeded by their places."""
    return {
        str(seed): load_experiment("demo", {"training.epochs": count, "training.seed": seed})
        for seed, count in enumerate(epochs)
    }


def test_the_better_half_goes_on_and_the_last_two_are_compared(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    trained = stub(monkeypatch, {0: 0.1, 1: 0.3, 2: 0.2, 3: 0.4})
    said: list[str] = []
    trials = [trial for trial, _ in run_trials(planned(40, 40, 40, 40), handmade, tmp_path, said.append)]
    assert trained == [(0, 10), (1, 10), (2, 10), (3, 10), (1, 20), (3, 20)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]
    ended = [(trial["candidate"], trial["epochs"], trial["stopped"]) for trial in trials]
    assert ended == [("0", 10, True), ("2", 10, True), ("1", 20, False), ("3", 20, False)]
    assert [line.partition(";")[0] for line in said] == [
        f"auto: {seed} until epoch {until} of 40" for seed, until in trained
    ]


def test_a_trial_that_learns_slowly_goes_on(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    """It is compared by what it will have after twice the epochs."""
    trained = stub(monkeypatch, {0: 0.1, 1: 0.3, 2: 0.2, 3: 0.4}, rises={0: 0.08, 2: 0.15})
    list(run_trials(planned(40, 40, 40, 40), handmade, tmp_path, print))
    assert trained[4:] == [(2, 20), (3, 20)]


def test_a_trial_that_serves_new_items_goes_on_while_it_is_tied_with_the_best(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    trained = stub(monkeypatch, {0: 0.3, 1: 0.3, 2: 0.3, 3: 0.2})
    monkeypatch.setattr(module, "serves_new", lambda experiment: experiment.training.seed >= 2)
    list(run_trials(planned(40, 40, 40, 40), handmade, tmp_path, print))
    assert trained[4:] == [(0, 20), (2, 20)]


def test_a_candidate_that_would_take_long_has_no_trial_and_a_trial_has_an_epoch(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    """Left out: four times as long, and more than a minute."""
    trained = stub(monkeypatch, {0: 0.1, 1: 0.3, 2: 0.2})
    trials = [trial for trial, _ in run_trials(planned(20, 80, 2), handmade, tmp_path, print)]
    assert trials[0]["failure"] == "its training would take 4 times as long as that of 0"
    assert trained == [(0, 10), (2, 1)]


def test_a_trial_that_fails_gives_its_reason_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    """The data has no times for the age of an example."""
    monkeypatch.setattr(Trainer, "seconds_an_epoch", lambda trainer, steps: 1.0)
    ordinary = load_experiment("demo", SHORT)
    impossible = load_experiment("demo", {**SHORT, "tower.user.example_age": True})
    candidates = {"impossible": impossible, "ordinary": ordinary, "other": ordinary}
    (failed, nothing), (good, values), _ = run_trials(candidates, handmade, tmp_path, print)
    assert (failed["candidate"], failed["values"], nothing) == ("impossible", {}, {})
    assert good["values"] == {"ndcg@10": float(values["ndcg@10"].mean())}
    told = trial_reason(failed, "ndcg@10")
    assert told["kind"] == "left_out"
    assert told["sentence"].startswith("impossible is left out: tower.user.example_a")
    assert (good["candidate"], good["epoch"], good["epochs"]) == ("ordinary", 1, 1)
    figures = {"ndcg@10": 0.25, "again ndcg@10": 0.5, "new ndcg@10": 0.125}
    told = trial_reason({**good, "planned": 4, "values": figures, "seconds": 3.4, "stopped": True}, "ndcg@10")
    reached = "ordinary has reached a validation ndcg@10 of 0.2500 (again 0.5000, new 0.1250), at"
    assert f"After 1 of 4 epochs (3 s), {reached}" in told["sentence"]
    assert told["sentence"].endswith(", at epoch 1, and ends there, in the worse half.")


def test_the_time_left_is_that_of_the_trials_left_and_of_a_whole_training(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    """Two of three trainings of 100 seconds go on; the trials take twice as long as estimated."""
    stub(monkeypatch, {})
    begun = [
        Begun(Run(tmp_path, experiment, tmp_path, ""), 100.0)
        for experiment in planned(100, 100, 100).values()
    ]
    plan = rungs([100.0] * 3)
    assert seconds_left(begun, plan) == pytest.approx(3 * 25 + 2 * 25 + 50)
    begun[0].seconds, begun[0].trial = 50.0, {"epochs": 25, "planned": 100}
    assert seconds_left(begun, plan) == pytest.approx(2 * (2 * 25 + 2 * 25 + 50))


def test_the_training_of_the_picked_candidate_goes_on_from_its_trial(
    handmade: PreparedData, tmp_path: Path
) -> None:
    """As a training without trials, epoch by epoch; nothing of the trials is left."""
    values = {**SHORT, "training.epochs": 4, "training.refit": False}
    run, data = begin_run(tmp_path / "auto", handmade, AUTO, values, report=lambda _: None)
    assert run.trial is not None
    assert run.choice is not None
    begun = load_progress(run.trial / CHECKPOINT)
    train(run, data, report=lambda _: None)
    alone = replace(run, folder=tmp_path / "alone", trial=None)
    progress = train(alone, data, report=lambda _: None)
    assert 0 < begun.epoch < progress.epoch == 4
    assert run.progress() == replace(progress, seconds=getattr(run.progress(), "seconds", 0.0))
    assert not (run.folder / AUTO_TRIALS).exists()
    for name, tensor in load_file(alone.folder / MODEL).items():
        assert torch.equal(tensor, load_file(run.folder / MODEL)[name])


def give(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, float | None], found: Facts) -> None:
    """Let the data have these figures, and trials these values of each of 100 users."""

    def trials(
        candidates: Mapping[str, ExperimentConfig], data: PreparedData, folder: Path, report: Any
    ) -> Iterator[tuple[Trial, dict[str, Values]]]:
        for name in candidates:
            of_users = {} if values[name] is None else {"ndcg@10": np.full(100, values[name])}
            reached = {"values": means_of(of_users), "epoch": 2, "epochs": 3, "planned": 6, "seconds": 1.0}
            reached |= {"estimated": 2.0, "stopped": False}
            yield {"candidate": name, **reached, "failure": "" if of_users else "no memory"}, of_users

    monkeypatch.setattr(choice_module, "facts_of", lambda data: found)
    monkeypatch.setattr(choice_module, "run_trials", trials)
    monkeypatch.setattr(choice_module, "rule_values", lambda *_: {"ease": {"ndcg@10": np.full(100, 0.105)}})


def test_the_best_validation_value_is_picked_and_reasons_are_reported_as_they_arise(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    values = {"transformer": 0.11, "transformer_short": None, "pooled": 0.12}
    give(monkeypatch, values, facts())
    lines: list[str] = []
    experiment, choice = choose(handmade, {}, tmp_path, lines.append)
    assert choice["picked"] == "pooled"
    assert experiment.tower.user.kind == "pooled"
    assert lines == [f"auto: {reason['sentence']}" for reason in choice["reasons"]]
    best = "pooled, whose validation ndcg@10 of 0.1200 is the best; transformer has 0.1100."
    assert lines[-1] == f"auto: Picked: {best}"
    kinds = [reason["kind"] for reason in choice["reasons"]]
    assert kinds == ["order", "size", "trial", "left_out", "trial", "picked"]


def test_without_a_trial_that_succeeds_nothing_is_picked(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    give(monkeypatch, dict.fromkeys(("transformer", "transformer_short", "pooled")), facts())
    with pytest.raises(TrainingError, match="every trial failed: no memory"):
        choose(handmade, {}, tmp_path, print)


def test_a_run_stores_the_choice_and_the_experiment_as_a_file(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    give(monkeypatch, {"transformer": 0.11, "transformer_short": 0.1, "pooled": 0.12}, facts())
    run, _ = begin_run(tmp_path, handmade, AUTO, ["training.seed=7"])
    run.write()
    stored = Run.read(tmp_path)
    assert stored == run
    assert stored.choice is not None
    assert set(stored.choice) == {"picked", "reasons", "trials"}
    assert load_experiment(str(tmp_path / CHOSEN)) == run.experiment
    assert run.experiment.training.seed == 7


TASTES = {"colour": 1.0, "genre": 23.74, "shelf": 4.9, "tag": 4.8}
FEATURES: dict[str, Any] = {"item_features": ("genre", "price"), "user_features": ("age",)}
BOTH = "transformer transformer_short"


@pytest.mark.parametrize(
    ("others", "reasons", "tried"),
    [
        ({}, "order", f"{BOTH} pooled"),
        ({"order": Order(1.0)}, "no_order", "set pooled"),
        ({"order": Order(1.3)}, "unclear_order", f"{BOTH} set pooled"),
        ({"examples": 199_999}, "order", "transformer_short transformer pooled"),
        ({"in_file_order": True}, "order", f"set {BOTH} pooled"),
        (FEATURES, "order features", f"{BOTH} features"),
        ({"order": Order(1.0), **FEATURES}, "no_order features", "set features"),
        ({"repeat_share": 0.33, "ranks_repeats": True}, "order repeats", "pooled ids transformer"),
        (
            {"order": Order(1.0), "repeat_share": 0.33, "ranks_repeats": True, **FEATURES},
            "no_order features repeats",
            "pooled ids set features",
        ),
        ({"items": 200_000}, "order large_catalog", f"{BOTH} pooled"),
        ({"has_negatives": True}, "order unread_labels", f"{BOTH} pooled"),
        ({**FEATURES, "item_tastes": TASTES}, "order features", f"{BOTH} features"),
        (
            {"order": Order(1.0), **FEATURES, "item_tastes": TASTES},
            "no_order features tastes",
            "set categories features",
        ),
        (
            {"order": Order(1.0), **FEATURES, "item_tastes": {"genre": 1.0}},
            "no_order features no_tastes",
            "set features",
        ),
    ],
    ids=str,
)
def test_the_candidates_follow_from_the_data(others: dict[str, Any], reasons: str, tried: str) -> None:
    found = facts(**others)
    made, refused = candidates(found, {})
    assert (" ".join(made), refused) == (tried, {})
    given = list(data_reasons(found, next(iter(made.values())), refused))
    assert [one["kind"] for one in given] == [*reasons.split(), "size"]


def test_the_training_part_alone_says_what_is_tried(shop: PreparedData) -> None:
    """Other items in the validation and the test part change no figure; other ones in training do."""
    found = facts_of(shop)
    assert found.item_tastes
    assert facts_of(with_events(shop, held_out=True)) == found
    assert facts_of(with_events(shop, held_out=False)).item_tastes != found.item_tastes


def test_settings_of_candidates_follow_from_the_data() -> None:
    """What they read, what a step scores, how long they are trained, and whether used items are ranked."""
    tasteful = experiments(order=Order(1.0), item_features=("genre",), item_tastes=TASTES)
    assert tasteful["set"].tower.item.features == "all"
    assert tasteful["categories"].tower.item.features == ("genre", "shelf")
    assert experiments(ranks_repeats=True)["pooled"].evaluation.exclude_seen is False
    losses = {
        items: [one.objective.loss.kind for one in experiments(items=items, **FEATURES).values()]
        for items in (3_000, 30_000, 200_000)
    }
    assert losses == {
        3_000: ["full_softmax", "full_softmax", "full_softmax"],
        30_000: ["full_softmax", "full_softmax", "sampled_softmax_corrected"],
        200_000: ["sampled_softmax", "sampled_softmax", "sampled_softmax_corrected"],
    }
    small, large = (experiments(items=items)["transformer"].tower.scoring.pairs for items in (20_000, 20_001))
    assert (small, large) == (256, 0)
    assert experiments(ranks_repeats=True)["pooled"].tower.scoring.pairs == 0
    few, many = (experiments(examples=count)["transformer"].training for count in (1_000, 10**8))
    assert (few.batch_size, few.epochs, few.patience) == (256, 100, 20)
    assert (many.batch_size, many.epochs, many.patience) == (4096, 10, 5)


def test_a_reason_has_its_figures_and_a_candidate_that_does_not_fit_is_told() -> None:
    found = facts()
    made, refused = candidates(found, {"tower.user.blocks": 1})
    assert (list(made), list(refused)) == (["transformer", "transformer_short"], ["pooled"])
    order, _, last = data_reasons(found, made["transformer"], refused)
    assert order["figures"]["ratio"] == 2.0
    assert "recur 2.0 times as often as in shuffled histories" in order["sentence"]
    assert last["kind"] == "refused"
    assert "pooled does not fit the given settings: there is no setting" in last["sentence"]


def test_without_trials_the_first_candidate_is_picked(
    monkeypatch: pytest.MonkeyPatch, handmade: PreparedData, tmp_path: Path
) -> None:
    give(monkeypatch, {}, facts(has_validation=False))
    _, choice = choose(handmade, {}, tmp_path, print)
    assert (choice["picked"], choice["trials"]) == ("transformer", [])
    assert choice["reasons"][-1]["kind"] == "no_trials"


# ---- The rule of choice, by values of each of 60 users: half of them have a target of each slot

SLOTS, NOISE = ("again", "new"), np.random.default_rng(0).uniform(-0.1, 0.1, 60)


def of_users(again: float, new: float) -> dict[str, Values]:
    """Values around these means in both slots: those of the users with such a target, and NaN of others."""
    values, is_new = np.where(np.arange(60) < 30, again, new) + NOISE, np.arange(60) >= 30
    slots = {"again": ~is_new, "new": is_new}
    return {"ndcg@10": values} | {
        f"{slot} ndcg@10": np.where(members, values, np.nan) for slot, members in slots.items()
    }


RULES = {"most_bought": of_users(0.6, 0.1), "ease": of_users(0.3, 0.3)}


def picked(*tried: Tried, rules: Mapping[str, dict[str, Values]] = RULES) -> Pick:
    """The choice among candidates "a", "b", "c"."""
    return pick(dict(zip("abc", tried, strict=False)), rules, "ndcg@10")


def one(again: float, new: float, serves_new: bool = False, seconds: float = 10.0) -> Tried:
    return Tried(of_users(again, new), serves_new, seconds)


def test_targets_weigh_by_their_age_where_what_is_popular_changes(
    loyal: PreparedData, tmp_path: Path
) -> None:
    """By a half-life as long as the newest tenth of the events."""
    rows = [
        {"user": f"u{user}", "item": f"i{day // 5}-{(user + day) % 3}", "time": 1_700_000_000 + 86_400 * day}
        for user in range(60)
        for day in range(user % 5, 20)
    ]
    reasons = []
    for data in (prepared(tmp_path, rows), loyal):
        experiment = next(iter(candidates(facts_of(data), {})[0].values()))
        reasons.append(recency_reason(rule_values(data, experiment), data, experiment.training.metric))
    changing, steady = reasons
    assert steady is None
    assert changing is not None
    assert 1 <= changing["figures"]["half_life"] <= 3
    assert "so targets weigh half as much every" in changing["sentence"]
    made, _ = candidates(replace(facts_of(loyal), half_life=2.5), {})
    assert {one.training.half_life for one in made.values()} == {2.5}
    since = changing["figures"]["since"]
    assert since.endswith("d")
    assert 2 <= float(since[:-1]) <= 7
    made, _ = candidates(replace(facts_of(loyal), since=since), {})
    first, *_, last = made
    assert last == f"{first}_recent"
    assert [made[name].training.since for name in made] == [None] * (len(made) - 1) + [since]


@pytest.mark.parametrize(("of_recent", "helped"), [(0.3, False), (0.6, False), (0.1, True)])
def test_a_choice_says_whether_old_events_helped(of_recent: float, helped: bool) -> None:
    tried = {"set": one(0.3, 0.3), "set_recent": one(of_recent, of_recent), "pooled_recent": one(0.9, 0.9)}
    (reason,) = window_reasons(tried, "30d", "ndcg@10")
    assert reason["figures"]["helped"] == helped
    begin = f"Events older than 30d {'helped' if helped else 'did not help'}: set, "
    assert reason["sentence"].startswith(begin)


def test_a_candidate_below_a_rule_in_a_slot_is_not_chosen_if_another_is_not() -> None:
    """However good it is in all; a slot has its own best rule."""
    found = picked(one(1.0, 0.1), one(0.6, 0.3))
    assert (found.name, found.by, found.out, found.ahead) == ("b", "best", ("a",), ())
    (below,) = found.below
    assert (below.candidate, below.metric, below.rule) == ("a", "new ndcg@10", "ease")
    assert below.rule_mean - below.candidate_mean == pytest.approx(0.2)
    assert below.low == pytest.approx(-0.2)
    assert below.high < 0
    reason, last = pick_reasons(found, {"a": {"ndcg@10": 0.55}, "b": {"ndcg@10": 0.45}}, "ndcg@10")
    assert reason["sentence"].startswith(
        "a is not chosen, as it is below EASE for items that are new to the user: it has a validation "
        "new ndcg@10 of 0.0953 against 0.2953, 95 % interval of the difference over paired users [-0.2"
    )
    best = "b, whose validation ndcg@10 of 0.4500 is the best of those left; a has 0.5500."
    assert last["sentence"] == f"Picked: {best}"


def test_where_every_candidate_is_below_a_rule_the_one_in_the_fewest_slots_is_chosen() -> None:
    """The slot in which all are comes first, with the figures of the best candidate there."""
    found = picked(one(0.1, 0.1), one(0.5, 0.15), one(0.6, 0.2))
    assert (found.name, found.ahead, found.out) == ("c", ("new ndcg@10",), ("a", "b"))
    first, *_ = pick_reasons(found, {name: {"ndcg@10": 0.4} for name in "abc"}, "ndcg@10")
    assert (first["kind"], first["figures"]["candidate"]) == (RULE_AHEAD, "c")
    assert first["sentence"].startswith(
        "In the trials every candidate is below EASE for items that are new to the user: c, "
    )
    assert picked(one(0.6, 0.1), one(0.6, 0.2)).name == "b"


def test_a_clearly_better_candidate_is_chosen_whatever_it_costs() -> None:
    found = picked(one(0.6, 0.3, serves_new=True, seconds=1.0), one(0.8, 0.5, seconds=99.0))
    assert (found.name, found.best, found.by, found.below) == ("b", "b", "best", ())


@pytest.mark.parametrize(
    ("tried", "name", "by"),
    [
        ((one(0.62, 0.32), one(0.62, 0.32, serves_new=True, seconds=99.0)), "b", "serves_new"),
        ((one(0.62, 0.32, seconds=16.0), one(0.62, 0.32)), "b", "cheaper"),
        ((one(0.62, 0.32, seconds=14.0), one(0.62, 0.32)), "a", "best"),
        ((one(0.62, 0.32), one(0.62, 0.32)), "a", "best"),
    ],
)
def test_a_tie_goes_to_features_then_to_the_cheaper_then_to_the_earlier(
    tried: tuple[Tried, ...], name: str, by: str
) -> None:
    """A clock's quarter is no difference."""
    found = picked(*tried)
    assert (found.name, found.by) == (name, by)


def test_a_difference_inside_the_paired_interval_is_a_tie() -> None:
    """Half of the users gain, the others lose, and a little more is gained than lost."""
    other = of_users(0.62, 0.32)
    other["ndcg@10"] = other["ndcg@10"] + np.tile([0.2, -0.19], 30)
    found = picked(one(0.62, 0.32), Tried(other, False, 10.0))
    assert (found.name, found.best, found.by) == ("a", "b", "earlier")
    found = picked(Tried(other, False, 20.0), one(0.62, 0.32))
    assert (found.name, found.best, found.by) == ("b", "a", "cheaper")


def test_whole_answers_are_the_one_slot_where_used_items_are_not_ranked() -> None:
    """And a slot of fewer than 30 users tells nothing."""
    whole = {name: {"ndcg@10": own["ndcg@10"]} for name, own in RULES.items()}
    bad, good = (Tried({"ndcg@10": 0.5 * factor + NOISE}, factor < 1, 1.0) for factor in (0.5, 1))
    found = picked(bad, good, rules=whole)
    assert (found.name, found.out, found.below[0].metric) == ("b", ("a",), "ndcg@10")
    few = {name: np.where(np.arange(60) < 31, value, np.nan) for name, value in of_users(0.6, 0.1).items()}
    assert picked(Tried(few, False, 1.0)).below == ()
