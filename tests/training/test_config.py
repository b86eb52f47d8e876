"""Experiments: shipped files, overrides, names of settings, and what fits together."""

from pathlib import Path

import pytest

from turret.data.errors import ConfigurationError
from turret.tower.towers.pooled import PooledUserConfig
from turret.training import losses
from turret.training.config.experiment import (
    ExperimentConfig,
    load_experiment,
    shipped_experiments,
    write_experiment,
)
from turret.training.errors import TrainingError
from turret.training.samplers.fixed.popularity import UnigramConfig


def test_overrides_are_toml_or_bare_words() -> None:
    overrides = ["training.batch_size=512", "tower.scoring.kind=dot", "tower.user.hidden=[16, 8]"]
    experiment = load_experiment("youtubednn", overrides)
    assert experiment.training.batch_size == 512
    assert experiment.tower.scoring.kind == "dot"
    assert isinstance(experiment.tower.user, PooledUserConfig)
    assert experiment.tower.user.hidden == (16, 8)
    assert load_experiment("youtubednn", ['objective={loss="full_softmax"}']).objective.sampler is None


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("training.batchsize=5", ["training.batchsize", "batch_size"]),
        ("training.batch_size=0", ["training.batch_size", "0", "greater than or equal to 1"]),
        ("objective.loss=full_softmax", ["'full_softmax' scores the whole catalog", "uniform", "objective="]),
        ("tower.item.dropout=0.5", ["item.dropout", "hidden"]),
        ("objective.loss.delta=1", ["no setting 'objective.loss.delta'", "known here: kind"]),
        ("objective.loss.kind=nope", ["objective.loss.kind can't be 'nope'", "'sampled_softmax'"]),
        (
            "objective=full_softmax",
            ["can't be 'full_softmax'", "with some of candidates, loss, mask_known, sampler"],
        ),
        (
            "training.epochs.most=3",
            ["training.epochs = 10 is no section", "set the whole of 'training.epochs'"],
        ),
        ('objective.sampler={kind="mixed", parts=[]}', ["objective.sampler.parts", "at least 1"]),
        (
            'objective.sampler={kind="mixed", parts=["uniform", {kind="mined", negatives=0}]}',
            ["objective.sampler.parts.1.negatives can't be 0"],
        ),
        ("training.epochs=1\nepochs=99", ["one line"]),
    ],
)
def test_a_wrong_setting_is_refused_with_the_remedy(override: str, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_experiment("youtubednn", [override])
    for part in parts:
        assert part in str(refused.value)


def test_a_setting_is_added_to_a_loss_or_a_sampler_that_is_a_bare_name(tmp_path: Path) -> None:
    """`loss = "ranking"` stands for the section of that kind, for an override too."""
    (tmp_path / "bare.toml").write_text('[objective]\nloss = "ranking"\nsampler = "unigram"\n')
    overrides = ["objective.loss.delta=complementary_sum", "objective.sampler.negatives=5"]
    objective = load_experiment(str(tmp_path / "bare.toml"), overrides).objective
    assert objective.loss == losses.ranking(kind="ranking", delta="complementary_sum")
    assert objective.sampler == UnigramConfig(kind="unigram", negatives=5)


def test_a_missing_experiment_names_the_shipped_ones() -> None:
    with pytest.raises(TrainingError, match=r"no such file.*dssm.*youtubednn"):
        load_experiment("youtubednm")


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        # With one example a batch there is no candidate, and the loss would always be zero.
        ('{loss="sampled_softmax_corrected", sampler={kind="in_batch"}}', r"batch_size = 1 .*uniform"),
        # Mined candidates never reach most items, and an empty queue reaches none.
        (
            '{loss="sampled_softmax", sampler={kind="mixed", parts=["mined", "cross_batch"]}}',
            r"every item in every step.*uniform",
        ),
        # In the first step it would be a mean over nothing.
        (
            '{loss="negative_sampling", sampler={kind="mixed", parts=["cross_batch", "uniform"]}}',
            r"fixed number of candidates.*sampled_softmax",
        ),
    ],
)
def test_candidates_that_may_be_missing_are_refused(objective: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load_experiment("youtubednn", [f"objective={objective}", "training.batch_size=1"])


def test_a_refusal_says_what_came_from_the_command_line() -> None:
    """And which setting it is about, where the reason does not name it."""
    overrides = ['objective.sampler={kind="log_uniform", unique=true, exclude_positive=true}']
    with pytest.raises(ConfigurationError) as refused:
        load_experiment("youtubednn", overrides)
    said = str(refused.value)
    assert "youtubednn.toml with objective.sampler overridden: objective.sampler: a unique" in said


UNUSUAL = {
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
    experiment = ExperimentConfig.model_validate(UNUSUAL) if name == "mixed" else load_experiment(name)
    path = tmp_path / "best.toml"
    write_experiment(path, experiment, "Trial 1")
    assert load_experiment(str(path)) == experiment
    assert path.read_text().startswith("# Trial 1\n")
