import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from data.sequences import PreparedData
from training.config import ExperimentConfig
from training.errors import TrainingError
from training.run import CHECKPOINT, MODEL, Run
from training.trainer import train


def experiment(**training: object) -> ExperimentConfig:
    settings = {"epochs": 2, "batch_size": 256, "device": "cpu", **training}
    return ExperimentConfig.model_validate({"training": settings})


def run_of(folder: Path, shop: PreparedData, **training: object) -> Run:
    return Run(folder, experiment(**training), shop.folder, shop.fingerprint)


def command(folder: Path, shop: PreparedData, *more: str) -> list[str]:
    return [sys.executable, "-m", "turret", "train", "--data", str(shop.folder), "--run", str(folder), *more]


STREAMING = 'objective={loss="sampled_softmax_corrected",sampler={kind="in_batch",frequencies="streaming"}}'


@pytest.mark.slow
def test_killed_and_resumed_equals_never_interrupted(shop: PreparedData, tmp_path: Path) -> None:
    """SIGKILL in mid-epoch, then --resume: every parameter is equal, bit for bit, to an undisturbed run."""
    settings = ["training.epochs=3", "training.batch_size=64", "training.checkpoint_every=7", STREAMING]
    options = [word for setting in settings for word in ("--set", setting)]
    subprocess.run(command(tmp_path / "whole", shop, *options), check=True, capture_output=True)
    process = subprocess.Popen(command(tmp_path / "cut", shop, *options), stdout=subprocess.DEVNULL)
    while not (tmp_path / "cut" / CHECKPOINT).exists():
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed = subprocess.run(
        command(tmp_path / "cut", shop, "--resume"), check=True, capture_output=True, text=True
    )
    assert "Going on from step" in resumed.stdout
    whole, cut = load_file(tmp_path / "whole" / MODEL), load_file(tmp_path / "cut" / MODEL)
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_the_same_seed_gives_the_same_model(shop: PreparedData, tmp_path: Path) -> None:
    """Two runs agree bit for bit; another seed does not."""
    models = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(run_of(tmp_path / name, shop, seed=seed), shop, resume=False, report=lambda _: None)
        models.append(load_file(tmp_path / name / MODEL)["item.table.weight"])
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])


def test_stops_early_and_keeps_the_best_model(shop: PreparedData, tmp_path: Path) -> None:
    """With a hopeless learning rate nothing improves, training stops after the patience, the best stays."""
    lines: list[str] = []
    run = run_of(tmp_path / "run", shop, epochs=50, learning_rate=5.0, gradient_clip=0, patience=2)
    progress = train(run, shop, resume=False, report=lines.append)
    assert progress.epoch == progress.best_epoch + 2 < 50
    assert lines[progress.best_epoch - 1].count("(best)") == 1
    assert (tmp_path / "run" / MODEL).is_file()


def test_a_folder_with_a_run_is_not_overwritten(shop: PreparedData, tmp_path: Path) -> None:
    """The sentence offers to resume; resuming a finished run does nothing more."""
    run = run_of(tmp_path / "run", shop, epochs=1)
    first = train(run, shop, resume=False, report=lambda _: None)
    with pytest.raises(TrainingError, match="--resume"):
        train(run, shop, resume=False)
    assert train(run, shop, resume=True, report=lambda _: None) == first


@pytest.mark.parametrize(
    "setting",
    [
        {"batch_size": 128},
        {"span_length": 4},
        {"learning_rate": 1e-4},
        {"weight_decay": 0.5},
        {"warmup": 0.9},
        {"decay": 1.0},
        {"gradient_clip": 0.01},
        {"precision": "bfloat16"},
        {"epochs": 1},
    ],
    ids=str,
)
def test_every_training_setting_makes_a_difference(
    shop: PreparedData, tmp_path: Path, setting: dict[str, object]
) -> None:
    """Changing one setting changes the trained model: none of them is read by nobody."""
    tables = []
    for name, changed in (("default", {}), ("changed", setting)):
        train(run_of(tmp_path / name, shop, **changed), shop, resume=False, report=lambda _: None)
        tables.append(load_file(tmp_path / name / MODEL)["item.table.weight"])
    assert not torch.equal(*tables)


def test_cuda_without_a_device_is_refused(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says what to use."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match="use 'auto' or 'cpu'"):
        train(run_of(tmp_path / "run", shop, device="cuda"), shop, resume=False)


def test_example_age_needs_times(handmade: PreparedData, tmp_path: Path) -> None:
    """On data that has only an order, the setting is refused by name."""
    config = ExperimentConfig.model_validate({"tower": {"user": {"example_age": True}}})
    run = Run(tmp_path / "run", config, handmade.folder, handmade.fingerprint)
    with pytest.raises(TrainingError, match=r"tower\.user\.example_age"):
        train(run, handmade, resume=False)


def test_training_curves_are_written(shop: PreparedData, tmp_path: Path) -> None:
    """TensorBoard finds an event file."""
    train(run_of(tmp_path / "run", shop, epochs=1), shop, resume=False, report=lambda _: None)
    assert any((tmp_path / "run" / "tensorboard").iterdir())
