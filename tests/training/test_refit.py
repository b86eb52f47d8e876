"""A model that is trained again on the validation part: what it is, where there is none, and kills in it."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import trained
from turret.data.prepared import PreparedData
from turret.training import commands
from turret.training.baselines.registry import BASELINES
from turret.training.comparison.compare import is_finished
from turret.training.config.experiment import ExperimentConfig, write_experiment
from turret.training.evaluation.evaluation import TOWERS, EvaluatedPart, evaluate_rankers
from turret.training.export.export import export, export_warnings
from turret.training.loop.train import train
from turret.training.run import MODEL, REFIT, REFIT_COST, REFITTED, Run

STREAMING = {"loss": "sampled_softmax_corrected", "sampler": {"kind": "in_batch", "frequencies": "streaming"}}


def experiment(**training: object) -> ExperimentConfig:
    settings: Mapping[str, Any] = {"batch_size": 64, "device": "cpu", "refit": True, **training}
    return ExperimentConfig.model_validate({"objective": STREAMING, "training": settings})


def same_model(one: Run, other: Run) -> bool:
    models = [load_file(run.model_file()) for run in (one, other)]
    return all(torch.equal(models[1][name], tensor) for name, tensor in models[0].items())


# `turret train`, which kills itself at the end of the checkpoint with this number.
KILLED = """
import os, signal, sys
from turret.training.loop.trainer import Trainer
save, left = Trainer.save, int(sys.argv.pop(1))
def save_and_die(trainer):
    global left
    save(trainer)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
