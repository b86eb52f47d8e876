import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.tower.errors import TowerError
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.run import CHECKPOINT, MODEL, Run
from turret.training.trainer import Trainer, train


def experiment(**training: object) -> ExperimentConfig:
    settings = {"epochs": 2, "batch_size": 256, "device": "cpu", **training}
    return ExperimentConfig.model_validate({"training": settings})


def run_of(folder: Path, shop: PreparedData, **training: object) -> Run:
    return Run(folder, experiment(**training), shop.folder, shop.fingerprint)


def command(folder: Path, shop: PreparedData, *more: str) -> list[str]:
    return [sys.executable, "-m", "turret", "train", "--data", str(shop.folder), "--run", str(folder), *more]


STREAMING = 'objective={loss="sampled_softmax_corrected",sampler={kind="in_batch",frequencies="streaming"}}'


@pytest.mark.nightly
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
    assert "Resuming at step" in resumed.stdout
    whole, cut = load_file(tmp_path / "whole" / MODEL), load_file(tmp_path / "cut" / MODEL)
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def sampler_that_remembers(kind: str, **settings: object) -> dict[str, object]:
    return {"kind": kind, "negatives": 16, "refresh_every": 11, **settings}


@pytest.mark.parametrize(
    "sampler",
    [
        sampler_that_remembers("quadratic"),
        sampler_that_remembers("quadratic", per="batch"),
        sampler_that_remembers("softmax"),
        sampler_that_remembers("positive_features", features=32),
        sampler_that_remembers("fourier_features", features=32, refresh_every=100),
        {"kind": "two_pass", "pool": 60},
        {"kind": "adaptive_ngram", "publish_every": 3},
        {
            "kind": "mixed",
            "parts": [
                {"kind": "in_batch", "frequencies": "streaming"},
                {"kind": "cross_batch", "batches": 3, "frequencies": "smoothed"},
                sampler_that_remembers("mined"),
            ],
        },
    ],
    ids=lambda sampler: " ".join(map(str, sampler.values()))[:24],
)
def test_what_a_sampler_remembers_is_resumed_with(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: dict[str, object]
) -> None:
    """Resumed from a checkpoint in mid-epoch, a run ends bit for bit as the one that wasn't interrupted."""
    objective = {"loss": "sampled_softmax", "sampler": sampler}
    training = {"epochs": 2, "batch_size": 256, "device": "cpu", "checkpoint_every": 5}
    config = ExperimentConfig.model_validate({"objective": objective, "training": training})
    whole, cut = (Run(tmp_path / name, config, shop.folder, shop.fingerprint) for name in ("whole", "cut"))
    save = Trainer.save

    def save_and_keep(trainer: Trainer) -> None:
        save(trainer)
        if trainer.progress.step == 5:
            cut.write()
            shutil.copy(whole.folder / CHECKPOINT, cut.folder / CHECKPOINT)

    monkeypatch.setattr(Trainer, "save", save_and_keep)
    train(whole, shop, report=lambda _: None)
    train(cut, shop, resume=True, report=lambda _: None)
    expected, resumed = (load_file(run.folder / CHECKPOINT) for run in (whole, cut))
    assert all(torch.equal(resumed[name], tensor) for name, tensor in expected.items())


def test_the_same_seed_gives_the_same_model(shop: PreparedData, tmp_path: Path) -> None:
    """Two runs agree bit for bit; another seed does not."""
    models = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(run_of(tmp_path / name, shop, seed=seed), shop, report=lambda _: None)
        models.append(load_file(tmp_path / name / MODEL)["item.table.weight"])
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])


def test_stops_early_and_keeps_the_best_model(shop: PreparedData, tmp_path: Path) -> None:
    """With a hopeless learning rate nothing improves, training stops after the patience, the best stays."""
    lines: list[str] = []
    run = run_of(tmp_path / "run", shop, epochs=50, learning_rate=5.0, gradient_clip=0, patience=2)
    progress = train(run, shop, report=lines.append)
    assert progress.epoch == progress.best_epoch + 2 < 50
    assert lines[progress.best_epoch - 1].count("(best)") == 1
    assert (tmp_path / "run" / MODEL).is_file()


