"""Which losses, samplers, scorings and candidates go together."""

import itertools
import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from turret.data.errors import ConfigurationError
from turret.training.config.compatibility import refusal
from turret.training.config.experiment import ExperimentConfig, ObjectiveConfig, load_experiment
from turret.training.losses.registry import LOSSES
from turret.training.samplers.registry import SAMPLERS as ALL_SAMPLERS

SAMPLERS = {kind: sampler for kind, sampler in ALL_SAMPLERS.items() if sampler.alone}
CATALOG = {"full_softmax", "spherical_softmax", "hierarchical_softmax", "scalable_cross_entropy"}


# Without the expected count of the positive, and without a fixed number of candidates.
UNCOUNTED, UNSIZED = {"two_pass"}, {"bernoulli", "cross_batch"}
NONE: set[str] = set()
REFUSED = {
    **{name: set(SAMPLERS) for name in CATALOG},
    "sampled_softmax": NONE,
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


def toml(value: object) -> str:
    """A value as an override gives it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def load(settings: dict[str, Any]) -> ExperimentConfig:
    """The default experiment with another objective and another scoring, as the command line reads them."""
    settings = {"tower.scoring": {}, **settings}
    return load_experiment("youtubednn", [f"{name}={toml(value)}" for name, value in settings.items()])


def drawing(loss: object, **sampler: object) -> dict[str, object]:
    return {"loss": loss, "sampler": sampler}


EXCLUDED = {"kind": "uniform", "exclude_positive": True}
COSINE = {"kind": "cosine", "temperature": 1.0}
ABSOLUTE = {"absolute": True}
Case = tuple[dict[str, Any], list[str], dict[str, Any]]


# What is asked for, what the sentence says, and the remedy that it offers.
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
