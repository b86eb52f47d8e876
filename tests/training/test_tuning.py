"""Studies of `turret tune`: their space, their files, and the trials that they train."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from tests.support.studies import EPOCHS, QUICK, SPACE, search, stored, told
from turret.data.errors import ConfigurationError, DataError
from turret.data.prepared import PreparedData
from turret.tower.errors import TowerError
from turret.training.checkpoint import Progress
from turret.training.config.experiment import load_experiment, shipped_experiments, with_settings
from turret.training.errors import TrainingError
from turret.training.loop.train import train
from turret.training.run import MODEL, Run
from turret.training.tuning import study as trials
from turret.training.tuning.space import (
    Dimension,
    Space,
    default_space,
    extremes,
    load_space,
    own_parameter,
    setting_of,
)
from turret.training.tuning.study import Plan, StoredStudy, StudyRequest, open_storage


def read(folder: Path, text: str, fixed: tuple[str, ...] = (), experiment: str = "youtubednn") -> Space:
    path = folder / "space.toml"
    path.write_text(text)
    return load_space(path, load_experiment(experiment), fixed)


def suggested(dimension: Dimension) -> list[object]:
    """What trials at random are given."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trials = (study.ask({"x": dimension}) for _ in range(200))
    return [setting_of(trial.params["x"]) for trial in trials]


def test_a_setting_of_whole_numbers_gets_whole_numbers_and_another_any(tmp_path: Path) -> None:
    """Whatever the ends look like in the file."""
    space = read(
        tmp_path, "training.epochs = { low = 2, high = 4 }\ntower.user.dropout = { low = 0, high = 1e-1 }"
    )
    assert set(suggested(space["training.epochs"])) == {2, 3, 4}
    whole_ends = read(tmp_path, "training.weight_decay = { low = 0, high = 1 }")["training.weight_decay"]
    values = suggested(whole_ends)
    assert len(set(values)) > 100
    assert all(isinstance(value, float) and 0 <= value <= 1 for value in values)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("training.epochs = 5", r"training\.epochs = 5 is no search range; write .*--set"),
        ("training.epochs = { low = 5, high = 2 }", r"training\.epochs: .*low <= high"),
        ("training.epochs = { choices = [1, 0] }", r"epochs can't be 0"),
        ("tower.user.dropout = { low = 0.0, high = 0.5, log = true }", "low > 0"),
        ("tower.user.last_item = { low = 0, high = 1 }", r"last_item: it is no number, .*choices"),
        ('objective.loss = { choices = ["full_softmax"] }', "scores the whole catalog"),
        ("training.seed = { low = 0, high = 9 }", "decides how trials are measured.*--set"),
        ("", "names no setting"),
        (
            "objective.sampler.negatives = { low = 1, high = 9 }\n"
            "\"objective.sampler\" = { choices = ['uniform'] }",
            "objective.sampler and objective.sampler.negatives set the same",
        ),
        ("training.patience = { low = 1, high = 2 }", r"--set training\.patience fixes it"),
    ],
)
def test_what_can_not_be_searched_is_refused_in_words(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises((TrainingError, ConfigurationError), match=complaint) as caught:
        read(tmp_path, text, fixed=("training.patience",))
    assert "space.toml" in str(caught.value)


COMMON = {
    "training.learning_rate",
    "training.weight_decay",
    "training.batch_size",
    "tower.scoring.temperature",
    "tower.user.dropout",
}


@pytest.mark.parametrize("name", shipped_experiments())
def test_every_shipped_experiment_has_a_space_that_holds_it(name: str) -> None:
    """So a study begins with the experiment as it is; and the ends of everything can be trained with."""
    experiment = load_experiment(name)
    space = default_space(experiment)
    assert set(space) >= COMMON
    kept = {setting: own_parameter(setting, one, experiment) for setting, one in space.items()}
    assert None not in kept.values()
    settings = {setting: setting_of(value) for setting, value in kept.items()}
    assert with_settings(experiment, settings) == experiment
    for end in (0, -1):
        with_settings(experiment, {setting: extremes(one)[end] for setting, one in space.items()})


def test_only_what_the_experiment_has_is_searched() -> None:
    """A loss over the whole catalog draws no negatives; item dropout needs a hidden layer."""
    assert set(default_space(load_experiment("youtubednn"))) == COMMON | {"objective.sampler.negatives"}
    assert set(default_space(load_experiment("full_softmax"))) == COMMON
    assert set(default_space(load_experiment("dssm"))) == COMMON | {"tower.item.dropout"}


THREE = "training.epochs=3"


@pytest.fixture
def softmax_study(shop: PreparedData, tmp_path: Path) -> StudyRequest:
    return StudyRequest(tmp_path / "study", shop.folder, "full_softmax", (THREE,))


@pytest.fixture
def begun(softmax_study: StudyRequest) -> Plan:
    """As it comes back from where it was stored."""
    return Plan.model_validate_json(softmax_study.plan().model_dump_json())


@pytest.mark.parametrize(
    "given",
    [{}, {"experiment": None, "overrides": (), "data": None}, {"experiment": None}],
    ids=["all of it", "nothing", "only --set"],
)
def test_a_study_goes_on_with_its_own_plan(
    given: dict[str, None], softmax_study: StudyRequest, begun: Plan
) -> None:
    assert replace(softmax_study, **given).plan(begun) == begun  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("experiment", "overrides", "complaint"),
    [
        (None, ["training.epochs=4"], r"another experiment \(training\.epochs was 3 and is 4\)"),
        ("full_softmax", [], r"another experiment \(training\.epochs was 3 and is 10\)"),
        ("demo", [THREE], "objective.loss.kind was 'full_softmax' and is 'sampled_softmax'"),
    ],
)
def test_a_study_does_not_go_on_with_another_experiment(
    experiment: str | None, overrides: list[str], complaint: str, softmax_study: StudyRequest, begun: Plan
) -> None:
    with pytest.raises(TrainingError, match=complaint):
        replace(softmax_study, experiment=experiment, overrides=overrides).plan(begun)


