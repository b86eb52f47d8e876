"""Rankings, metrics, intervals and the repeat term against plain loops; how they are stored and served."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.oracles import ranking as oracle
from tests.support.repeats import Choice, Likelihood, features, weights_of
from tests.training.conftest import QUICK, prepared, trained
from turret.activation.held_out import held_out
from turret.activation.ranking import values_of_users
from turret.data.kinds import read_kinds
from turret.data.prepared import PreparedData
from turret.tower.bundle.bundle import Bundle
from turret.tower.repeats import ItemUse, Slot
from turret.tower.retrieval import Retriever
from turret.tower.times import Times
from turret.training.config.experiment import (
    EvaluationConfig,
    ExperimentConfig,
    TrainingConfig,
    load_experiment,
)
from turret.training.errors import TrainingError
from turret.training.evaluation import repeats
from turret.training.evaluation.evaluation import (
    EvaluatedPart,
    Relevant,
    evaluate,
    measure,
    relevant_items,
    validated_items,
)
from turret.training.evaluation.metrics import (
    difference_interval,
    mean_interval,
    metrics_at,
    popularity_kinds,
)
from turret.training.evaluation.per_user import load_per_user
from turret.training.evaluation.ranking import (
    auc_of_users,
    popularity_scores,
    rank,
    tower_scores,
    user_scores,
    users_with_negatives,
)
from turret.training.evaluation.repeats import fit_repeats
from turret.training.evaluation.seen import left_out_pairs, mask
from turret.training.evaluation.table import distinct_metrics, metrics_table
from turret.training.export.export import export
from turret.training.loop.train import train
from turret.training.page.figures import training_figures
from turret.training.run import PER_USER, Run, build_model

CONFIG = EvaluationConfig(k=(2, 5))


def test_the_report_agrees_with_plain_loops(shop: PreparedData) -> None:
    model = build_model(ExperimentConfig(), shop).eval()
    report = evaluate(model, shop, "test", CONFIG)
    users = [user for user in range(len(shop.users)) if len(shop.targets(user, "test"))]
    scores = user_scores(model, model.catalog_vectors().detach(), shop, np.array(users), "test").tolist()
    popularity = shop.item_counts("train").tolist()
    for ranker, of in (("towers", scores), ("popularity", [popularity] * len(users))):
        for name in ("hr@2", "recall@5", "ndcg@5", "mrr@5"):
            values = []
            for user, line in zip(users, of, strict=True):
                ranked = oracle.ranking(line, set(shop.history(user, "test").tolist()))
                values.append(oracle.metric(name, ranked, set(shop.targets(user, "test").tolist())))
            found = report[ranker][name]
            assert found["mean"] == pytest.approx(sum(values) / len(values), abs=1e-12), (ranker, name)
            assert found["low"] <= found["mean"] <= found["high"]


Draw = Callable[[np.random.Generator, int], np.ndarray]


def hits(rate: float) -> Draw:
    """One if a user's target is found."""
    return lambda random, users: (random.random(users) < rate).astype(np.float64)


def gains(rate: float) -> Draw:
    """The NDCG of one target, which is at any of ten ranks where it is found."""
    return lambda random, users: hits(rate)(random, users) / np.log2(random.integers(2, 12, users))


def apart(draw: Draw) -> Draw:
    """The difference of two equally good rankers."""
    return lambda random, users: draw(random, users) - draw(random, users)


@pytest.mark.parametrize("users", [10, 15, 30, 50, 100])
@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        *((hits(rate), rate) for rate in (0.05, 0.1, 0.5)),
        (gains(0.1), 0.1 * np.mean(1 / np.log2(np.arange(2, 12)))),
        *((apart(hits(rate)), 0.0) for rate in (0.02, 0.1, 0.3)),
        *((apart(gains(rate)), 0.0) for rate in (0.1, 0.3)),
    ],
    ids=["hr .05", "hr .1", "hr .5", "ndcg .1", "-hr .02", "-hr .1", "-hr .3", "-ndcg .1", "-ndcg .3"],
)
def test_an_interval_holds_its_level_for_few_users_and_rare_hits(draw: Draw, mean: float, users: int) -> None:
    """Of 2,000 samples, 95 % cover the mean, and 2.5 % call one of two equal rankers better.

    Each less, or more, three standard deviations of that share.
    """
    random, interval = np.random.default_rng(1), mean_interval if mean else difference_interval
    low, high = np.array([interval(draw(random, users)) for _ in range(2000)]).T
    assert np.mean((low <= mean) & (mean <= high)) >= 0.95 - 3 * (0.95 * 0.05 / 2000) ** 0.5
    assert mean or np.mean(low > 0) <= 0.025 + 3 * (0.025 * 0.975 / 2000) ** 0.5


