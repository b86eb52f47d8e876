"""Kinds of events: what is a next item, what a history holds, and what answers leave out."""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.oracles import ranking as oracle
from tests.training.conftest import prepared, trained
from turret.activation.held_out import held_out
from turret.activation.ranking import values_of_users
from turret.data.kinds import Seen, read_kinds
from turret.data.prepared import HistoryEnd, PreparedData
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load_golden
from turret.training.auto.candidates import candidates, facts_of
from turret.training.baselines.interactions import Interactions
from turret.training.baselines.registry import BASELINES, chosen_baselines
from turret.training.batches.batches import TrainingBatches, target_counts
from turret.training.config.experiment import (
    EvaluationConfig,
    ExperimentConfig,
    load_experiment,
    with_settings,
)
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import evaluate, relevant_items
from turret.training.evaluation.ranking import histories_of, tower_scores
from turret.training.evaluation.table import metrics_table
from turret.training.export.export import export
from turret.training.model_loss import build_objective
from turret.training.randomness import stream
from turret.training.run import Run, build_model
from turret.training.used_items import Targets
from turret.training.verdict.verdict import verdict
from turret.training.warm_start import ParentBundle, warm_start_weights

DAY = 86_400
KINDS = [
    "view=signal",
    "cart=signal",
    "rent=target:1:consume=3",
    "buy=target:2:consume",
    "back=negative:1:consume=3",
    "skip=negative",
]


def funnel_log(users: int, visits: int = 6, items: int = 24) -> list[dict[str, Any]]:
    """Visits of a day: two items are viewed, a third is put into the cart, and is rented or bought.

    Which of the three it is can be told by the kind alone. Some purchases are given back, and some items are
    skipped.
    """
    random, rows = np.random.default_rng(5), []
    for user in range(users):
        for visit in range(visits):
            time = 1_700_000_000 + DAY * (2 * visit + user % 2)
            viewed = random.choice(items, 3, replace=False)
            chosen = int(random.choice(viewed))
            steps = [(int(item), "cart" if item == chosen else "view") for item in viewed]
            steps.append((chosen, "buy" if random.random() < 0.6 else "rent"))
            if random.random() < 0.2:
                steps.append((int(random.integers(items)), "back"))
            if (user + visit) % 3 == 0:
                steps.append(((7 * user + visit) % items, "skip"))
            for place, (item, kind) in enumerate(steps):
                row = {"user": f"u{user:03}", "item": f"i{item:02}", "time": time + 60 * place, "kind": kind}
                rows.append(row)
    return rows


