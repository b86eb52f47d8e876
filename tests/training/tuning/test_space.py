from pathlib import Path

import optuna
import pytest

from turret.data.errors import ConfigurationError
from turret.training.config.experiment import ExperimentConfig, load_experiment, shipped_experiments
from turret.training.config.named_settings import with_settings
from turret.training.errors import TrainingError
from turret.training.tuning.space import Choices, Dimension, Range, default_space, load_space


def read(
    folder: Path, text: str, fixed: tuple[str, ...] = (), experiment: str = "youtubednn"
) -> dict[str, Dimension]:
    path = folder / "space.toml"
    path.write_text(text)
    return load_space(path, load_experiment(experiment), fixed)


def test_a_file_is_written_with_dots_with_sections_or_with_quotes(tmp_path: Path) -> None:
    dotted = read(tmp_path, "training.epochs = { low = 2, high = 5 }")
    assert dotted == {"training.epochs": Range(low=2, high=5)}
    assert read(tmp_path, "[training]\nepochs = { low = 2, high = 5 }") == dotted
    assert read(tmp_path, "[training.epochs]\nlow = 2\nhigh = 5") == dotted
    assert read(tmp_path, '"training.epochs" = { low = 2, high = 5 }') == dotted


def suggested(dimension: Range | Choices) -> list[object]:
    """What trials at random are given."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trials = (study.ask({"x": dimension.distribution()}) for _ in range(200))
    return [dimension.decode(trial.params["x"]) for trial in trials]


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


def test_a_logarithmic_range_gives_each_factor_the_same_chance(tmp_path: Path) -> None:
    """Each power of ten gets a third of 200 draws; more than 30 off would be four deviations and a half."""
    line = "training.learning_rate = { low = 1e-4, high = 1e-1, log = true }"
    values = suggested(read(tmp_path, line)["training.learning_rate"])
    counts = [sum(low <= float(str(v)) < 10 * low for v in values) for low in (1e-4, 1e-3, 1e-2)]
    assert all(abs(count - 200 / 3) < 30 for count in counts), counts


@pytest.mark.parametrize(
    ("line", "choices"),
    [
        ("training.batch_size = { choices = [256, 512] }", [256, 512]),
        ("tower.user.last_item = { choices = [true, false] }", [True, False]),
        ("tower.user.hidden = { choices = [[], [64], [64, 32]] }", [[], [64], [64, 32]]),
        ('objective.sampler = { choices = [{ kind = "unigram", alpha = 0.5 }, "uniform"] }', None),
    ],
)
def test_choices_are_of_any_kind_and_come_back_as_they_were(
    line: str, choices: list[object] | None, tmp_path: Path
) -> None:
    """Numbers, truth, lists, and whole sections."""
    (dimension,) = read(tmp_path, line).values()
    expected = choices if choices is not None else [{"kind": "unigram", "alpha": 0.5}, "uniform"]
    found = suggested(dimension)
    assert all(value in expected for value in found)
    assert all(value in found for value in expected)


def test_what_the_experiment_has_is_found_in_the_space() -> None:
    """Also a whole section that says the same in other words; what is outside is not."""
    experiment = load_experiment("youtubednn")

    def kept(dimension: Range | Choices, name: str) -> object:
        value = dimension.encode(name, experiment)
        return None if value is None else dimension.decode(value)

    assert kept(Range(low=1, high=10), "training.epochs") == 10
    assert kept(Range(low=1, high=9), "training.epochs") is None
    assert kept(Choices(choices=(0, 0.5)), "training.weight_decay") == 0
    assert kept(Choices(choices=(0.5,)), "training.weight_decay") is None
    sections = ({"kind": "unigram"}, {"kind": "uniform", "negatives": 512})
    assert kept(Choices(choices=sections), "objective.sampler") == sections[1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "training.lr = { low = 1e-4, high = 1e-2 }",
            "no setting 'training.lr'; known here: .*learning_rate",
        ),
        ("training.epochs = 5", r"training\.epochs = 5 is no search range; write .*--set"),
        ("training.epochs = { low = 5 }", "high has to be given"),
        (
            "training.epochs = { low = 5, high = 2 }",
            r"space\.toml: training\.epochs: .*low = 5 is above high = 2",
        ),
        ("training.epochs = { low = 1.5, high = 3.0 }", r"epochs can't be 1\.5"),
        (
            "training.epochs = { low = 2, high = 5, step = 2 }",
            "no setting 'step'; known here: high, log, low",
        ),
        ("training.epochs = { choices = [] }", "at least 1"),
        ("training.epochs = { choices = [1, 0] }", r"epochs can't be 0"),
        ("training.epochs = {}", "is no search range"),
        ("tower.user.dropout = { low = 0.0, high = 0.5, log = true }", "needs low above 0"),
        ("tower.user.dropout = { low = 0.0, high = 1.5 }", r"dropout can't be 1\.5"),
        ("tower.user.last_item = { low = 0, high = 1 }", r"last_item: it is no number, .*choices"),
        ("training.precision = { low = 0, high = 1 }", r"precision"),
        ("objective.sampler.alpha = { low = 0.0, high = 1.0 }", "no setting 'objective.sampler.alpha'"),
        ('objective.loss = { choices = ["full_softmax"] }', "scores the whole catalog"),
        ("training.seed = { low = 0, high = 9 }", "decides how trials are measured.*--set"),
        ('training.metric = { choices = ["hr@10"] }', "decides how trials are measured"),
        ("evaluation.exclude_seen = { choices = [true, false] }", "decides how trials are measured"),
        ("training = { choices = [{ seed = 1 }] }", "decides how trials are measured"),
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


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml"):
        load_space(tmp_path / "nowhere.toml", ExperimentConfig(), ())


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
    settings = {setting: space[setting].decode(value) for setting, value in kept.items()}
    assert with_settings(experiment, settings) == experiment
    for end in (0, -1):
        with_settings(experiment, {setting: one.extremes()[end] for setting, one in space.items()})


def test_only_what_the_experiment_has_is_searched() -> None:
    """A loss over the whole catalog draws no negatives; item dropout needs a hidden layer."""
    assert set(default_space(load_experiment("youtubednn"))) == COMMON | {"objective.sampler.negatives"}
    assert set(default_space(load_experiment("full_softmax"))) == COMMON
    assert set(default_space(load_experiment("dssm"))) == COMMON | {"tower.item.dropout"}


def test_a_temperature_that_the_loss_fixes_is_not_searched() -> None:
    """Margins in cosines allow one alone."""
    scoring = {"scoring": {"kind": "cosine", "temperature": 1.0}}
    objective = {"loss": "cosine_hinge", "sampler": "uniform"}
    experiment = ExperimentConfig.model_validate({"tower": scoring, "objective": objective})
    assert set(default_space(experiment)) == (COMMON - {"tower.scoring.temperature"}) | {
        "objective.sampler.negatives"
    }


@pytest.mark.parametrize("fixed", ["training.learning_rate", "training", "tower.scoring"])
def test_what_was_given_a_value_is_not_searched(fixed: str) -> None:
    space = default_space(load_experiment("youtubednn"), {fixed})
    assert space
    assert not any(name.startswith(fixed) for name in space)


def test_odd_experiments_have_a_space_too() -> None:
    """Batches of one example, more dropout than usual, an odd weight decay."""
    settings = ["training.batch_size=1", "tower.user.dropout=0.7", "training.weight_decay=0.5"]
    experiment = load_experiment("youtubednn", [*settings, "objective.sampler.negatives=2"])
    space = default_space(experiment)
    assert all(one.encode(name, experiment) is not None for name, one in space.items())