def test_every_metric_agrees_with_plain_loops() -> None:
    """Random rankings of random relevance, every metric at several k."""
    random = np.random.default_rng(0)
    ranked = np.stack([random.permutation(30)[:20] for _ in range(50)])
    relevant = [set(random.choice(30, random.integers(1, 25), replace=False).tolist()) for _ in range(50)]
    hits = np.array(
        [[item in wanted for item in line] for line, wanted in zip(ranked, relevant, strict=True)]
    )
    counts = np.array([len(wanted) for wanted in relevant])
    for name, values in metrics_at(hits, counts, (1, 5, 20)).items():
        expected = [oracle.metric(name, line, wanted) for line, wanted in zip(ranked, relevant, strict=True)]
        np.testing.assert_allclose(values, expected, atol=1e-12, err_msg=name)


def test_head_torso_and_tail_hold_a_third_of_the_events_each() -> None:
    """Ten items of one event and one of ten: the popular one is the head by itself."""
    kinds = popularity_kinds(np.array([1] * 10 + [10, 0]))
    assert kinds[10] == 0
    assert kinds[11] == 3
    assert np.bincount(kinds[:10], minlength=3).tolist() == [0, 4, 6]


def test_slices_divide_the_users(loyal: PreparedData) -> None:
    """By history, by popularity and by use of the target each covers every user once, and adds up."""
    config = CONFIG.model_copy(update={"exclude_seen": False})
    report = evaluate(build_model(ExperimentConfig(), loyal), loyal, "test", config)
    again = [loyal.targets(user, "test")[0] in loyal.history(user, "test") for user in range(60)]
    assert report["slices"]["item used before"]["users"] == sum(again) == report["relevant_used_before"]
    assert report["slices"]["item new to the user"]["users"] == 60 - sum(again) > 0
    for kind in ("history", "target", "item"):
        groups = [group for name, group in report["slices"].items() if name.startswith(kind)]
        assert sum(group["users"] for group in groups) == report["users"]
        total = sum(group["users"] * group["towers"]["hr@5"]["mean"] for group in groups)
        assert total / report["users"] == pytest.approx(report["towers"]["hr@5"]["mean"])


def test_coverage_is_of_the_first_k_of_each_user() -> None:
    """Two users of five items: at 1 they see one, at 3 four; minus one is no item."""
    rows = np.array([[4, 2, 1]]), np.array([[4, 3, -1]])
    blocks: list[dict[Slot, NDArray[np.int64]]] = [{"all": block} for block in rows]
    relevant = Relevant(np.arange(2), np.array([0, 0]), np.arange(3))
    _, coverage = measure(blocks, [("all", relevant)], (1, 2, 3), 5, "ranking")
    assert coverage == {"coverage@1": 1 / 5, "coverage@2": 3 / 5, "coverage@3": 4 / 5}


def test_an_empty_part_is_refused(handmade: PreparedData) -> None:
    emptied = PreparedData(**{**vars(handmade), "splits": np.repeat(handmade.offsets[1:, None], 2, axis=1)})
    with pytest.raises(TrainingError, match="test part is empty"):
        relevant_items(emptied, "test")


def test_users_without_a_history_get_the_popular_items(handmade: PreparedData) -> None:
    """As the service does: ranked by training events, ties by row."""
    popularity = handmade.item_counts("train")
    model = build_model(ExperimentConfig(), handmade).eval()
    shifted = PreparedData(**{**vars(handmade), "splits": np.repeat(handmade.offsets[:-1, None], 2, axis=1)})
    users = np.arange(5)
    (towers,) = rank(tower_scores(model, shifted, "test", popularity), shifted, users, "test", 4, True)
    (baseline,) = rank(popularity_scores(popularity), shifted, users, "test", 4, True)
    assert (
        towers["all"].tolist()
        == baseline["all"].tolist()
        == [oracle.ranking(popularity.tolist(), set())[:4]] * 5
    )


