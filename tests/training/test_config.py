"""Experiments: shipped files, overrides, names of settings, and what fits together."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from turret.data.errors import ConfigurationError
from turret.tower.towers.pooled import PooledUserConfig
from turret.training import losses
from turret.training.config.experiment import (
    ExperimentConfig,
    ObjectiveConfig,
    load_experiment,
    refusal,
    shipped_experiments,
    write_experiment,
)
from turret.training.losses.registry import LOSSES
from turret.training.samplers.fixed.popularity import UnigramConfig
from turret.training.samplers.registry import SAMPLERS as ALL_SAMPLERS


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
        ("objective.loss=full_softmax", ["'full_softmax' scores the whole catalog", "uniform", "objective="]),
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
        (
            'objective.sampler={kind="mixed", parts=["uniform", {kind="mined", negatives=0}]}',
            ["objective.sampler.parts.1.negatives can't be 0"],
        ),
        ("training.epochs=1\nepochs=99", ["one line"]),
        # Mined candidates never reach most items, and an empty queue reaches none.
        (
            'objective.sampler={kind="mixed", parts=["mined", "cross_batch"]}',
            ["every item in every step", "uniform"],
        ),
        # In the first step it would be a mean over nothing.
        (
            'objective={loss="negative_sampling", sampler={kind="mixed", parts=["cross_batch", "uniform"]}}',
            ["fixed number of candidates", "sampled_softmax"],
        ),
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


def test_a_batch_without_another_example_to_draw_from_is_refused() -> None:
    """There would be no candidate, and the loss would always be zero."""
    overrides = ["objective.sampler={kind='in_batch'}", "training.batch_size=1"]
    with pytest.raises(ConfigurationError, match=r"batch_size = 1 .*uniform"):
        load_experiment("youtubednn", overrides)


def test_an_experiment_of_an_earlier_release_is_read_where_a_removed_setting_had_no_effect() -> None:
    settings = ExperimentConfig().model_dump(mode="json")
    settings["training"]["average"] = 0.0
    assert ExperimentConfig.model_validate(settings) == ExperimentConfig()
    settings["training"]["average"] = 2.0
    with pytest.raises(ValidationError, match="average"):
        ExperimentConfig.model_validate(settings)


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


SAMPLERS = {kind: sampler for kind, sampler in ALL_SAMPLERS.items() if sampler.alone}
CATALOG = {"full_softmax", "spherical_softmax", "hierarchical_softmax", "scalable_cross_entropy"}
# Without the expected count of the positive, and without a fixed number of candidates.
UNCOUNTED, UNSIZED = {"two_pass"}, {"bernoulli", "cross_batch"}
NONE: set[str] = set()
REFUSED = {
    **{name: set(SAMPLERS) for name in CATALOG},
    "sampled_softmax": NONE,
    "top_k_off_policy": NONE,
    "subset_softmax": NONE,
    "refined_logq": NONE,
    "sampled_softmax_corrected": UNCOUNTED,
    "nce": UNCOUNTED,
    "standard_importance": UNCOUNTED | UNSIZED,
    "blackout": UNCOUNTED | UNSIZED,
    "negative_sampling": UNSIZED,
    "ranking": UNSIZED,
    "ranking_hinge": UNSIZED,
    "binary_cross_entropy": UNSIZED,
    "cosine_hinge": UNSIZED,
    "cosine_embedding": UNSIZED,
    "gbce": UNSIZED,
}


def load(settings: dict[str, Any]) -> ExperimentConfig:
    """The default experiment with another objective and another scoring."""
    return load_experiment("youtubednn", {"tower.scoring": {}, **settings})


def drawing(loss: object, **sampler: object) -> dict[str, object]:
    return {"loss": loss, "sampler": sampler}


EXCLUDED = {"kind": "uniform", "exclude_positive": True}
COSINE = {"kind": "cosine", "temperature": 1.0}
ABSOLUTE = {"absolute": True}
QUERY = {"kind": "query", "features": "all", "start": "random"}
Case = tuple[dict[str, Any], list[str], dict[str, Any]]


# The settings, the words of the sentence, and the remedy that it offers.
CASES: dict[str, Case] = {
    "corrected without the positive": (
        {"objective": drawing("sampled_softmax_corrected", **EXCLUDED)},
        ["expected count of the positive", "exclude_positive = true", "use 'sampled_softmax'"],
        {"objective": drawing("sampled_softmax", **EXCLUDED)},
    ),
    "known items of a cluster": (
        {"objective": {"loss": "hierarchical_softmax", "mask_known": True}},
        ["the cluster's own score", "set mask_known = false, or loss = 'full_softmax'"],
        {"objective": {"loss": "full_softmax", "mask_known": True}},
    ),
    "positive features without signs": (
        {"objective": drawing("sampled_softmax", kind="positive_features"), "tower.scoring": ABSOLUTE},
        ["h and -h the same scores", "'positive_features' other probabilities", "use kind = 'quadratic'"],
        {"objective": drawing("sampled_softmax", kind="quadratic"), "tower.scoring": ABSOLUTE},
    ),
    "a cosine margin on other scores": (
        {"objective": drawing("cosine_hinge", kind="uniform"), "tower.scoring": {"temperature": 0.07}},
        ["margin in cosines", "temperature = 1.0", "not kind = 'cosine' with temperature = 0.07"],
        {"objective": drawing("cosine_hinge", kind="uniform"), "tower.scoring": COSINE},
    ),
    "a sampler beside given negatives": (
        {"objective": {**drawing("ranking", kind="uniform"), "candidates": "given"}},
        ["takes the negatives of the data", "objective.sampler.kind = 'uniform' contradicts it"],
        {"objective": {"loss": "ranking", "candidates": "given"}},
    ),
    "a loss of pairs that has none": (
        {"objective": {"loss": "ranking", "candidates": "labelled"}},
        ["a pair and its label have no loss", "use 'binary_cross_entropy' or", "or candidates = 'given'"],
        {"objective": {"loss": "binary_cross_entropy", "candidates": "labelled"}},
    ),
    "known items of labelled pairs": (
        {"objective": {"loss": "binary_cross_entropy", "candidates": "labelled", "mask_known": True}},
        ["mask_known = true masks candidates", "set mask_known = false"],
        {"objective": {"loss": "binary_cross_entropy", "candidates": "given", "mask_known": True}},
    ),
    "teachers of a sample": (
        {"training": {"teacher": ["var/teacher"]}},
        ["training.teacher is a label over the whole catalog; set objective.loss = 'full_softmax'"],
        {"objective": {"loss": "full_softmax"}, "training": {"teacher": "var/teacher"}},
    ),
    "teachers of several interests": (
        {
            "objective": {"loss": "full_softmax"},
            "tower.user": {"kind": "transformer", "interests": 2},
            "training": {"teacher": ["var/teacher"]},
        },
        ["a label of one vector for a history; set tower.user.interests = 1"],
        {"objective": {"loss": "full_softmax"}, "training": {"teacher": ["var/teacher"]}},
    ),
    "pairs of absolute scores": (
        {"objective": {"loss": "full_softmax"}, "tower.scoring": {**ABSOLUTE, "pairs": 8}},
        ["pairs = 8 adds scores whose sign scoring.absolute = true drops", "set scoring.pairs = 0, or"],
        {"objective": {"loss": "full_softmax"}, "tower.scoring": {"pairs": 8}},
    ),
    "pairs of several interests": (
        {"tower.user": {"kind": "transformer", "interests": 2}, "tower.scoring": {"pairs": 8}},
        ["needs one vector of a history, and user.interests = 2 gives several; set scoring.pairs = 0"],
        {"tower.user": {"kind": "transformer", "interests": 2}},
    ),
    "pairs of queries": (
        {"tower.user": QUERY, "tower.scoring": {"pairs": 8}},
        ["needs one vector of a history, and user.kind = 'query' reads none; set scoring.pairs = 0"],
        {"tower.user": QUERY},
    ),
    "pairs beside no inner product": (
        {"objective": {"loss": "hierarchical_softmax"}, "tower.scoring": {"pairs": 8}},
        ["objective.loss = 'hierarchical_softmax' does not rank by them", "set tower.scoring.pairs = 0"],
        {"objective": {"loss": "hierarchical_softmax"}},
    ),
    "a smoothed label of absolute scores": (
        {"objective": {"loss": {"kind": "full_softmax", "smoothing": 0.1}}, "tower.scoring": ABSOLUTE},
        ["smoothing = 0.1 reads the mean of signed scores", "absolute = false, or smoothing = 0"],
        {"objective": {"loss": {"kind": "full_softmax", "smoothing": 0.1}}},
    ),
    "squares that are ranked with signs": (
        {"objective": {"loss": "spherical_softmax"}},
        ["ignores the sign of a score", "set tower.scoring.absolute = true, or loss = 'full_softmax'"],
        {"objective": {"loss": "spherical_softmax"}, "tower.scoring": ABSOLUTE},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_what_makes_no_sense_is_refused_with_the_reason_and_a_remedy_that_works(case: Case) -> None:
    """On one line, as the command line shows it."""
    asked, parts, remedy = case
    with pytest.raises(ConfigurationError) as refused:
        load(asked)
    for part in parts:
        assert part in str(refused.value)
    assert "\n" not in str(refused.value)
    load(remedy)


def test_every_pair_is_accepted_or_refused_with_a_sentence() -> None:
    """It names both settings and what would work, and that works; `load` refuses with it."""
    assert REFUSED.keys() == LOSSES.keys(), "a new loss has to say what it goes with"
    for loss, sampler in itertools.product(LOSSES, SAMPLERS):
        reason = refusal(LOSSES[loss](kind=loss), SAMPLERS[sampler](kind=sampler))
        if sampler not in REFUSED[loss]:
            assert reason is None
            assert ObjectiveConfig.model_validate(drawing(loss, kind=sampler)).sampler is not None
            continue
        assert reason is not None
        for part in (f"loss = '{loss}'", f"objective.sampler.kind = '{sampler}'", "'sampled_softmax'"):
            assert part in reason
        with pytest.raises(ValidationError, match=re.escape(reason)):
            ObjectiveConfig.model_validate(drawing(loss, kind=sampler))
        ObjectiveConfig.model_validate(drawing("sampled_softmax", kind=sampler))
        remedy = {"loss": loss} if loss in CATALOG else drawing(loss, kind="uniform")
        ObjectiveConfig.model_validate(remedy)
