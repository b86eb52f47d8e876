from collections.abc import Mapping
from typing import Any

import pytest

from tests.training.auto.facts import facts
from turret.data.errors import ConfigurationError
from turret.training.auto.candidates import candidates
from turret.training.config.experiment import ExperimentConfig


def experiments(overrides: Mapping[str, object] | None = None, **others: Any) -> dict[str, ExperimentConfig]:
    return candidates(facts(**others), overrides or {})[0]


@pytest.mark.parametrize(
    ("order", "names"),
    [
        (2.0, ["transformer", "pooled"]),
        (1.3, ["transformer", "set", "pooled"]),
        (None, ["transformer", "set", "pooled"]),
        (1.0, ["set", "pooled"]),
    ],
)
def test_the_order_decides_between_transformers_and_sets(order: float | None, names: list[str]) -> None:
    assert list(experiments(order=order)) == names


def test_the_names_say_how_histories_are_read() -> None:
    found = experiments(order=1.3)
    assert found["transformer"].tower.user.context == "causal_segment"
    assert found["set"].tower.user.context == "full_set"
    assert found["pooled"].tower.user.context == "causal_window"


@pytest.mark.parametrize("features", [{"item_features": ("genre",)}, {"user_features": ("age",)}])
def test_features_are_read_by_one_candidate_in_place_of_ids_alone(features: dict[str, Any]) -> None:
    found = experiments(**features)
    assert list(found) == ["transformer", "features"]
    assert found["features"].tower.user.features == "all"
    assert (found["features"].tower.item.features == "all") == ("item_features" in features)


def test_a_set_with_features_leaves_the_target_out() -> None:
    """A mean that contains the target's features would give it away."""
    found = experiments(order=1.0, item_features=("genre",))["set"].tower
    assert found.user.context == "leave_one_out"
    assert (found.item.features, found.item.id_dropout) == ("all", 0.5)


def test_categories_are_tried_alone() -> None:
    """Beside texts and numbers, which tell items apart as ids do; not where the order is certain."""
    features: dict[str, Any] = {"item_features": ("genre", "price"), "item_tastes": {"genre": 3.0}}
    tower = experiments(order=1.0, **features)["categories"].tower
    assert tower.user.context == "leave_one_out"
    assert (tower.item.features, tower.item.id_dropout) == (("genre",), 0.9)
    assert "categories" not in experiments(order=2.0, **features)
    assert "categories" not in experiments(order=1.0, item_features=("price",))


@pytest.mark.parametrize(
    ("examples", "batch", "epochs"),
    [(1_000, 256, 200), (98_000, 1024, 40), (365_000, 4096, 10), (10**8, 4096, 10)],
)
def test_batches_and_epochs_follow_the_size_of_the_log(examples: int, batch: int, epochs: int) -> None:
    """About 100 steps an epoch, and 4 million examples in all, within bounds."""
    for experiment in experiments(examples=examples).values():
        assert (experiment.training.batch_size, experiment.training.epochs) == (batch, epochs)
        assert experiment.training.patience == max(5, epochs // 10)


def test_small_logs_have_a_transformer_with_more_dropout() -> None:
    small, large = (experiments(examples=size)["transformer"].tower.user for size in (50_000, 10**6))
    assert small.dropout > large.dropout


@pytest.mark.parametrize(("share", "excluded"), [(0.04, True), (0.2, False)])
def test_repeats_decide_whether_used_items_are_ranked(share: float, excluded: bool) -> None:
    for experiment in experiments(repeat_share=share).values():
        assert experiment.evaluation.exclude_seen is excluded


def test_large_catalogs_are_scored_by_samples() -> None:
    """By the items of the batch where features make each item cost a pass through the tower."""
    large = experiments(items=200_000)
    assert {item.objective.loss.kind for item in large.values()} == {"sampled_softmax"}
    described = experiments(items=30_000, item_features=("genre",))
    assert described["features"].objective.sampler is not None
    assert described["features"].objective.sampler.kind == "in_batch"
    assert described["transformer"].objective.loss.kind == "full_softmax"


def test_given_settings_win_over_all_rules() -> None:
    """A setting of a section that the rules replace, or a whole section."""
    sampler = {"kind": "uniform", "negatives": 7}
    for given in (
        {"training.epochs": 2, "objective.sampler.negatives": 7},
        {"training.epochs": 2, "objective": {"loss": "sampled_softmax", "sampler": sampler}},
    ):
        for experiment in experiments(given, items=200_000).values():
            assert experiment.training.epochs == 2
            assert experiment.objective.sampler is not None
            assert experiment.objective.sampler.model_dump()["negatives"] == 7


def test_candidates_that_the_given_settings_contradict_are_named() -> None:
    found, refused = candidates(facts(), {"tower.user.blocks": 1})
    assert list(found) == ["transformer"]
    assert list(refused) == ["pooled"]
    assert "blocks" in refused["pooled"]


def test_settings_that_no_candidate_has_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="epoch"):
        candidates(facts(), {"training.epoch": 2})


@pytest.mark.parametrize(
    ("ratios", "names"),
    [
        ({"genre": 16.0, "shelf": 4.1, "tag": 3.9, "colour": 1.0}, ("genre", "shelf")),
        ({"genre": 1.2, "colour": 1.05}, ("genre",)),
        ({"colour": 1.05, "size": 0.4}, ()),
    ],
)
def test_categories_that_say_little_are_left_out(ratios: dict[str, float], names: tuple[str, ...]) -> None:
    """Less than half of the information of the best, or next to none."""
    tried = experiments(order=1.0, item_features=tuple(ratios), item_tastes=ratios)
    assert ("categories" in tried) == bool(names)
    if names:
        assert tried["categories"].tower.item.features == names
