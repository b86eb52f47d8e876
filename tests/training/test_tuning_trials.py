"""Studies of `turret tune`: the trials that they train, or that a stub seems to train."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.trial import TrialState

from tests.support.studies import EPOCHS, QUICK, search, stored, told
from turret.data.prepared import PreparedData
from turret.tower.errors import TowerError
from turret.training.checkpoint import Progress
from turret.training.config.experiment import load_experiment
from turret.training.run import MODEL, Run
from turret.training.trainer import train
from turret.training.tuning import commands as trials

Output = pytest.CaptureFixture[str]
DECISIVE = "training.learning_rate = { low = 1e-6, high = 1e-2, log = true }"
HARMLESS = "training.checkpoint_every = { low = 100000, high = 2000000 }"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The runs that a stub seems to train, with the number of runs in the folder when it began.

    Its metric rises with each epoch, and is best at a learning rate of 0.001.
    """
    begun: list[tuple[str, int]] = []

    def seem_to_train(run: Run, *_: object, observe: Callable[[int, float], bool], **__: object) -> Progress:
        begun.append((run.folder.name, len(list(run.folder.parent.glob("*")))))
        run.folder.mkdir(parents=True)
        best = 1.0 / (1.0 + abs(math.log10(run.experiment.training.learning_rate) + 3))
        for epoch in range(1, EPOCHS + 1):
            value = best * epoch / EPOCHS
            if observe(epoch, value):
                break
        return Progress(epoch=epoch, best=value, best_epoch=epoch, seconds=1.0)

    monkeypatch.setattr(trials, "train", seem_to_train)
    return begun


def test_the_best_trial_is_an_experiment_that_trains_to_its_value(shop: PreparedData, tmp_path: Path) -> None:
    """With the settings of that trial and all others as they were; its own run is there as well.

    Four trainings of four epochs: seconds.
    """
    folder = tmp_path / "study"
    search(folder, shop, 3)
    found = stored(folder)
    values = [trial.values[0] if trial.state == TrialState.COMPLETE else -1.0 for trial in found]
    best = int(np.argmax(values))
    experiment = load_experiment(str(folder / "best.toml"))
    base = load_experiment("youtubednn", QUICK)
    rate = experiment.training.learning_rate
    assert rate == found[best].params["training.learning_rate"]
    training = experiment.training.model_copy(update={"learning_rate": base.training.learning_rate})
    assert training == base.training
    assert f"{values[best]:.4f}" in (folder / "best.toml").read_text().splitlines()[0]
    run = Run(tmp_path / "again", experiment, shop.folder, shop.fingerprint)
    assert train(run, shop, report=lambda _: None).best == values[best]
    assert Run.read(folder / "trials" / f"{best + 1:04d}").experiment == experiment
    kept = (folder / "trials" / f"{best + 1:04d}" / MODEL).read_bytes()
    assert kept == (tmp_path / "again" / MODEL).read_bytes()


@pytest.mark.usefixtures("trained")
def test_the_first_trial_is_the_experiment_as_it_is(shop: PreparedData, tmp_path: Path) -> None:
    """So the best is never worse; where the space does not hold it, the first is drawn like the others."""
    search(tmp_path / "within", shop, 1)
    best = load_experiment(str(tmp_path / "within" / "best.toml"))
    assert best == load_experiment("youtubednn", QUICK)
    search(tmp_path / "without", shop, 1, "training.learning_rate = { low = 0.02, high = 0.03 }")
    assert 0.02 <= stored(tmp_path / "without")[0].params["training.learning_rate"] <= 0.03


def test_only_the_run_of_the_best_trial_stays_on_disk(
    shop: PreparedData, tmp_path: Path, trained: list[tuple[str, int]]
) -> None:
    search(tmp_path / "study", shop, 7, DECISIVE)
    assert trained == [(f"{number:04d}", min(number - 1, 1)) for number in range(1, 8)]
    assert len(list((tmp_path / "study" / "trials").iterdir())) == 1


CLASHING = """
tower.scoring.absolute = { choices = [false, true] }
objective.sampler = { choices = ["uniform", { kind = "positive_features", negatives = 8, features = 16 }] }
"""


