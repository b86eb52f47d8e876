"""What a study of `turret tune` searches, and what it keeps of its trials; nothing is trained here."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.support.studies import QUICK, SPACE, stored
from turret.data.errors import ConfigurationError, DataError
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise
from turret.training.config.experiment import load_experiment, shipped_experiments, with_settings
from turret.training.errors import TrainingError
from turret.training.tuning.space import Choices, Dimension, Range, default_space, load_space, setting_of
from turret.training.tuning.study import Plan, StoredStudy, StudyRequest, open_storage


def read(
    folder: Path, text: str, fixed: tuple[str, ...] = (), experiment: str = "youtubednn"
) -> dict[str, Dimension]:
    path = folder / "space.toml"
    path.write_text(text)
    return load_space(path, load_experiment(experiment), fixed)


def suggested(dimension: Range | Choices) -> list[object]:
    """What trials at random are given."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trials = (study.ask({"x": dimension.distribution()}) for _ in range(200))
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
        (
            "training.lr = { low = 1e-4, high = 1e-2 }",
            "no setting 'training.lr'; known here: .*learning_rate",
        ),
        ("training.epochs = 5", r"training\.epochs = 5 is no search range; write .*--set"),
        (
            "training.epochs = { low = 5, high = 2 }",
            r"space\.toml: training\.epochs: .*low = 5 is above high = 2",
        ),
        ("training.epochs = { choices = [1, 0] }", r"epochs can't be 0"),
        ("tower.user.dropout = { low = 0.0, high = 0.5, log = true }", "needs low above 0"),
        ("tower.user.last_item = { low = 0, high = 1 }", r"last_item: it is no number, .*choices"),
        ("objective.sampler.alpha = { low = 0.0, high = 1.0 }", "no setting 'objective.sampler.alpha'"),
        ('objective.loss = { choices = ["full_softmax"] }', "scores the whole catalog"),
        ("training.seed = { low = 0, high = 9 }", "decides how trials are measured.*--set"),
        ("", "names no setting"),
        (
            "objective.sampler.negatives = { low = 1, high = 9 }\n"
            "\"objective.sampler\" = { choices = ['uniform'] }",
            "objective.sampler and objective.sampler.negatives set the same",
        ),
        ("training.patience = { low = 1, high = 2 }", r"--set training\.patience fixes it"),
        ("training.epochs = { low = ", "not a TOML file"),
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
    kept = {setting: one.encode(setting, experiment) for setting, one in space.items()}
    assert None not in kept.values()
    settings = {setting: setting_of(value) for setting, value in kept.items()}
    assert with_settings(experiment, settings) == experiment
    for end in (0, -1):
        with_settings(experiment, {setting: one.extremes[end] for setting, one in space.items()})


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
    [{}, {"experiment": None, "overrides": (), "data": None}, {"experiment": None}, {"data": None}],
    ids=["all of it", "nothing", "only --set", "without --data"],
)
def test_a_study_goes_on_with_its_own_plan(
    given: dict[str, None], softmax_study: StudyRequest, begun: Plan
) -> None:
    assert replace(softmax_study, **given).plan(begun) == begun  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("experiment", "overrides", "complaint"),
    [
        ("full_softmax", ("training.epochs=4",), r"another experiment \(training\.epochs was 3 and is 4\)"),
        (None, ("training.epochs=4",), r"another experiment \(training\.epochs was 3 and is 4\)"),
        ("full_softmax", (), r"another experiment \(training\.epochs was 3 and is 10\)"),
        ("demo", (THREE,), "objective.loss.kind was 'full_softmax' and is 'sampled_softmax'"),
        ("demo", (THREE,), "was not set and is"),
        ("full_softmax", (THREE, "training.batch_size=512"), r"batch_size was 2048 and is 512"),
    ],
)
def test_a_study_does_not_go_on_with_another_experiment(
    experiment: str | None,
    overrides: tuple[str, ...],
    complaint: str,
    softmax_study: StudyRequest,
    begun: Plan,
) -> None:
    """What is another is said."""
    with pytest.raises(TrainingError, match=complaint):
        replace(softmax_study, experiment=experiment, overrides=overrides).plan(begun)


def test_a_study_does_not_go_on_with_other_data(
    softmax_study: StudyRequest, begun: Plan, tmp_path: Path
) -> None:
    """Nor without what it was begun on; data that only moved is named."""
    config = SyntheticConfig(users=50, items=90, events_per_user=15, shortest_history=3, longest_history=20)
    synthesise(config, tmp_path / "raw")
    prepare(PrepareConfig(source=tmp_path / "raw"), tmp_path / "other")
    with pytest.raises(TrainingError, match="begun with other data"):
        replace(softmax_study, data=tmp_path / "other").plan(begun)
    moved = shutil.copytree(begun.data, tmp_path / "moved")
    assert replace(softmax_study, data=moved).plan(begun).data == moved
    gone = begun.model_copy(update={"data": tmp_path / "gone"})
    with pytest.raises(DataError, match="gone"):
        replace(softmax_study, data=None).plan(gone)


@pytest.fixture
def asked(shop: PreparedData, tmp_path: Path) -> StudyRequest:
    (tmp_path / "space.toml").write_text(SPACE)
    return StudyRequest(tmp_path / "study", shop.folder, "youtubednn", QUICK, tmp_path / "space.toml")


def value_of(params: dict[str, object]) -> float:
    """A made-up value that is best at a learning rate of 0.001."""
    return 1.0 - abs(math.log10(float(str(params["training.learning_rate"]))) + 3)


def try_some(asked: StudyRequest, count: int) -> list[dict[str, object]]:
    """Finish trials without any training, and give what they tried."""
    tried = []
    with open_storage(asked.folder) as storage:
        study = StoredStudy(storage, asked)
        for _ in range(count):
            trial = study.ask()
            study.finish(trial, value_of(trial.params))
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