def test_a_study_does_not_go_on_with_other_data(
    softmax_study: StudyRequest, begun: Plan, handmade: PreparedData, tmp_path: Path
) -> None:
    """Nor without what it was begun on; data that only moved is named."""
    with pytest.raises(TrainingError, match="begun with other data"):
        replace(softmax_study, data=handmade.folder).plan(begun)
    moved = shutil.copytree(begun.data, tmp_path / "moved")
    assert replace(softmax_study, data=moved).plan(begun).data == moved
    gone = begun.model_copy(update={"data": tmp_path / "gone"})
    with pytest.raises(DataError, match="gone"):
        replace(softmax_study, data=None).plan(gone)


@pytest.fixture
def asked(shop: PreparedData, tmp_path: Path) -> StudyRequest:
    (tmp_path / "space.toml").write_text(SPACE)
    return StudyRequest(tmp_path / "study", shop.folder, "youtubednn", QUICK, tmp_path / "space.toml")


def try_some(asked: StudyRequest, count: int) -> list[dict[str, object]]:
    """Finish trials without any training, and give what they tried."""
    tried = []
    with open_storage(asked.folder) as storage:
        study = StoredStudy(storage, asked)
        for _ in range(count):
            trial = study.ask()
            study.finish(trial, trial.params["training.learning_rate"])
            tried.append(dict(trial.params))
    return tried


def test_the_same_seed_tries_the_same_whether_in_one_go_or_in_many(
    asked: StudyRequest, tmp_path: Path
) -> None:
    """Also beyond the trials at random with which the sampler begins; another seed tries others."""
    whole = try_some(asked, 16)
    parts = replace(asked, folder=tmp_path / "parts")
    assert [one for count in (1, 11, 2, 2) for one in try_some(parts, count)] == whole
    reseeded = replace(asked, folder=tmp_path / "other", overrides=(*QUICK, "training.seed=1"))
    other = try_some(reseeded, 16)
    assert other[0] == whole[0]
    assert all(one not in whole for one in other[1:])