@pytest.mark.parametrize(
    ("space", "overrides", "reason"),
    [
        (CLASHING, (), "gives h and -h the same scores"),
        ("training.weight_decay = { choices = [0.0, 1e6] }", (), "the loss is nan"),
        ('tower.item.features = { choices = [[], ["nope"]] }', (), "nope"),
    ],
    ids=["settings that clash", "a loss that is no number", "features that the data lacks"],
)
def test_what_can_not_be_trained_is_said_and_the_study_goes_on(
    space: str, overrides: tuple[str, ...], reason: str, shop: PreparedData, tmp_path: Path, capsys: Output
) -> None:
    """It counts as a trial that was worse than all others, and is never the best."""
    search(tmp_path / "study", shop, 12, space, [*QUICK, *overrides])
    shown = capsys.readouterr().out
    assert reason in shown.split("failed: ")[1].splitlines()[0]
    assert " failed." in shown
    found = stored(tmp_path / "study")
    assert len(found) == 12
    assert {trial.state for trial in found} == {TrialState.COMPLETE, TrialState.PRUNED}
    failed = [trial for trial in found if "reason" in trial.user_attrs]
    assert failed
    assert all(reason in one.user_attrs["reason"] and one.state == TrialState.PRUNED for one in failed)
    load_experiment(str(tmp_path / "study" / "best.toml"))


def test_what_no_trial_can_mend_ends_the_study_at_once(shop: PreparedData, tmp_path: Path) -> None:
    """Before anything was trained, it is not the settings of a trial; nothing is counted for it."""
    with pytest.raises(TowerError, match="nope"):
        search(tmp_path / "study", shop, 3, HARMLESS, [*QUICK, 'tower.item.features=["nope"]'])
    assert stored(tmp_path / "study") == []
    search(tmp_path / "study", shop, 1, HARMLESS)
    assert len(stored(tmp_path / "study")) == 1


def test_an_interrupted_trial_begins_again_and_all_ends_as_it_would(
    shop: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three trials is interrupted in its third epoch."""
    search(tmp_path / "whole", shop, 3)

    def interrupted(run: Run, data: PreparedData, *, observe: Any, **named: Any) -> Any:
        def watch(epoch: int, value: float) -> bool:
            if (run.folder.name, epoch) == ("0002", 3):
                raise KeyboardInterrupt
            return bool(observe(epoch, value))

        return train(run, data, observe=watch, **named)

    monkeypatch.setattr(trials, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "cut", shop, 3)
    monkeypatch.undo()
    assert len(stored(tmp_path / "cut")) == 1
    search(tmp_path / "cut", shop, 3)
    assert told(tmp_path / "cut") == told(tmp_path / "whole")


def scrambled(shop: PreparedData, folder: Path, part: str) -> Path:
    """The shop with every event of one part exchanged for another item's, under the same fingerprint."""
    shutil.copytree(shop.folder, folder)
    items = np.load(folder / "items.npy", mmap_mode="r+")
    edges = np.column_stack([np.load(folder / "splits.npy"), np.load(folder / "offsets.npy")[1:]])
    first, last = (edges[:, 1], edges[:, 2]) if part == "test" else (edges[:, 0], edges[:, 1])
    for start, end in zip(first, last, strict=True):
        items[start:end] = (items[start:end] + 97) % len(shop.item_ids)
    items.flush()
    return folder


def test_the_test_part_is_never_looked_at(shop: PreparedData, tmp_path: Path) -> None:
    """Another test part makes no difference; the control is another validation part, which makes one."""
    search(tmp_path / "shop", shop, 2)
    search(tmp_path / "test", scrambled(shop, tmp_path / "other test", "test"), 2)
    assert told(tmp_path / "test") == told(tmp_path / "shop")
    search(tmp_path / "validation", scrambled(shop, tmp_path / "other", "validation"), 1)
    assert stored(tmp_path / "validation")[0].params == stored(tmp_path / "shop")[0].params
    assert stored(tmp_path / "validation")[0].values != stored(tmp_path / "shop")[0].values
