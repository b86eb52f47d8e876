"""The repeat term of a run: when it is fitted, what it gains, and that a bundle serves what is evaluated."""

from pathlib import Path

import numpy as np
import pytest

from tests.training.conftest import QUICK, prepared, trained
from turret.data.prepared import PreparedData
from turret.tower.bundle.bundle import Bundle
from turret.tower.retrieval import Retriever
from turret.tower.times import Times
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.ranking import rank
from turret.training.export.export import export
from turret.training.run import Run

RANKED = [*QUICK, "training.epochs=2", "evaluation.exclude_seen=false"]


def ranking(data: PreparedData, folder: Path, *settings: str) -> tuple[Run, list[str]]:
    """A run that ranks used items, and what its training said."""
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
    alone, said = ranking(loyal, tmp_path / "alone", "training.repeats=false")
    assert alone.repeats() is None
    assert not any("repeat" in line for line in said)
    assert values["towers"] > alone.evaluate(loyal, "test")["towers"]["ndcg@10"]["mean"] + 0.1


def test_a_bundle_answers_what_the_evaluation_ranks(run: Run, loyal: PreparedData, tmp_path: Path) -> None:
    """Histories with their times, asked about at the time of the user's next event."""
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
    assert [answer.rows.tolist() for answer in answers] == block.rows.tolist()
    for own, answer in zip(scores, answers, strict=True):
        assert answer.scores == pytest.approx(own[answer.rows], rel=1e-5, abs=1e-5)


def test_there_is_no_term_where_used_items_are_left_out(loyal: PreparedData, tmp_path: Path) -> None:
    run, said = ranking(loyal, tmp_path / "run", "evaluation.exclude_seen=true")
    assert run.repeats() is None
    assert not any("repeat" in line for line in said)


def test_data_without_times_or_a_validation_part_has_a_term_too(tmp_path: Path) -> None:
    """It is fitted on the last training event of each user, by the order alone."""
    items = np.random.default_rng(1).integers(0, 20, (40, 6)).repeat(2, axis=1)
    rows = [
        {"user": user, "item": item, "place": place}
        for user, own in enumerate(items)
        for place, item in enumerate(own)
    ]
    split = {"kind": "time", "validation_from": 10, "test_from": 10}
    data = prepared(tmp_path, rows, columns__time="place", split=split)
    run, said = ranking(data, tmp_path / "run")
    term = run.repeats()
    assert term is not None
    assert not term.reads_times
    assert any("last training event" in line for line in said)