@pytest.fixture(scope="module")
def funnel(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared(tmp_path_factory.mktemp("funnel"), funnel_log(150), columns__kind="kind", kinds=KINDS)


def names_of(data: PreparedData) -> list[str]:
    """The kind of each event."""
    assert data.kinds is not None
    names = [name for name, kind in data.manifest.kinds.items() if kind.role in ("target", "signal")]
    return [names[code] for code in data.kinds]


def is_target(name: str) -> bool:
    return name in ("rent", "buy")


def events_before(data: PreparedData, user: int, part: str) -> range:
    """The events before the user's first target of a part."""
    kinds, column = names_of(data), {"validation": 0, "test": 1}[part]
    start = int(data.splits[user, column])
    first = next(place for place in range(start, int(data.offsets[user + 1])) if is_target(kinds[place]))
    return range(int(data.offsets[user]), first)


@pytest.mark.parametrize("context", ["causal_window", "causal_segment", "leave_one_out"])
@pytest.mark.parametrize("since", [None, 1_700_000_000 + 4 * DAY])
def test_targets_are_events_of_target_kinds_and_histories_hold_all(
    funnel: PreparedData, context: Any, since: float | None
) -> None:
    kinds, (starts, ends) = names_of(funnel), funnel.bounds("train")
    expected = []
    for user in range(len(funnel.users)):
        for place in range(int(starts[user]), int(ends[user])):
            is_first = place == starts[user] and context != "leave_one_out"
            if (
                is_target(kinds[place])
                and not is_first
                and (since is None or funnel.times[place] >= 1000 * since)
            ):
                expected.append((user, int(funnel.event_items[place])))
    batches = TrainingBatches(funnel, 50, 12, 3, context, since, kinds=True)
    found, codes = [], {(int(u), int(i)): set[int]() for u, i in zip(*_owned(funnel), strict=True)}
    assert funnel.kinds is not None
    for owner, item, code in zip(*_owned(funnel), funnel.kinds.tolist(), strict=True):
        codes[owner, item].add(code)
    for batch in batches.epoch(stream(0, "order", 0)):
        histories = batch.histories
        assert histories.kinds is not None
        for owner, item, code in zip(batch.owners, histories.rows, histories.kinds, strict=True):
            assert int(code) in codes[int(owner), int(item)]
        found += list(zip(histories.users.tolist(), batch.targets.tolist(), strict=True))
        sizes = histories.ends - histories.starts
        assert sizes.min() > 0
        assert sizes.max() <= 12
    assert sorted(found) == sorted(expected)
    assert batches.example_count == len(expected) > 100
    counts = np.bincount([item for _, item in expected], minlength=len(funnel.item_ids))
    assert target_counts(funnel, context, since).tolist() == counts.tolist()


@pytest.mark.parametrize("weight", [1.0, 0.25])
@pytest.mark.parametrize("context", ["causal_window", "full_set"])
def test_towers_learn_first_uses_where_a_term_ranks_the_others(
    funnel: PreparedData, context: Any, weight: float
) -> None:
    """Of signals with their weight, and the items of the user's history are no candidates beside them."""
    kinds, (starts, ends) = names_of(funnel), funnel.bounds("train")
    expected = []
    for user in range(len(funnel.users)):
        used = set()
        items = set(funnel.event_items[starts[user] : ends[user]].tolist())
        for place in range(int(starts[user]), int(ends[user])):
            row = int(funnel.event_items[place])
            has_history = len(items) > 1 if context == "full_set" else place > starts[user]
            if row not in used and has_history and (is_target(kinds[place]) or weight):
                own = 1.0 if is_target(kinds[place]) else weight
                expected.append((user, row, own * (1.0 if funnel.weights is None else funnel.weights[place])))
            used.add(row)
    experiment = load_experiment(
        "demo" if context == "causal_window" else "ids",
        ["evaluation.exclude_seen=false", f"training.signal_weight={weight}", "training.batch_size=50"],
    )
    targets = Targets.of(experiment, funnel)
    batches = TrainingBatches.of(experiment, funnel)
    found = [
        entry
        for batch in batches.epoch(stream(0, "order", 0))
        for entry in zip(
            batch.histories.users.tolist(), batch.targets.tolist(), batch.weights.tolist(), strict=True
        )
    ]
    assert sorted(found) == sorted(expected)
    counts = np.bincount([row for _, row, _ in expected], minlength=len(funnel.item_ids))
    assert target_counts(funnel, experiment.tower.user.context, targets=targets).tolist() == counts.tolist()
    assert build_objective(experiment, funnel, torch.device("cpu")).mask_seen
    unweighted = Targets.of(with_settings(experiment, {"training.signal_weight": 0.0}), funnel)
    assert unweighted.chosen is not None
    assert targets.chosen is not None
    are_targets = funnel.are_targets(slice(None))
    assert unweighted.chosen.tolist() == (targets.chosen & are_targets).tolist()
    alone = load_experiment("demo", ["evaluation.exclude_seen=true"])
    assert not build_objective(alone, funnel, torch.device("cpu")).mask_seen
    kept = Targets.of(alone, funnel).only(np.arange(len(funnel.event_items)))
    assert kept.tolist() == [place for place, kind in enumerate(kinds) if is_target(kind)]


@pytest.mark.parametrize("context", ["causal_window", "causal_segment"])
def test_signals_before_the_first_target_are_its_history(tmp_path: Path, context: Any) -> None:
    """Those that a user begins with in training, and those in front of the first target of a later part."""
    steps = zip("xyzpqrst", ["view", "view", "buy", "view", "view", "buy", "view", "buy"], strict=True)
    rows = [
        {"user": "a", "item": item, "time": 1_700_000_000 + DAY * day, "kind": kind}
        for day, (item, kind) in enumerate(steps)
    ]
    ends = {"validation_from": 1_700_000_000 + 3 * DAY, "test_from": 1_700_000_000 + 6 * DAY}
    kinds = {"columns__kind": "kind", "kinds": ["view=signal", "buy=target"]}
    data = prepared(tmp_path, rows, split={"kind": "time", **ends}, **kinds)
    (batch,) = TrainingBatches(data, 8, 12, 3, context).epoch(stream(0, "order", 0))
    assert data.item_ids.ids(batch.targets.tolist()) == ["z"]
    first, last = batch.histories.starts[0], batch.histories.ends[0]
    assert data.item_ids.ids(batch.histories.rows[first:last].tolist()) == ["x", "y"]
    later: dict[HistoryEnd, str] = {"validation": "xyzpq", "test": "xyzpqrs"}
    for part, read in later.items():
        histories = histories_of(data, np.array([0]), part, 50)
        assert data.item_ids.ids(histories.rows.tolist()) == [*read]


def _owned(data: PreparedData) -> tuple[list[int], list[int]]:
    owners = np.repeat(np.arange(len(data.users)), np.diff(data.offsets))
    return owners.tolist(), data.event_items.tolist()


NEGATIVES = defaultdict[str, list[dict[str, Any]]](list)
for one in funnel_log(150):
    if one["kind"] in ("back", "skip"):
        NEGATIVES[one["user"]].append(one)
EXCLUDED: dict[str, Seen] = {
    "by the table": None,
    "all": True,
    "none": False,
    "of the cart": ("cart",),
    "of returns": ("back",),
}


def naive_excluded(data: PreparedData, user: int, part: str, seen: Seen) -> set[int]:
    """The items that are left out for `user` at the first target of a part, an event after the other."""
    kinds, before = names_of(data), events_before(data, user, part)
    out = set()
    for place in before:
        age = int(data.times[before.stop] - data.times[place])
        consumes = {"buy": True, "rent": age < 3 * DAY * 1000}.get(kinds[place], False)
        if seen is True or (isinstance(seen, tuple) and kinds[place] in seen) or (seen is None and consumes):
            out.add(int(data.event_items[place]))
    asked = int(data.times[before.stop])
    for event in NEGATIVES[str(data.users.id(user))]:
        age, of_returns = asked - 1_000 * event["time"], event["kind"] == "back"
        consumes = of_returns if seen == ("back",) else of_returns and seen is None and age < 3 * DAY * 1_000
        if age > 0 and (seen is True or consumes):
            out |= {*data.item_ids.known_rows([event["item"]])[0].tolist()}
    return out


@pytest.mark.parametrize("seen", EXCLUDED.values(), ids=EXCLUDED)
def test_an_evaluation_ranks_targets_and_leaves_out_what_the_kinds_say(
    funnel: PreparedData, seen: Seen
) -> None:
    """Against plain loops, a user at a time."""
    model, kinds = build_model(load_experiment("youtubednn"), funnel).eval(), names_of(funnel)
    config = EvaluationConfig(k=(3, 9), exclude_seen=seen)
    report = evaluate(model, funnel, "test", config)
    scores_of = tower_scores(model, funnel, "test", funnel.item_counts())
    values: dict[str, list[float]] = {"all": [], "rent": [], "buy": []}
    masked = 0
    for user in relevant_items(funnel, "test").users.tolist():
        places = range(int(funnel.splits[user, 1]), int(funnel.offsets[user + 1]))
        targets = {
            int(funnel.event_items[place]): kinds[place] for place in places if is_target(kinds[place])
        }
        excluded = naive_excluded(funnel, user, "test", seen)
        masked += len(excluded & targets.keys())
        ranked = oracle.ranking(scores_of(np.array([user]))[0].tolist(), excluded)
        values["all"].append(oracle.metric("ndcg@9", ranked, {*targets}))
        for name in ("rent", "buy"):
            if own := {item for item, kind in targets.items() if kind == name}:
                values[name].append(oracle.metric("ndcg@9", ranked, own))
    assert report["towers"]["ndcg@9"]["mean"] == pytest.approx(np.mean(values["all"]))
    for name in ("rent", "buy"):
        group = report["slices"][f"kind {name}"]
        assert group["users"] == len(values[name])
        assert group["towers"]["ndcg@9"]["mean"] == pytest.approx(np.mean(values[name]))
    assert report["relevant_masked"] == masked
    assert report["exclude_seen"] is (seen is True)
    assert ("last_used" in [one.name for one in chosen_baselines([], funnel, seen)[0]]) is (seen is not True)


def test_a_kind_that_the_data_does_not_have_is_refused(funnel: PreparedData, handmade: PreparedData) -> None:
    for data, known in ((funnel, "view, cart, rent, buy, back, skip"), (handmade, "no kinds")):
        with pytest.raises(TrainingError, match=f"exclude_seen names 'play', and .* has {known}; name"):
            evaluate(
                build_model(load_experiment("youtubednn"), data).eval(),
                data,
                "test",
                EvaluationConfig(k=(3,), exclude_seen=("play",)),
            )


def test_popularity_counts_targets(funnel: PreparedData) -> None:
    kinds, bounds = names_of(funnel), zip(*funnel.bounds("train"), strict=True)
    places = [place for start, end in bounds for place in range(start, end) if is_target(kinds[place])]
    counts = np.bincount(funnel.event_items[places], minlength=len(funnel.item_ids))
    assert funnel.item_counts().tolist() == counts.tolist()


@dataclass(frozen=True)
class Trained:
    run: Run
    data: PreparedData
    bundle: Bundle


def trained_on(data: PreparedData, folder: Path, reads: bool = True, repeats: bool = True) -> Run:
    """A run whose towers weigh three events by themselves: their kinds alone tell which comes next."""
    user = {"kind": "attentive", "history_length": 3, "hidden": [], "dropout": 0.0, "kinds": reads}
    settings = {
        "tower": {"dimension": 16, "user": user},
        "objective": {"loss": "full_softmax"},
        "training": {"batch_size": 64, "epochs": 15, "learning_rate": 0.01, "repeats": repeats},
        "evaluation": {"k": [1, 10]},
    }
    return trained(folder / f"run-{reads}", data, ExperimentConfig.model_validate(settings))[0]


@pytest.fixture(scope="module")
def served(funnel: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    run = trained_on(funnel, folder)
    return Trained(run, funnel, Bundle.open(export(run, funnel, folder / "bundles", "kinds")))


def test_towers_that_read_kinds_see_what_is_in_the_cart(funnel: PreparedData, tmp_path: Path) -> None:
    """A third of the time without the kinds: one of three items that were looked at."""
    runs = [trained_on(funnel, tmp_path, reads, repeats=False) for reads in (False, True)]
    found = [run.evaluate(funnel, "test")["towers"]["hr@1"]["mean"] for run in runs]
    assert found[0] < 0.5 < 0.7 < found[1]


def test_a_bundle_answers_as_the_evaluation_does(served: Trained) -> None:
    """Kinds of histories, and what they leave out; the comparison of versions measures the same."""
    data, bundle = served.data, served.bundle
    report = served.run.evaluate(data, "test")
    manifest = bundle.manifest
    assert (manifest.reads_kinds, manifest.kinds, manifest.exclude_seen) == (True, data.manifest.kinds, None)
    held = held_out(data, manifest, manifest)
    values = values_of_users(bundle, data, held, "ndcg@10")["ndcg@10"]
    assert len(values) == report["users"]
    assert values.mean() == pytest.approx(report["towers"]["ndcg@10"]["mean"])
    (slot,) = report["slots"]  # all targets are in one
    values = values_of_users(bundle, data, held, "ndcg@10", [slot])[f"{slot} ndcg@10"]
    assert values.mean() == pytest.approx(report["towers"][f"{slot} ndcg@10"]["mean"])
    assert all(query.history_kinds for query in load_golden(bundle.folder).queries)


def test_a_warm_start_keeps_the_kinds_by_name(served: Trained, tmp_path: Path) -> None:
    """A new kind starts from zeros, as unknown ones are."""
    table = ["cart=signal", "click=signal", "buy=target"]
    log = [event | {"kind": {"view": "click"}.get(event["kind"], event["kind"])} for event in funnel_log(20)]
    data = prepared(tmp_path, log, columns__kind="kind", kinds=table)
    model = build_model(served.run.experiment, data)
    warm_start_weights(model, data, ParentBundle.open(served.bundle.folder))
    learnt = served.run.open_model(served.data).kinds
    assert model.kinds is not None
    assert learnt is not None
    for own, old in ((model.kinds.added, learnt.added), (model.kinds.factor, learnt.factor)):
        assert torch.equal(own, torch.stack([old[1], torch.zeros_like(old[0]), old[3]]))


def test_what_is_consumed_and_can_not_be_hit_is_told(served: Trained, tmp_path: Path) -> None:
    report = served.run.evaluate(served.data, "test")
    (finding,) = (one for one in report["verdict"] if one["kind"] == "repeats")
    masked, targets = report["relevant_masked"], report["relevant_items"]
    kinds = ["rent", "buy", "back"]
    assert finding["figures"] == {"kinds": kinds, "targets_masked": masked, "targets": targets}
    assert (
        f"{masked} of {targets} targets can't be hit, as events of the kinds rent, buy and back"
        in finding["sentence"]
    )
    ranked = {**report, "relevant_masked": 1}
    assert not [
        one for one in verdict(ranked, served.run.experiment, served.data, None) if one["kind"] == "repeats"
    ]


def test_auto_tries_towers_with_kinds_and_without(funnel: PreparedData, handmade: PreparedData) -> None:
    """And leaves what answers leave out to the table."""
    facts = facts_of(funnel)
    assert (facts.kinds, facts.ranks_repeats, facts.exclude_seen) == (4, True, None)
    tried, _ = candidates(facts, {})
    first, *others, last = tried
    assert last == f"{first}_without_kinds"
    assert [tried[name].tower.user.kinds for name in tried] == [True, *[True] * len(others), False]
    assert not any("kinds" in name for name in candidates(facts_of(handmade), {})[0])


def test_a_target_kind_of_which_nobody_has_one_is_no_slice(funnel: PreparedData) -> None:
    """The tables of the evaluation have a figure in each of their cells."""
    kinds = np.array(funnel.kinds)
    names = list(read_kinds(funnel.manifest.kinds))
    kinds[kinds == names.index("rent")] = names.index("buy")
    model = build_model(load_experiment("youtubednn"), funnel).eval()
    report = evaluate(model, replace(funnel, kinds=kinds), "test", EvaluationConfig(k=(3,)))
    assert [name for name in report["slices"] if name.startswith("kind")] == ["kind buy"]
    assert metrics_table(report)


def test_baselines_learn_events_before_the_split_and_count_targets_alone(funnel: PreparedData) -> None:
    """Signals behind the split are no training events, though the first target behind it has them read."""
    kinds, items, splits = names_of(funnel), funnel.event_items.tolist(), funnel.splits.copy()
    cut = 1000 * (1_700_000_000 + 6 * DAY)
    bounds = list(zip(funnel.offsets[:-1].tolist(), funnel.offsets[1:].tolist(), strict=True))
    splits[:, 0] = [start + int((funnel.times[start:end] < cut).sum()) for start, end in bounds]
    data = replace(funnel, splits=splits)
    training = [range(start, end) for start, end in zip(funnel.offsets[:-1], splits[:, 0], strict=True)]
    used = Counter(item for events in training for item in {items[place] for place in events})
    log = Interactions.training(data)
    assert log.item_users.tolist() == [used[item] for item in range(len(data.item_ids))]

    every = np.sort(np.concatenate([funnel.times[events.start : events.stop] for events in training]))
    since = every[int(0.9 * (len(every) - 1))]
    targets = [place for events in training for place in events if is_target(kinds[place])]
    counts = Counter(items[place] for place in targets)
    recent = Counter(items[place] for place in targets if funnel.times[place] >= since)
    ranked = sorted(range(len(data.item_ids)), key=lambda item: (-recent[item], -counts[item], item))
    (scores,) = BASELINES["recent_popularity"].fit(data, "test")(np.array([0]))
    assert torch.argsort(scores, descending=True).tolist() == ranked
