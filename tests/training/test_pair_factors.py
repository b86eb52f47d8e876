"""Factors of pairs beside trained towers: what they are, when they are kept, and what a bundle answers."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.conftest import prepared, trained
from turret.data.prepared import PreparedData
from turret.tower.bundle.bundle import Bundle
from turret.tower.retrieval import Retriever
from turret.training import commands
from turret.training.baselines.interactions import Interactions
from turret.training.comparison.compare import is_finished
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.evaluation.ranking import rank, tower_scores
from turret.training.export.export import export, export_warnings
from turret.training.loop.pairs import SHARES, WEIGHTS
from turret.training.pairs_start import pair_factors
from turret.training.run import PAIRS, REFITTED_PAIRS, Run

COUNT = 40
DAY, BEGUN = 86_400, 1_500_000_000


def companions(users: int, kind: str = "lasting") -> Iterator[dict[str, object]]:
    """Users of eight items: two with their companions, then two, and their companions last.

    "changed" ones have had two items with other companions long before, and "no" companions are of any item.
    """
    random, half = np.random.default_rng(5), COUNT // 2
    for user in range(users):
        drawn = random.choice(half, 6, replace=False)
        others = half + (random.permutation(half)[:6] if kind == "no" else drawn)
        items = [drawn[0], others[0], drawn[1], others[1], *drawn[2:4], *others[2:4]]
        for step, item in enumerate(items):
            yield {
                "user_id": f"u{user}",
                "item_id": f"i{item}",
                "timestamp": BEGUN + (1000 + user) * DAY + step,
            }
        if kind == "changed":
            for step, item in enumerate([drawn[4], half + (drawn[4] + 1) % half]):
                yield {"user_id": f"u{user}", "item_id": f"i{item}", "timestamp": BEGUN + user + step}


def experiment(**changes: Any) -> ExperimentConfig:
    """Towers that learn next to nothing, with factors of pairs beside them."""
    tower = {"dimension": 2, "scoring": {"pairs": 16}, "user": {"history_length": 10}}
    training = {"epochs": 1, "batch_size": 64, "device": "cpu", "learning_rate": 1e-6}
    settings = {"tower": {**tower, **changes.pop("tower", {})}, "evaluation": {"k": [5]}}
    settings["training"] = {**training, "metric": "ndcg@5", **changes}
    return ExperimentConfig.model_validate({**settings, "objective": {"loss": "full_softmax"}})


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared(tmp_path_factory.mktemp("pairs"), list(companions(300)))


@pytest.fixture(scope="module")
def refitted(pairs: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[str]]:
    return trained(tmp_path_factory.mktemp("refitted") / "run", pairs, experiment(refit=True))


def test_they_are_kept_where_they_rank_better(refitted: tuple[Run, list[str]], pairs: PreparedData) -> None:
    """Their metric is that of the run, and a refit counts the pairs of the validation part too."""
    run, said = refitted
    (line,) = (line for line in said if "factors of pairs" in line)
    chosen = run.chosen_pairs()
    assert chosen is not None
    assert chosen.weight in WEIGHTS
    assert chosen.share in SHARES
    assert f"{chosen.validation['ndcg@5']:.4f} with those of pairs" in line
    without, value = float(line.split()[2]), run.best()["ndcg@5"]
    assert value > 2 * without
    assert run.evaluate(pairs, "validation")["towers"]["ndcg@5"]["mean"] == pytest.approx(value)
    tables = [run.open_model(pairs, part).pairs for part in ("validation", "end")]
    assert all(table is not None and table.shape == (COUNT, 16) for table in tables)
    assert not torch.equal(tables[0], tables[1])  # type: ignore[arg-type]


def test_the_service_answers_as_the_evaluation_does(
    refitted: tuple[Run, list[str]], pairs: PreparedData, tmp_path: Path
) -> None:
    """The bundle's vectors have the columns of pairs before those of the towers."""
    run, _ = refitted
    bundle = Bundle.open(export(run, pairs, tmp_path / "bundles", "pairs"))
    assert (bundle.manifest.scoring.pairs, bundle.manifest.dimension) == (16, 18)
    model, users = run.open_model(pairs), np.arange(100)
    np.testing.assert_allclose(bundle.vectors, model.catalog_vectors().detach().numpy(), atol=1e-6)
    scores_of = tower_scores(model, pairs, "test", pairs.item_counts("train"))
    (block,) = rank(scores_of, pairs, users, "test", 5, True)
    histories = [pairs.history(user, "test") for user in users.tolist()]
    answers = Retriever(bundle).recommend(histories, [{}] * len(users), 5, histories)
    assert [answer.rows.tolist() for answer in answers] == block["all"].tolist()


