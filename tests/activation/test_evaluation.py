"""An activation (ONNX, from a bundle) and an evaluation (torch, from a run) measure the same."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.shops import small_shop
from turret.activation.held_out import HeldOut, held_out
from turret.activation.ranking import metric_of_users
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.model import load
from turret.tower.bundle.bundle import Bundle
from turret.training.commands import export_run, train_run
from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.per_user import load_per_user
from turret.training.run import PER_USER, Run

QUICK = ["training.epochs=2", "training.batch_size=256", "training.device=cpu", "tower.dimension=8"]

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(("experiment", "exclude_seen"), [("demo", True), ("dssm", False)])
def test_a_bundle_has_the_metrics_that_its_run_was_evaluated_with(
    tmp_path: Path, experiment: str, exclude_seen: bool
) -> None:
    data = small_shop(tmp_path, users=200, items=180)
    settings = [*QUICK, f"evaluation.exclude_seen={str(exclude_seen).lower()}"]
    train_run(data.folder, experiment, tmp_path / "run", settings)
    Run.read(tmp_path / "run").evaluate(data, "test")
    bundle = Bundle.open(export_run(tmp_path / "run", None, tmp_path / "bundles", "v1"))
    chosen = held_out(data, bundle.manifest, bundle.manifest)
    users, stored = load_per_user(tmp_path / "run" / PER_USER["test"], TOWERS)
    assert data.users.ids(chosen.users) == users
    values = metric_of_users(bundle, data, chosen, "ndcg@10", 10)
    # Items that tie but for rounding may change places.
    assert np.isclose(values, stored["ndcg@10"]).mean() > 0.98
    assert values.mean() == pytest.approx(stored["ndcg@10"].mean(), abs=0.003)


def test_repeat_consumption_is_one_setting_from_the_log_to_the_answer(tmp_path: Path) -> None:
    """Each user takes two items in turn: the next one is always one of those used."""
    lines = [
        f"u{user},i{(user % 10) * 2 + turn % 2},{1_700_000_000 + turn * 60}"
        for user in range(120)
        for turn in range(6)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["user_id,item_id,timestamp", *lines]) + "\n")
    prepare(PrepareConfig(source=tmp_path / "log.csv"), tmp_path / "data")
    data = PreparedData.open(tmp_path / "data")
    assert data.manifest.repeat_share == pytest.approx(4 / 6)
    found: dict[bool, float] = {}
    for exclude_seen in (True, False):
        folder = tmp_path / f"run-{exclude_seen}"
        settings = ["training.epochs=10", "training.batch_size=64", "evaluation.k=[2, 10]"]
        settings.append("training.device=cpu")
        settings.append(f"evaluation.exclude_seen={str(exclude_seen).lower()}")
        train_run(data.folder, "demo", folder, settings)
        report = Run.read(folder).evaluate(data, "test")
        kinds = [finding["kind"] for finding in report["verdict"]]
        assert ("repeats" in kinds) == exclude_seen
        model = load(export_run(folder, None, tmp_path / "bundles", str(exclude_seen)))
        assert model.bundle.manifest.exclude_seen == exclude_seen
        best = {one.id for one in model.recommend(["i0", "i1"], k=2)}
        assert bool(best & {"i0", "i1"}) == (not exclude_seen)
        targets = HeldOut(np.arange(120), np.asarray(data.splits[:, 1]), np.asarray(data.offsets[1:]), "")
        found[exclude_seen] = float(metric_of_users(model.bundle, data, targets, "hr@2", 2).mean())
        assert found[exclude_seen] == pytest.approx(hits_at_2(folder), abs=0.02)
    assert found[True] == 0.0
    assert found[False] > 0.5


def hits_at_2(run: Path) -> float:
    return float(load_per_user(run / PER_USER["test"], TOWERS)[1]["hr@2"].mean())