def test_the_oldest_of_many_seen_items_is_masked(handmade: PreparedData) -> None:
    """A history of 300 events, the first of them of an item of its own."""
    long = np.concatenate([[2], np.zeros(299), [1, 1]]).astype(np.int32)
    fields = vars(handmade) | {
        "event_items": long,
        "offsets": np.array([0, 302]),
        "splits": np.array([[300, 301]]),
    }
    scores = torch.ones(1, len(handmade.item_ids))
    mask(scores, left_out_pairs(PreparedData(**fields), np.arange(1), "validation", None))
    assert torch.isinf(scores[0]).nonzero().flatten().tolist() == [0, 2]


# User, item and its negatives, in order. The last event of each user is the test, the one before validation.
EVENTS = [
    *(("a", item, wrong) for item, wrong in (("p", ""), ("q", "r"), ("r", "p|s"), ("s", "p|q|r"))),
    *(("b", item, wrong) for item, wrong in (("s", "p"), ("r", "q"), ("q", ""), ("p", ""))),
    *(("c", item, wrong) for item, wrong in (("q", "p"), ("p", "r"), ("s", "q|r"), ("r", "s"))),
]


# Scores of the items p, q, r, s for the users a, b, c; r and s tie for c.
SCORES = torch.tensor([[0.5, 0.1, 0.3, 0.4], [9.0, 9.0, 9.0, 9.0], [0.0, 0.2, 0.7, 0.7]])
AUCS: dict[EvaluatedPart, dict[str, float]] = {
    # Of a: s before q and r, after p; of c: a tie.
    "test": {"a": 2 / 3, "c": 0.5},
    # Of a: r after p and s; of c: s before q, a tie with r.
    "validation": {"a": 0.0, "c": 0.75},
}


@pytest.fixture
def offered(tmp_path: Path) -> PreparedData:
    rows = "\n".join(["user,item,negatives", *(",".join(row) for row in EVENTS)])
    return prepared(tmp_path, rows, columns__negatives="negatives", columns__in_file_order=True)