def test_a_study_goes_on_from_every_line_of_its_journal(asked: StudyRequest, tmp_path: Path) -> None:
    """Whatever a kill let happen last, two trials are finished, and always the same."""
    try_some(asked, 0)
    for _ in range(2):
        with open_storage(asked.folder) as storage:  # one that is interrupted, and then another
            StoredStudy(storage, asked).ask().report(0.5, 1)
        try_some(asked, 1)
    whole = [trial.params for trial in stored(asked.folder)]
    lines = (asked.folder / "study.journal").read_bytes().splitlines(keepends=True)
    for count in range(len(lines)):
        cut = replace(asked, folder=tmp_path / f"cut at {count}")
        cut.folder.mkdir()
        (cut.folder / "study.journal").write_bytes(b"".join(lines[:count]))
        try_some(cut, 2 - len(stored(cut.folder)) if count > 1 else 2)
        assert [trial.params for trial in stored(cut.folder)] == whole, lines[count]


def test_the_best_come_first_and_the_earlier_among_equals(asked: StudyRequest) -> None:
    """Stopped trials are not among them, whatever value they had when they were stopped."""
    with open_storage(asked.folder) as storage:
        study = StoredStudy(storage, asked)
        assert study.best() == []
        for value in (0.2, 0.3, None, 0.3):
            trial = study.ask()
            if value is None:
                trial.report(0.9, 1)
                study.finish(trial)
            else:
                study.finish(trial, value)
        assert study.best() == [2, 4, 1]
    assert [trial.state for trial in stored(asked.folder)].count(TrialState.PRUNED) == 1


def test_a_study_is_held_by_one_command_alone(asked: StudyRequest) -> None:
    with (
        open_storage(asked.folder),
        pytest.raises(TrainingError, match="another `turret tune` is at work"),
        open_storage(asked.folder),
    ):
        pass
    assert len(try_some(asked, 1)) == 1


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
    """With the settings of that trial; its own run is there as well."""
    folder = tmp_path / "study"
    search(folder, shop, 3)
    found = stored(folder)
    values = [trial.values[0] if trial.state == TrialState.COMPLETE else -1.0 for trial in found]
    best = int(np.argmax(values))
    experiment = load_experiment(str(folder / "best.toml"))
    assert experiment.training.learning_rate == found[best].params["training.learning_rate"]
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
    search(tmp_path / "study", shop, 7, "training.learning_rate = { low = 1e-6, high = 1e-2, log = true }")
    assert trained == [(f"{number:04d}", min(number - 1, 1)) for number in range(1, 8)]
    assert len(list((tmp_path / "study" / "trials").iterdir())) == 1


CLASHING = """
tower.scoring.absolute = { choices = [false, true] }
objective.sampler = { choices = ["uniform", { kind = "positive_features", negatives = 8, features = 16 }] }
"""


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (CLASHING, "gives h and -h the same scores"),
        ("training.weight_decay = { choices = [0.0, 1e6] }", "the loss is nan"),
        ('tower.item.features = { choices = [[], ["nope"]] }', "nope"),
    ],
    ids=["settings that clash", "a loss that is no number", "features that the data lacks"],
)
def test_what_can_not_be_trained_is_said_and_the_study_goes_on(
    space: str, reason: str, shop: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counts as a trial that was worse than all others, and is never the best."""
    search(tmp_path / "study", shop, 12, space)
    assert reason in capsys.readouterr().out.split("failed: ")[1].splitlines()[0]
    found = stored(tmp_path / "study")
    assert len(found) == 12
    failed = [trial for trial in found if "reason" in trial.user_attrs]
    assert 0 < len(failed) < 12
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
