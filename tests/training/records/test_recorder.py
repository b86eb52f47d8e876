"""The records that a training keeps."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.loggers.doubles import install_mlflow
from turret.data.prepared import PreparedData
from turret.training.config.experiment import load_experiment
from turret.training.errors import TrainingError
from turret.training.records.history import HISTORY, load_history
from turret.training.run import Run, remove_run
from turret.training.trainer import Trainer, train

QUICK = ["training.epochs=2", "training.batch_size=256", "training.device=cpu", "tower.dimension=8"]


def run_of(folder: Path, shop: PreparedData, *more: str) -> Run:
    return Run(folder, load_experiment("demo", [*QUICK, *more]), shop.folder, shop.fingerprint)


def without_times(folder: Path) -> list[dict[str, Any]]:
    varying = ("seconds", "examples_per_second")
    return [
        {name: value for name, value in entry.items() if name not in varying}
        for entry in load_history(folder)
    ]


def test_a_run_keeps_all_that_was_measured(shop: PreparedData, tmp_path: Path) -> None:
    """Loss and learning rate of steps; loss, validation metric and speed of epochs; seconds of all."""
    run = run_of(tmp_path, shop)
    progress = train(run, shop, report=lambda _: None)
    history = load_history(tmp_path)
    epochs = [entry for entry in history if "loss/epoch" in entry]
    assert [entry["epoch"] for entry in epochs] == [1, 2]
    assert [[entry["epoch"], entry["validation/ndcg@10"]] for entry in epochs] == progress.validated
    assert epochs[-1]["step"] == progress.step
    assert all(entry["examples_per_second"] > 0 for entry in epochs)
    assert history[0]["step"] == 1
    assert {"loss/train", "learning_rate"} < history[0].keys()
    assert [entry["seconds"] for entry in history] == sorted(entry["seconds"] for entry in history)
    (entry,) = json.loads((tmp_path / "environment.json").read_text())["environments"]
    assert entry["from_step"] == 0
    assert json.loads((tmp_path / "loggers.json").read_text()) == {"tensorboard": None}
    remove_run(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_training_leaves_no_measurement_out_and_none_twice(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after it measured an epoch and before its checkpoint was written; loggers are those it had."""
    store = install_mlflow(monkeypatch)
    settings = ("training.batch_size=64", "training.checkpoint_every=3")
    train(run_of(tmp_path / "whole", shop, *settings), shop, report=lambda _: None)
    cut = run_of(tmp_path / "cut", shop, *settings)
    save = Trainer.save

    def killed(self: Trainer) -> None:
        if self.progress.epoch:
            raise KeyboardInterrupt
        save(self)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(cut, shop, report=lambda _: None, loggers=["mlflow"])
    assert load_history(cut.folder)[-1]["epoch"] == 1
    (logged,) = store.runs
    assert logged["status"] == "KILLED"
    lines: list[str] = []
    train(cut, shop, resume=True, report=lines.append)
    assert lines[0].startswith("Resuming at step")
    assert without_times(cut.folder) == without_times(tmp_path / "whole")
    assert len(store.runs) == 1
    assert logged["status"] == "FINISHED"
    assert not (cut.folder / "tensorboard").exists()


def test_a_warm_start_records_the_value_of_the_bundle(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(run_of(tmp_path, shop), shop, report=lambda _: None)
    trainer.progress.validated.append([0, 0.25])
    trainer.train()
    assert load_history(tmp_path)[0]["validation/ndcg@10"] == 0.25


def test_a_logger_that_can_not_be_had_is_refused_before_anything_is_written(
    shop: PreparedData, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match="--logger neptune"):
        train(run_of(tmp_path / "run", shop), shop, loggers=["neptune"])
    assert not (tmp_path / "run").exists()


def test_a_history_that_an_older_release_did_not_write_is_begun_at_resumption(
    shop: PreparedData, tmp_path: Path
) -> None:
    run = run_of(tmp_path, shop)
    train(run, shop, report=lambda _: None, observe=lambda epoch, _: epoch == 1)
    (tmp_path / HISTORY).unlink()
    train(run, shop, resume=True, report=lambda _: None)
    assert load_history(tmp_path) == []
