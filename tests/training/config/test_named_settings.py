import tomllib
from pathlib import Path

import pytest

from turret.data.errors import ConfigurationError
from turret.training.config.experiment import (
    ExperimentConfig,
    load_experiment,
    named_settings,
    shipped_experiments,
)
from turret.training.config.named_settings import (
    differences,
    overlap,
    short_names,
    with_settings,
    write_experiment,
)


def test_every_setting_is_named_as_set_names_it() -> None:
    """Each name and value can be given back, alone, and changes nothing."""
    experiment = load_experiment("youtubednn")
    names = named_settings(experiment)
    assert names["training.learning_rate"] == 4e-3
    assert names["objective.sampler.negatives"] == 512
    assert names["tower.user.hidden"] == [128]
    for name, value in names.items():
        assert with_settings(experiment, {name: value}) == experiment, name


def test_a_setting_or_a_whole_section_is_replaced_and_the_rest_stays() -> None:
    before = load_experiment("youtubednn")
    now = with_settings(before, {"training.epochs": 3, "objective.sampler": {"kind": "unigram"}})
    assert now == load_experiment("youtubednn", ["training.epochs=3", 'objective.sampler={kind="unigram"}'])
    assert before == load_experiment("youtubednn")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"training.lr": 1}, "no setting 'training.lr'"),
        ({"training.epochs": 0}, r"training\.epochs can't be 0"),
        ({"tower.item.dropout": 0.5}, "no hidden layer"),
    ],
)
def test_what_does_not_fit_is_said_by_name(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        with_settings(ExperimentConfig(), settings)


def test_names_overlap_where_one_holds_the_other() -> None:
    assert overlap("objective", "objective.sampler.negatives")
    assert overlap("objective.sampler.negatives", "objective")
    assert overlap("training.epochs", "training.epochs")
    assert not overlap("training.epoch", "training.epochs")
    assert not overlap("tower.user.dropout", "tower.item.dropout")


def test_a_name_is_as_short_as_it_stays_clear() -> None:
    names = ["tower.user.dropout", "tower.item.dropout", "training.epochs", "dropout"]
    assert short_names(names) == {
        "tower.user.dropout": "user.dropout",
        "tower.item.dropout": "item.dropout",
        "training.epochs": "epochs",
        "dropout": "dropout",
    }


def test_differences_are_told_setting_by_setting() -> None:
    """Also of sections that only one of the two has."""
    before = load_experiment("youtubednn")
    assert differences(before, before) == ""
    assert differences(before, load_experiment("youtubednn", ["training.epochs=3"])) == (
        "training.epochs was 10 and is 3"
    )
    told = differences(before, load_experiment("youtubednn", ['objective={loss="full_softmax"}']))
    assert "objective.loss.kind was 'sampled_softmax' and is 'full_softmax'" in told
    assert "objective.sampler.kind was 'uniform' and is not set" in told


def test_many_differences_are_counted() -> None:
    """A sentence of twenty settings would not be read."""
    settings = ["epochs=3", "patience=1", "warmup=0.2", "decay=0.2", "batch_size=7", "seed=8"]
    before = load_experiment("youtubednn")
    told = differences(before, load_experiment("youtubednn", [f"training.{one}" for one in settings]))
    assert told.count(" was ") == 4
    assert told.endswith(", 2 more")


MIXED = {
    "tower": {"item": {"features": ['a "quoted" \\ name', "é\x7f"]}, "user": {"hidden": []}},
    "objective": {
        "loss": {"kind": "ranking", "delta": "complementary_sum"},
        "sampler": {"kind": "mixed", "parts": [{"kind": "in_batch"}, {"kind": "uniform", "negatives": 7}]},
    },
    "training": {"learning_rate": 1e-7, "weight_decay": 1e6},
}


@pytest.mark.parametrize("name", [*shipped_experiments(), "mixed"])
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    """To the last digit, with lists of sections, and with texts that need escaping."""
    experiment = ExperimentConfig.model_validate(MIXED) if name == "mixed" else load_experiment(name)
    path = tmp_path / "best.toml"
    write_experiment(path, experiment, "Trial 1")
    assert load_experiment(str(path)) == experiment
    assert path.read_text().startswith("# Trial 1\n")


def test_every_setting_is_written_also_those_nobody_changed(tmp_path: Path) -> None:
    """The experiment stays what it was when a later version has other defaults."""
    write_experiment(tmp_path / "best.toml", ExperimentConfig(), "")
    read = tomllib.loads((tmp_path / "best.toml").read_text())
    assert read == ExperimentConfig().model_dump(mode="json", exclude_none=True)