def test_a_run_that_cannot_begin_leaves_the_old_one(shop: PreparedData, tmp_path: Path) -> None:
    """Replacing a run by one whose features do not exist is refused before anything is deleted."""
    folder = tmp_path / "run"
    train(run_of(folder, shop, epochs=1), shop, report=lambda _: None)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    config = ExperimentConfig.model_validate({"tower": {"user": {"features": ["nope"]}}})
    with pytest.raises(TowerError, match="nope"):
        train(Run(folder, config, shop.folder, shop.fingerprint), shop, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_checkpoint_of_another_model_is_refused(shop: PreparedData, tmp_path: Path) -> None:
    """Resuming with a file that is no checkpoint, or not this model's, ends in a sentence."""
    run = run_of(tmp_path / "run", shop, epochs=1)
    train(run, shop, report=lambda _: None)
    shutil.copy(run.folder / MODEL, run.folder / CHECKPOINT)
    with pytest.raises(TrainingError, match="not a checkpoint"):
        train(run, shop, resume=True)
    other = ExperimentConfig.model_validate({"tower": {"dimension": 8}, "training": {"epochs": 1}})
    train(Run(tmp_path / "other", other, shop.folder, shop.fingerprint), shop, report=lambda _: None)
    shutil.copy(tmp_path / "other" / CHECKPOINT, run.folder / CHECKPOINT)
    with pytest.raises(TrainingError, match="another model"):
        train(run, shop, resume=True)


def test_a_catalog_of_one_item_is_refused(tmp_path: Path) -> None:
    """There is nothing to tell apart."""
    (tmp_path / "events.csv").write_text("user,item,time\na,x,1\na,x,2\na,x,3\na,x,4\n")
    prepare(PrepareConfig(source=tmp_path / "events.csv"), tmp_path / "prepared")
    data = PreparedData.open(tmp_path / "prepared")
    with pytest.raises(TrainingError, match="one item"):
        train(run_of(tmp_path / "run", data), data)


def test_a_script_under_torchrun_is_refused(
    handmade: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process would train the same run into one folder."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    experiment = ExperimentConfig()
    with pytest.raises(TrainingError, match=r"torchrun has started 2 processes, .*without torchrun"):
        train(Run(tmp_path, experiment, handmade.folder, handmade.fingerprint), handmade)
    assert not list(tmp_path.iterdir())


def test_a_folder_with_a_run_is_not_overwritten(shop: PreparedData, tmp_path: Path) -> None:
    """The sentence offers to resume; resuming a finished run does nothing more."""
    run = run_of(tmp_path / "run", shop, epochs=1)
    first = train(run, shop, report=lambda _: None)
    with pytest.raises(TrainingError, match="--resume"):
        train(run, shop)
    assert train(run, shop, resume=True, report=lambda _: None) == first


UNIFORM = {"kind": "uniform", "negatives": 8}
UNIGRAM = {"kind": "unigram", "negatives": 8}
STREAM = {"kind": "in_batch", "frequencies": "streaming"}


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ("training", {"batch_size": 128}),
        ("training", {"span_length": 4}),
        ("training", {"learning_rate": 1e-4}),
        ("training", {"weight_decay": 0.5}),
        ("training", {"warmup": 0.9}),
        ("training", {"decay": 1.0}),
        ("training", {"gradient_clip": 0.01}),
        ("training", {"precision": "bfloat16"}),
        ("training", {"epochs": 1}),
        ("training", {"since": "2023-01-01"}),
        ("sampler", (UNIFORM, {**UNIFORM, "negatives": 9})),
        ("sampler", (UNIGRAM, {**UNIGRAM, "alpha": 0.2})),
        ("sampler", (UNIFORM, UNIGRAM)),
        ("sampler", ({"kind": "in_batch"}, STREAM)),
        ("sampler", (STREAM, {**STREAM, "streaming_rate": 0.2})),
        ("mask_known", (False, True)),
    ],
    ids=str,
)
def test_every_setting_makes_a_difference(
    shop: PreparedData, tmp_path: Path, given: str, setting: dict[str, object] | tuple[object, object]
) -> None:
    """Changing one setting changes the trained model: none of them is read by nobody."""
    tables = []
    for place, name in enumerate(("default", "changed")):
        config: dict[str, Any] = {"training": {"epochs": 2, "batch_size": 256, "device": "cpu"}}
        # `auto` would be one thing or the other, as the processor has it.
        config["training"]["precision"] = "float32"
        if isinstance(setting, tuple):
            loss = "sampled_softmax_corrected"
            config["objective"] = {"loss": loss, "sampler": UNIFORM, given: setting[place]}
        elif place:
            config["training"] |= setting
        experiment = ExperimentConfig.model_validate(config)
        run = Run(tmp_path / name, experiment, shop.folder, shop.fingerprint)
        train(run, shop, report=lambda _: None)
        tables.append(load_file(tmp_path / name / MODEL)["item.table.weight"])
    assert not torch.equal(*tables)