@pytest.mark.parametrize("size", [1, 512])
def test_a_users_auc_is_the_share_of_pairs_in_order(
    offered: PreparedData, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Ties count a half; users whose events have no negative are not asked for. Blocks change nothing."""
    monkeypatch.setattr("turret.training.evaluation.evaluation.USERS_A_BLOCK", size)
    for part, expected in AUCS.items():
        users = users_with_negatives(offered, part)
        assert offered.users.ids(users) == [*expected]
        values = auc_of_users(lambda users: SCORES[users], offered, part, users)
        assert values.tolist() == pytest.approx([*expected.values()])


def test_the_auc_is_reported_and_selects_the_epoch(offered: PreparedData, tmp_path: Path) -> None:
    """By popularity too, which is that of the training part: p and q twice, r and s once, ties by row."""
    changes = ["training.epochs=2", "tower.dimension=8", "training.batch_size=4"]
    run, lines = trained(tmp_path / "run", offered, load_experiment("labelled_pairs", changes))
    assert any("validation auc" in line for line in lines)
    report = run.evaluate(offered, "test")
    # Of a: s comes last, after p, q and r. Of c: r before s.
    assert report["popularity"]["auc"]["mean"] == (0.0 + 1.0) / 2
    assert 0.0 <= report["towers"]["auc"]["mean"] <= 1.0
    difference = report["towers"]["auc"]["mean"] - report["popularity"]["auc"]["mean"]
    assert report["differences"]["popularity"]["auc"]["mean"] == pytest.approx(difference)
    assert (report["users"], report["users_with_negatives"]) == (3, 2)
    stored = load_per_user(run.folder / PER_USER["test"])
    assert stored.users == ["a", "b", "c"]
    np.testing.assert_equal(stored.values["popularity"]["auc"], [0.0, np.nan, 1.0])
    findings = {finding["kind"]: finding for finding in report["verdict"]}
    assert findings["too_small"]["figures"] == {"metric": "auc", "users": 2}
    bundle = Bundle.open(export(run, offered, tmp_path / "bundles", "v1"))
    held = held_out(offered, bundle.manifest, bundle.manifest)
    np.testing.assert_allclose(
        values_of_users(bundle, offered, held, "auc")["auc"], stored.values["towers"]["auc"]
    )


def test_labelled_candidates_are_the_events_of_a_user_and_their_own_negatives(offered: PreparedData) -> None:
    """A user whose events have no negative has these alone to rank; a tie goes to the lower row."""
    ranked = rank(lambda users: SCORES[users], offered, np.arange(3), "test", 4, False, labelled=True)
    (of_users,) = [[offered.item_ids.ids(row[row >= 0]) for row in block["all"]] for block in ranked]
    assert of_users == [["p", "s", "r", "q"], ["p"], ["r", "s"]]


def test_a_cold_target_has_no_event_in_training_and_none_of_its_user(tmp_path: Path) -> None:
    """Baselines find an item that its user has used since, so it is cold for its slice alone."""
    histories = {"a": "pqrtt", "b": "pqrqs", "c": "pqrts", "d": "qrpqp"}
    rows = [{"user": user, "item": item} for user, own in histories.items() for item in own]
    data = prepared(tmp_path, rows, columns__in_file_order=True)
    report = evaluate(build_model(ExperimentConfig(), data), data, "test", CONFIG)
    assert (report["relevant_items"], report["relevant_used_before"], report["relevant_cold"]) == (4, 2, 2)
    assert report["slices"]["target cold"]["users"] == 3


def test_data_without_negatives_has_no_auc(handmade: PreparedData) -> None:
    assert len(users_with_negatives(handmade, "test")) == 0
    with pytest.raises(TrainingError, match=r"no validation event of .* has one; set training.metric ="):
        validated_items(handmade, TrainingConfig(metric="auc"))
    assert len(validated_items(handmade, TrainingConfig(metric="ndcg@10")).users) == 3


def test_figures_of_users_that_are_missing_or_no_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"users.parquet is missing; evaluate the run again"):
        load_per_user(tmp_path / "users.parquet")
    (tmp_path / "users.parquet").write_text("no table")
    with pytest.raises(TrainingError, match=r"it can't be read .*; evaluate the run again"):
        load_per_user(tmp_path / "users.parquet")


# The ends of the parts of a split by time, and the factors of scores that a fit tries.
ENDS = ("validation_from", "test_from")
SHARPNESS = (1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125)
RANKED = [*QUICK, "training.epochs=2", "evaluation.exclude_seen=false"]


def ranking(data: PreparedData, folder: Path, *settings: str) -> tuple[Run, list[str]]:
    """A run that ranks used items, and the lines of its training."""
    return trained(folder, data, load_experiment("demo", [*RANKED, *settings]))


@pytest.fixture(scope="module")
def run(loyal: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return ranking(loyal, tmp_path_factory.mktemp("repeats") / "run")[0]


def test_used_items_gain_what_rules_and_towers_alone_miss(
    run: Run, loyal: PreparedData, tmp_path: Path
) -> None:
    """Four of ten users take their last item again; the towers of two epochs don't know."""
    report = run.evaluate(loyal, "test", ["ease", "item_knn"])
    values = {name: report[name]["ndcg@10"]["mean"] for name in ("towers", *report["differences"])}
    assert values["towers"] > 0.9 * values["last_used"]  # of 60 users, within the chance of who they are
    alone, _ = ranking(loyal, tmp_path / "alone", "training.repeats=false")
    assert alone.repeats() is None
    assert values["towers"] > alone.evaluate(loyal, "test")["towers"]["ndcg@10"]["mean"] + 0.1


def test_both_halves_of_an_answer_are_measured(run: Run, loyal: PreparedData) -> None:
    """Used targets among used items, and the others among the others, by every ranker."""
    report, users = run.evaluate(loyal, "test"), np.arange(60)
    scores = run.open_ranker(loyal, "test")(users).numpy()
    values: dict[str, list[float]] = {"again": [], "new": []}
    for user in range(60):
        used, (target,) = set(loyal.history(user, "test").tolist()), loyal.targets(user, "test").tolist()
        order = np.argsort(-scores[user], kind="stable").tolist()
        place = [row for row in order if (row in used) == (target in used)].index(target)
        values["again" if target in used else "new"].append(1 / np.log2(place + 2) if place < 10 else 0.0)
    for slot, own in values.items():
        assert report["slots"][slot] == {"users": len(own), "share": len(own) / 60}
        assert report["towers"][f"{slot} ndcg@10"]["mean"] == pytest.approx(np.mean(own))
    gap = report["towers"]["new ndcg@10"]["mean"] - report["popularity"]["new ndcg@10"]["mean"]
    assert report["differences"]["popularity"]["new ndcg@10"]["mean"] == pytest.approx(gap)
    assert "again ndcg@10" in metrics_table(report)
    shown = distinct_metrics([report["towers"], report["popularity"]])
    assert "recall@10" in shown["hr@10"]
    assert shown["new hr@10"] == ["new recall@10"]
    (title, curve), *_ = [one for one in training_figures({"": [run]}) if one[0].startswith("Validation")]
    assert (title, curve is None) == ("Validation new ndcg@10", False)


def test_a_bundle_answers_what_the_evaluation_ranks(run: Run, loyal: PreparedData, tmp_path: Path) -> None:
    """Histories with their times, asked about at the time of the user's next event; a comparison of versions
    measures the same, in both halves too."""
    users = np.flatnonzero(np.diff(loyal.offsets) > 2)
    (block,) = rank(run.open_ranker(loyal, "test"), loyal, users, "test", 10, False)
    scores = run.open_ranker(loyal, "test")(users).numpy()
    bundle = Bundle.open(export(run, loyal, tmp_path, "v1"))
    histories, times = [], []
    for first, end in zip(loyal.offsets[users], loyal.history_ends("test")[users], strict=True):
        histories.append(loyal.event_items[first:end])
        times.append(Times(loyal.times[first:end] / 1e3, float(loyal.times[end]) / 1e3))
    nothing = [np.empty(0, np.int64)] * len(users)
    answers = Retriever(bundle).recommend(histories, [{}] * len(users), 10, nothing, times)
    assert [answer.rows.tolist() for answer in answers] == block["all"].tolist()
    for own, answer in zip(scores, answers, strict=True):
        assert answer.scores == pytest.approx(own[answer.rows], rel=1e-5, abs=1e-5)
    report = run.evaluate(loyal, "test")
    held = held_out(loyal, bundle.manifest, bundle.manifest)
    for name, values in values_of_users(bundle, loyal, held, "ndcg@10", ("all", "again", "new")).items():
        assert np.nanmean(values) == pytest.approx(report["towers"][name]["mean"])


def test_a_run_that_is_resumed_after_its_end_keeps_its_term_and_figure(run: Run, loyal: PreparedData) -> None:
    """The figure is that of users whom the term was not fitted on, above that of the towers alone; beside it
    are those of both halves of an answer."""
    term, figures, said = run.repeats(), run.best(), list[str]()
    progress = train(run, loyal, resume=True, report=said.append)
    assert (run.repeats(), run.best(), progress.best) == (term, figures, figures["ndcg@10"])
    figure, again, new = (figures[name] for name in ("ndcg@10", "again ndcg@10", "new ndcg@10"))
    assert figure > max(value for _, value in progress.validated)
    told = f"{figure:.4f} (again {again:.4f}, new {new:.4f}) with it, fitted on other users"
    assert said[-1].endswith(told)
    assert f"(again {again:.4f}, new" not in said[-1].removesuffix(told)  # the term ranks used items
    assert f", new {new:.4f}) without" in said[-1]


def test_there_is_no_term_where_used_items_are_left_out(loyal: PreparedData, tmp_path: Path) -> None:
    run, _ = ranking(loyal, tmp_path / "run", "evaluation.exclude_seen=true")
    assert run.repeats() is None


def by_chance(users: int, events: int = 12, items: int = 20, seed: int = 6) -> list[dict[str, object]]:
    """Users who take any item at any time, and so repeat some."""
    chosen = np.random.default_rng(seed).integers(0, items, (users, events)).tolist()
    return [
        {"user": user, "item": item, "time": 1_700_000_000 + 86_400 * place}
        for user, own in enumerate(chosen)
        for place, item in enumerate(own)
    ]


@pytest.mark.parametrize("split", [None, {"kind": "time", **dict.fromkeys(ENDS, 1_800_000_000)}])
def test_a_term_that_only_knows_the_chance_of_its_users_is_left_out(tmp_path: Path, split: Any) -> None:
    """With a validation part and without one; each half of the users measures the term of the other."""
    data = prepared(tmp_path, by_chance(40, seed=0), **({"split": split} if split else {}))
    run = Run(tmp_path / "run", load_experiment("demo", RANKED), data.folder, data.fingerprint)
    said: list[str] = []
    progress = train(run, data, report=said.append)
    assert run.repeats() is None
    assert said[-1].endswith("fitted on other users, so it is left out")
    without, value = map(float, re.findall(r"(0\.\d{4}) \(again", said[-1]))
    assert value < without
    assert progress.best == (None if split else pytest.approx(without, abs=5e-5))
    assert run.best().get("ndcg@10") == progress.best


@pytest.mark.parametrize("users", [1, 2, 3])
def test_few_users_are_trained_on_whether_they_can_measure_a_term_or_not(tmp_path: Path, users: int) -> None:
    run, (*_, last) = ranking(prepared(tmp_path, by_chance(users)), tmp_path / "run")
    assert (run.repeats() is None) == ("left out" in last)
    assert last.startswith("The repeat term is left out, as fewer than two users") == (users == 1)


def usual_gaps(data: PreparedData) -> NDArray[np.float32]:
    """The lower median of the seconds between two training targets of a user and item, of three or more."""
    found: dict[int, list[float]] = {row: [] for row in range(len(data.item_ids))}
    for user in range(len(data.users)):
        start, end = data.offsets[user], data.splits[user, 0]
        last: dict[int, float] = {}
        for row, time in zip(data.event_items[start:end].tolist(), data.times[start:end] / 1e3, strict=True):
            if row in last:
                found[row].append(time - last[row])
            last[row] = time
    gaps = [sorted(own)[(len(own) - 1) // 2] if len(own) >= 3 else 0.0 for own in found.values()]
    return np.array(gaps, dtype=np.float32)


def choices_of(data: PreparedData, scores: NDArray[np.float32], consuming: str, timed: bool) -> list[Choice]:
    """The validation targets of each user, of events with two kinds that are both targets."""
    users, codes = range(len(data.users)), np.asarray(data.kinds)
    popularity = np.zeros(len(data.item_ids), dtype=np.int64)
    for row in (row for user in users for row in data.targets(user, "train")):
        popularity[row] += 1
    items, found = ItemUse(popularity, usual_gaps(data)), []
    for user in users:
        start, end = data.offsets[user], data.splits[user, 0]
        history, kinds = data.event_items[start:end].tolist(), codes[start:end].tolist()
        *times, asked = (data.times[start : end + 1] / 1e3).tolist()
        own = features(history, items, times if timed else None, asked, kinds)
        consumed = read_kinds(data.manifest.kinds).index(consuming)
        left_out = {row for row, kind in zip(history, kinds, strict=True) if kind == consumed}
        targets = set(data.targets(user, "validation").tolist())
        found.append(Choice(scores[user].astype(np.float64), targets, left_out, own))
    return found


def test_the_fitted_weights_have_the_largest_likelihood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all items that are not left out, with several targets a user, by towers that are too sure."""
    monkeypatch.setattr(repeats, "USERS_A_BLOCK", 7)  # read in several blocks
    random = np.random.default_rng(6)
    rows = [{**row, "kind": "buy" if random.random() < 0.2 else "view"} for row in by_chance(30, 9, 12)]
    ends = {name: 1_700_000_000 + 86_400 * day for name, day in zip(ENDS, (5, 8), strict=True)}
    kinds = {"columns__kind": "kind", "kinds": ["view=target", "buy=target"]}
    data = prepared(tmp_path, rows, split={"kind": "time", **ends}, **kinds)
    scores = random.normal(0, 4, (30, 12)).astype(np.float32)
    relevant = relevant_items(data, "validation")
    fit = fit_repeats(lambda users: torch.from_numpy(scores[users]), data, ("buy",), relevant)
    assert fit is not None
    for timed, own in enumerate((fit.term.untimed, fit.term.timed)):
        assert own is not None
        likelihood = Likelihood(choices_of(data, scores, "buy", bool(timed)), list(weights_of(own)), 3.0)
        reached = min(likelihood.of(own, one) for one in SHARPNESS)
        assert reached == pytest.approx(min(map(likelihood.least, SHARPNESS)), abs=1e-5)


def test_data_without_times_or_a_validation_part_has_a_term_too(tmp_path: Path) -> None:
    """It is fitted on the last training event of each user, by the order alone."""
    items = np.random.default_rng(1).integers(0, 20, (40, 6)).repeat(2, axis=1)
    rows = [
        {"user": user, "item": item, "place": place}
        for user, own in enumerate(items)
        for place, item in enumerate(own)
    ]
    split = {"kind": "time", "validation_from": 10, "test_from": 10}
    run, _ = ranking(prepared(tmp_path, rows, columns__time="place", split=split), tmp_path / "run")
    term = run.repeats()
    assert term is not None
    assert not term.reads_times
