"""The steps and epochs of a training: random streams, rates, modes, losses and evaluations."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from turret.data.prepared import PreparedData
from turret.training import trainer as module
from turret.training import validation
from turret.training.batches.batches import Batch
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import DivergenceError
from turret.training.objectives.contract import StepLoss
from turret.training.optimisers import optimiser
from turret.training.parallel import setup
from turret.training.randomness import seed_torch, stream
from turret.training.run import Run
from turret.training.trainer import Trainer, train

UNIFORM = {"kind": "uniform", "negatives": 8}


def run_of(folder: Path, shop: PreparedData, loss: Any = "sampled_softmax", **training: object) -> Run:
    settings = {
        "objective": {"loss": loss, "sampler": UNIFORM},
        "training": {"epochs": 2, "batch_size": 700, "device": "cpu", "warmup": 0.0, **training},
    }
    return Run(folder, ExperimentConfig.model_validate(settings), shop.folder, shop.fingerprint)


def trained(run: Run, shop: PreparedData) -> list[str]:
    lines: list[str] = []
    train(run, shop, report=lines.append)
    return lines


def test_every_step_and_epoch_has_a_random_stream_of_its_own(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbered through the run: the same dropout or candidates in each epoch would be learnt by heart."""
    used: list[tuple[str, int]] = []

    def streaming(seed: int, name: str, number: int) -> Any:
        used.append((name, number))
        return stream(seed, name, number)

    def seeding(seed: int, name: str, number: int) -> None:
        used.append((name, number))
        seed_torch(seed, name, number)

    monkeypatch.setattr(module, "stream", streaming)
    monkeypatch.setattr(module, "seed_torch", seeding)
    trained(run_of(tmp_path, shop), shop)
    steps = [number for name, number in used if name == "dropout"]
    assert steps == list(range(len(steps)))
    assert len(steps) > 4
    assert [number for name, number in used if name == "draw"] == steps
    assert [number for name, number in used if name == "order"] == [0, 1]


def test_steps_train_the_towers_in_training_mode_along_one_schedule(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an evaluation; the rate falls by half a cosine over all epochs. The loss is the mean."""
    modes: list[bool] = []
    rates: list[float] = []
    weighed: list[tuple[float, int]] = []
    step = Trainer.step

    def stepping(trainer: Trainer, batch: Batch) -> float:
        modes.append(trainer.model.training)
        loss = step(trainer, batch)
        rates.append(trainer.optimiser.learning_rate)
        weighed.append((loss, len(batch.targets)))
        return loss

    monkeypatch.setattr(Trainer, "step", stepping)
    lines = trained(run_of(tmp_path, shop, learning_rate=1e-3, decay=0.1), shop)
    assert all(modes)
    count = len(modes)
    curve = [1e-3 * (0.1 + 0.45 * (1.0 + math.cos(math.pi * number / count))) for number in range(count)]
    # An epoch may have a step less than is planned for.
    assert rates == pytest.approx(curve, rel=0.05)
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in lines if ": loss " in line]
    for epoch, some in enumerate((weighed[: count // 2], weighed[count // 2 :])):
        mean = sum(loss * size for loss, size in some) / sum(size for _, size in some)
        assert losses[epoch] == pytest.approx(mean, abs=1e-4)


def test_an_evaluation_that_is_no_better_counts_against_patience(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three equal ones under a patience of two: the first stays the best, and the third is the last."""
    monkeypatch.setattr(validation, "validation_metric", lambda *_: 0.5)
    progress = train(run_of(tmp_path, shop, epochs=9, patience=2), shop, report=lambda _: None)
    assert (progress.epoch, progress.best_epoch, progress.stale) == (3, 1, 2)


def test_the_last_epoch_is_evaluated_whatever_the_interval(shop: PreparedData, tmp_path: Path) -> None:
    epochs: list[int] = []

    def observe(epoch: int, value: float) -> bool:
        epochs.append(epoch)
        return False

    run = run_of(tmp_path, shop, epochs=3, evaluate_every=2, patience=9)
    train(run, shop, report=lambda _: None, observe=observe)
    assert epochs == [2, 3]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_ends_the_run_before_it_reaches_the_towers(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    trainer = Trainer(run_of(tmp_path, shop), shop, report=lambda _: None)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}

    def diverged(objective: Any, model: torch.nn.Module, *_: object) -> StepLoss:
        total = torch.stack([parameter.sum() for parameter in model.parameters()]).sum()
        return StepLoss(total * 0.0 + value, torch.tensor(0))

    monkeypatch.setattr(setup, "model_loss", diverged)
    batch = next(trainer.batches.epoch(stream(0, "order", 0)))
    with pytest.raises(DivergenceError, match=r"lower training\.learning_rate"):
        trainer.step(batch)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.model.state_dict().items())


def test_the_parameters_of_an_objective_are_trained(shop: PreparedData, tmp_path: Path) -> None:
    loss = {"kind": "nce", "learned_normaliser": True}
    trainer = Trainer(run_of(tmp_path, shop, loss), shop, report=lambda _: None)
    trainer.step(next(trainer.batches.epoch(stream(0, "order", 0))))
    (normaliser,) = trainer.objective.parameters()
    assert float(normaliser.detach()) != 0.0


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_a_large_table_is_updated_by_row_unless_its_weights_decay(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weight_decay: float
) -> None:
    """Rows without a gradient would not decay."""
    monkeypatch.setattr(optimiser, "LARGE", 100)
    trainer = Trainer(run_of(tmp_path, shop, weight_decay=weight_decay), shop, report=lambda _: None)
    assert (trainer.optimiser.rows is None) == bool(weight_decay)