Trainer.save = save_and_die
from turret.cli import main
main()
"""


@pytest.mark.process
@pytest.mark.parametrize(("checkpoint", "every"), [(1, 7), (4, 0)], ids=["in the training", "in the refit"])
def test_killed_and_resumed_equals_never_interrupted(
    checkpoint: int, every: int, shop: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a run that has ended stays as it is."""
    settings = experiment(epochs=3, checkpoint_every=every)
    whole, _ = trained(tmp_path / "whole", shop, settings)
    write_experiment(tmp_path / "whole.toml", settings, "")
    words = ["train", "--data", str(shop.folder), "--run", str(tmp_path / "cut"), "-e"]
    command = [sys.executable, "-c", KILLED, str(checkpoint), *words, str(tmp_path / "whole.toml")]
    killed = subprocess.run(command, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    cut = Run.read(tmp_path / "cut")
    assert not is_finished(cut)
    commands.train_command(cut.folder, resume=True)
    resumed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Resuming")]
    assert len(resumed) == (1 if every else 2)
    for _ in range(2):
        assert is_finished(cut)
        assert same_model(whole, cut)
        commands.train_command(cut.folder, resume=True)


def test_a_refit_is_the_training_of_both_parts(shop: PreparedData, tmp_path: Path) -> None:
    """For the epochs of the best model, and only the test part is new to it."""
    settings = {"epochs": 6, "patience": 1, "learning_rate": 0.03}
    run = Run(tmp_path / "run", experiment(**settings), shop.folder, shop.fingerprint)
    said: list[str] = []
    progress = train(run, shop, report=said.append)
    epochs = progress.best_epoch
    assert 0 < epochs < progress.epoch
    assert f"parts, for {epochs} epoch" in next(line for line in said if line.startswith("Refit on"))
    assert run.best() == {"ndcg@10": progress.best}
    assert not (run.folder / REFIT).exists()
    cost, ended = json.loads((run.folder / REFIT_COST).read_text()), run.progress()
    assert ended is not None
    assert cost["seconds"] > 0
    assert ended.seconds == pytest.approx(progress.seconds + cost["seconds"])
    splits = shop.splits.copy()
    splits[:, 0] = splits[:, 1]
    both = replace(shop, splits=splits)
    direct, _ = trained(
        tmp_path / "direct", both, experiment(**{**settings, "epochs": epochs, "refit": False})
    )
    assert same_model(run, direct)


@pytest.fixture(scope="module")
def refitted(shop: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a refit. Nobody may write to it."""
    return trained(tmp_path_factory.mktemp("refitted") / "run", shop, experiment(epochs=1))[0]


@pytest.mark.parametrize("part", ["validation", "test"])
def test_a_part_is_new_to_the_model_that_is_evaluated_on_it(
    part: EvaluatedPart, shop: PreparedData, refitted: Run, tmp_path: Path
) -> None:
    """And baselines are fitted on what the model was trained on."""
    run = replace(refitted, folder=Path(shutil.copytree(refitted.folder, tmp_path / "run")))
    splits = shop.splits.copy()
    splits[:, 0] = splits[:, 0 if part == "validation" else 1]
    known = replace(shop, splits=splits)
    model = load_file(run.folder / (MODEL if part == "validation" else REFITTED))
    opened = run.open_model(shop, part).state_dict()
    assert all(torch.equal(opened[name], model[name]) for name in opened)
    rankers = {
        TOWERS: lambda: run.open_ranker(shop, part),
        "ease": lambda: BASELINES["ease"].fit(known, part),
    }
    expected, _ = evaluate_rankers(rankers, shop, part, run.experiment.evaluation)
    found = run.evaluate(shop, part, ["ease"])
    assert [found[name]["ndcg@10"] for name in rankers] == [expected[name]["ndcg@10"] for name in rankers]


def test_a_bundle_serves_the_refit_and_warm_starts_begin_before_it(
    shop: PreparedData, refitted: Run, tmp_path: Path
) -> None:
    """Else the validation of a warm start would be of events that its parent was trained on."""
    bundle = export(refitted, shop, tmp_path / "bundles", "v1")
    first, second = (load_file(refitted.folder / name) for name in (MODEL, REFITTED))
    weights = load_file(bundle / "model.safetensors")
    assert all(torch.equal(weights[name], first[name]) for name in weights)
    served = refitted.open_model(shop)
    assert torch.equal(served.state_dict()["item.table.weight"], second["item.table.weight"])
    with torch.no_grad():
        vectors = served.item_vectors(torch.arange(len(shop.item_ids))).numpy()
    np.testing.assert_array_equal(np.load(bundle / "item_vectors.npy")[: len(vectors)], vectors)


def test_an_interrupted_refit_is_told(shop: PreparedData, refitted: Run, tmp_path: Path) -> None:
    """In the verdict, and at the export."""
    run = replace(refitted, folder=Path(shutil.copytree(refitted.folder, tmp_path / "run")))
    (run.folder / REFITTED).unlink()
    (run.folder / REFIT).mkdir()
    assert not is_finished(run)
    first = run.evaluate(shop, "test")["verdict"][0]
    assert (first["kind"], first["figures"]) == ("unfinished", {"refit": True})
    assert first["sentence"] in [*export_warnings(run, shop)]
    train(run, shop, resume=True, report=lambda _: None)
    assert same_model(run, refitted)


@pytest.mark.parametrize("without", ["setting", "validation part", "test part", "leave to end"])
def test_there_is_no_refit(without: str, shop: PreparedData, tmp_path: Path) -> None:
    """Where nothing tells its epochs, or nothing measures it."""
    data, splits = shop, shop.splits.copy()
    if without == "validation part":
        splits[:, 0] = splits[:, 1]
    if without == "test part":
        splits[:, 1] = np.asarray(shop.bounds("test")[1])
    data = replace(shop, splits=splits)
    settings = experiment(epochs=1, refit=without != "setting")
    run, said = Run(tmp_path / "run", settings, shop.folder, shop.fingerprint), list[str]()
    observe = (lambda epoch, value: False) if without == "leave to end" else None
    train(run, data, report=said.append, observe=observe)
    assert not any(line.startswith("Refit") for line in said)
    told = [line for line in said if line.startswith("There is no refit")]
    assert len(told) == ("part" in without)
    assert all(f"has no {without}" in line for line in told)
    assert not run.is_refitted()
    assert is_finished(run)