@pytest.mark.parametrize(
    ("users", "kind", "reason"), [(300, "no", "no clear gain"), (20, "lasting", "fewer than 30")]
)
def test_they_are_left_out_where_nothing_shows_a_gain(
    users: int, kind: str, reason: str, tmp_path: Path
) -> None:
    """The vectors are then those of the towers."""
    data = prepared(tmp_path / "data", list(companions(users, kind)))
    run, said = trained(tmp_path / "run", data, experiment())
    (line,) = (line for line in said if "actors of pairs" in line)
    assert reason in line
    assert "left out" in line
    assert is_finished(run)
    model = run.open_model(data)
    assert (model.pairs, model.width, model.scoring.pairs) == (None, model.config.dimension, 0)


def test_pairs_of_recent_events_are_chosen_where_pairs_change(tmp_path: Path) -> None:
    data = prepared(tmp_path / "data", list(companions(300, "changed")))
    run, said = trained(tmp_path / "run", data, experiment())
    chosen = run.chosen_pairs()
    assert chosen is not None
    assert chosen.share < 1
    assert f"in the newest {chosen.share:.1%} of the log's time" in "".join(said)


def test_an_interrupted_choice_is_made_on_resuming(pairs: PreparedData, tmp_path: Path) -> None:
    run, _ = trained(tmp_path / "run", pairs, experiment())
    whole = (run.folder / PAIRS).read_bytes()
    (run.folder / PAIRS).unlink()
    assert not is_finished(run)
    assert any("choice of factors of pairs was interrupted" in line for line in export_warnings(run, pairs))
    run.evaluate(pairs, "test")
    assert "test" in run.metrics()
    commands.train_command(run.folder, resume=True)
    assert is_finished(run)
    assert run.metrics() == {}  # they were those of the towers alone
    assert (run.folder / PAIRS).read_bytes() == whole
    commands.train_command(run.folder, data=pairs.folder, overwrite=True)
    assert not (run.folder / PAIRS).exists()


def test_a_damaged_file_is_named(
    refitted: tuple[Run, list[str]], pairs: PreparedData, tmp_path: Path
) -> None:
    folder = shutil.copytree(refitted[0].folder, tmp_path / "run")
    (folder / REFITTED_PAIRS).write_bytes(b"nothing")
    with pytest.raises(TrainingError, match=f"{REFITTED_PAIRS}: it can't be read"):
        Run.read(folder).open_model(pairs)


def test_products_of_factors_are_the_partial_correlations_of_items(pairs: PreparedData) -> None:
    """Against the inverse of all counts, without its negative eigenvalues."""
    used = Interactions.training(pairs).used.toarray()
    precision = np.linalg.inv(used.T @ used + 20.0 * np.eye(COUNT))
    scales = np.sqrt(np.diag(precision))
    expected = -precision / scales[:, None] / scales
    np.fill_diagonal(expected, 1.0)
    values, vectors = np.linalg.eigh(expected)
    expected = vectors * np.maximum(values, 0.0) @ vectors.T
    factors = pair_factors(pairs, COUNT).numpy()
    np.testing.assert_allclose(factors @ factors.T, expected, atol=1e-4)


def test_events_before_a_time_are_no_pairs(pairs: PreparedData) -> None:
    since = float(np.median(np.asarray(pairs.times)))
    used, ends = Interactions.training(pairs, since).used, pairs.bounds("train")[1]
    for user, end in enumerate(ends.tolist()):
        events = range(int(pairs.offsets[user]), end)
        recent = {int(pairs.event_items[place]) for place in events if pairs.times[place] >= since}
        assert set(used[user].indices.tolist()) == recent