def validations(lines: list[str]) -> list[str]:
    return [line.split("validation ")[1].split(",")[0] for line in lines if "validation " in line]


def test_validation_settings_are_followed(shop: PreparedData, tmp_path: Path) -> None:
    """How often, by which metric and for how many users a run is validated shows in its report."""
    reports = []
    changes: list[dict[str, Any]] = [{}, {"evaluate_every": 2}, {"metric": "hr@5"}, {"validation_users": 30}]
    for place, changed in enumerate(changes):
        lines: list[str] = []
        run = run_of(tmp_path / str(place), shop, **{"epochs": 4, "patience": 9, **changed})
        train(run, shop, report=lines.append)
        reports.append(validations(lines))
    assert [len(report) for report in reports] == [4, 2, 4, 4]
    assert all(value.startswith("hr@5 ") for value in reports[2])
    assert reports[3] != reports[0]


def test_cuda_without_a_device_is_refused(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says what to use."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match="use 'auto' or 'cpu'"):
        train(run_of(tmp_path / "run", shop, device="cuda"), shop)


def test_example_age_needs_times(handmade: PreparedData, tmp_path: Path) -> None:
    """On data that has only an order, the setting is refused by name."""
    config = ExperimentConfig.model_validate({"tower": {"user": {"example_age": True}}})
    run = Run(tmp_path / "run", config, handmade.folder, handmade.fingerprint)
    with pytest.raises(TrainingError, match=r"tower\.user\.example_age"):
        train(run, handmade)


def test_training_curves_are_written(shop: PreparedData, tmp_path: Path) -> None:
    """TensorBoard finds an event file."""
    train(run_of(tmp_path / "run", shop, epochs=1), shop, report=lambda _: None)
    assert any((tmp_path / "run" / "tensorboard").iterdir())


def test_a_run_ends_where_its_observer_says(shop: PreparedData, tmp_path: Path) -> None:
    """It is told of every evaluation, in its order; the folder holds the best model, and nothing goes on."""
    seen: list[tuple[int, float]] = []

    def observe(epoch: int, value: float) -> bool:
        seen.append((epoch, value))
        return epoch == 2

    lines: list[str] = []
    run = run_of(tmp_path / "run", shop, epochs=9)
    progress = train(run, shop, report=lines.append, observe=observe)
    assert [epoch for epoch, _ in seen] == [1, 2]
    assert [f"ndcg@10 {value:.4f}" for _, value in seen] == [
        v.removesuffix(" (best)") for v in validations(lines)
    ]
    assert (progress.epoch, progress.finished, progress.best) == (2, True, max(value for _, value in seen))
    assert (tmp_path / "run" / MODEL).is_file()
    assert train(run, shop, resume=True, report=lines.append, observe=observe) == progress
    assert len(seen) == 2
