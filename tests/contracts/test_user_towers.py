"""The contract of every user tower: what its vectors depend on, padded as packed, exported as trained."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tower.small_towers import from_the_start, user_features
from turret.data.features.columns import Features
from turret.tower.config import ScoringConfig
from turret.tower.inference.encoder import Session
from turret.tower.layers.packed import PackedHistories
from turret.tower.times import TIME_INPUTS
from turret.tower.towers.config import USER_TOWERS, TowerConfig
from turret.tower.towers.model import TwoTowers
from turret.training.export.onnx_form import user_tower_onnx

DIMENSION, EVENTS = 8, 8
VARIANTS: dict[str, dict[str, object]] = {
    "pooled": {"kind": "pooled", "hidden": [7]},
    "pooled with an age": {"kind": "pooled", "example_age": True, "kinds": True},
    "pooled, a set but one": {"kind": "pooled", "ordered": False, "last_item": False},
    "pooled, a whole set": {"kind": "pooled", "ordered": False, "last_item": False, "leave_out": False},
    "pooled, over roots": {"kind": "pooled", "ordered": False, "last_item": False, "pooling": "root"},
    "pooled, interests": {"kind": "pooled", "interests": 3, "example_age": True},
    "pooled, interests in a set": {"kind": "pooled", "ordered": False, "last_item": False, "interests": 2},
    "attentive": {"kind": "attentive"},
    "gru": {"kind": "gru"},
    "transformer": {"kind": "transformer"},
    "transformer, interests": {"kind": "transformer", "interests": 3},
    "times": {"kind": "transformer", "times": True, "blocks": 1},
    "transformer, filtered": {"kind": "transformer", "filter_share": 0.7, "times": True},
    "query": {"kind": "query", "start": "random", "hidden": [7], "feature_width": 3},
}
# Item vectors [P, D] of two histories of five and three events.
VECTORS = torch.randn(EVENTS, DIMENSION, generator=torch.Generator().manual_seed(0))
# The features that a request gives for the users of `user_features`.
REQUESTED = {
    "country": torch.tensor([1, 0, 2, 1]),
    "age": torch.tensor([0.5, -1.0, 0.0, 2.0]),
    "likes": torch.tensor([[1, 2], [0, 0], [2, 0], [0, 0]]),
}

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def model_of(variant: str, features: Any = "all", item_bias: bool = False) -> TwoTowers:
    """Towers in evaluation mode, the same each time, in which no zeros hide what they multiply."""
    torch.manual_seed(0)
    config = TowerConfig.model_validate(
        {
            "dimension": DIMENSION,
            "scoring": ScoringConfig(item_bias=item_bias),
            "user": {**VARIANTS[variant], "features": "all" if variant == "query" else features},
        }
    )
    model = TwoTowers(config, 7, Features(7, (), {}), user_features(), kind_count=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.5)
    return model


def histories_of(model: TwoTowers) -> PackedHistories:
    """An example of each event, with the window that training gives such a tower."""
    histories, user = from_the_start(), model.config.user
    if user.context in ("leave_one_out", "full_set"):
        histories = replace(histories, ends=torch.tensor([5, 5, 5, 5, 5, 8, 8, 8]))
    if user.context == "none":
        histories = replace(histories, ends=histories.starts)
    return replace(
        histories,
        ages=torch.linspace(0.0, 1.0, EVENTS),
        left_out=torch.arange(EVENTS) if user.context == "leave_one_out" else None,
        gaps=histories.gaps if user.reads_times else None,
        clocks=histories.clocks if user.reads_times else None,
        kinds=torch.tensor([0, 2, 1, -1, 2, 0, -1, 1]) if model.kinds is not None else None,
    )


def shape_of(model: TwoTowers) -> tuple[int, ...]:
    """The shape of the vectors of a user, of whom a tower may have several interests."""
    interests = model.config.user.interests
    return (DIMENSION,) if interests == 1 else (interests, DIMENSION)


def sliding(model: TwoTowers) -> PackedHistories:
    """Windows that begin anywhere and overlap, of one event to four."""
    chosen = histories_of(model).take(torch.tensor([0, 2, 4, 5, 7]))
    if model.config.user.context in ("leave_one_out", "full_set", "none"):
        return chosen
    return replace(chosen, starts=torch.tensor([0, 1, 1, 5, 6]))


def reads_of(histories: PackedHistories) -> Tensor:
    """The events [P] that an example may read: [B, P]."""
    places = torch.arange(EVENTS)
    inside = (histories.starts[:, None] <= places) & (places < histories.ends[:, None])
    return inside if histories.left_out is None else inside & (places != histories.left_out[:, None])


def test_every_kind_is_listed() -> None:
    assert {user["kind"] for user in VARIANTS.values()} == USER_TOWERS.keys()


@every_variant
def test_an_event_moves_the_vectors_of_the_examples_that_read_it_and_no_other(variant: str) -> None:
    model = model_of(variant, features=())
    histories, tower = histories_of(model), model.user
    reads, before = reads_of(histories), tower(histories, VECTORS)
    assert before.shape == (EVENTS, *shape_of(model))
    # Two values each, as some units of a narrow tower are zero for one.
    changes = [("vectors", VECTORS, (3.0, -3.0))]
    if histories.gaps is not None and histories.clocks is not None:
        changes += [("gaps", histories.gaps, (500.0, 9e6)), ("clocks", histories.clocks, (300_000.0, 4000.0))]
    for name, column, values in changes:
        for place in range(EVENTS):
            moved = torch.zeros(EVENTS, dtype=torch.bool)
            for value in values:
                changed = column.clone()
                changed[place] = value
                with torch.no_grad():
                    if name == "vectors":
                        after = tower(histories, changed)
                    else:
                        after = tower(replace(histories, **{name: changed}), VECTORS)
                moved |= ~torch.isclose(before, after, rtol=0.0, atol=1e-6).flatten(1).all(dim=1)
            assert not moved[~reads[:, place]].any(), (name, place)
            # A tower may pass over the clock of an unknown gap.
            if name == "vectors" or bool(column[place] >= 0.0):
                assert moved[reads[:, place]].all(), (name, place)
    watched = VECTORS.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(
        tower(histories, watched)[4].square().sum(), watched, materialize_grads=True
    )
    assert torch.equal(slopes.abs().sum(dim=1) > 0, reads[4])


@every_variant
def test_an_example_alone_is_the_example_among_others(variant: str) -> None:
    model = model_of(variant)
    for histories in (histories_of(model), sliding(model)):
        together = model.user_vectors(histories, VECTORS)
        for example in range(len(histories.starts)):
            one, window = histories.part(slice(example, example + 1))
            found = model.user_vectors(one, VECTORS[window])[0]
            torch.testing.assert_close(found, together[example], rtol=1e-5, atol=1e-5)


@every_variant
def test_every_parameter_gets_a_gradient(variant: str) -> None:
    model = model_of(variant)
    found = model.user_vectors(histories_of(model), VECTORS)
    slopes = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    torch.autograd.backward((found * slopes).sum())
    for name, parameter in model.named_parameters():
        if name.startswith("item."):
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def padded(histories: PackedHistories, extra: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Item vectors [B, T, D], lengths [B], and times [B, T], with other values in the padding."""
    reads = reads_of(histories)
    lengths = reads.sum(dim=1)
    width = int(lengths.max()) + extra
    history = torch.zeros(len(lengths), width, DIMENSION)
    columns = [column for column in (histories.gaps, histories.clocks) if column is not None]
    times = [torch.full((len(lengths), width), 77.0) for _ in columns]
    for example, held in enumerate(reads):
        history[example, : lengths[example]] = VECTORS[held]
        for given, column in zip(times, columns, strict=True):
            given[example, : lengths[example]] = column[held]
    return history, lengths, times


def served(model: TwoTowers) -> tuple[PackedHistories, dict[str, Tensor]]:
    """Examples at the age zero, as they are served, and the features of their users."""
    histories = sliding(model)
    histories = replace(histories, ages=torch.zeros(len(histories.ages)))
    return histories, {name: column[histories.users] for name, column in REQUESTED.items()}


@every_variant
def test_the_served_form_is_the_trained_one(variant: str) -> None:
    model = model_of(variant)
    histories, requested = served(model)
    history, lengths, times = padded(histories, extra=2)
    found = model.user.served(history, lengths, requested, tuple(times))
    torch.testing.assert_close(found, model.user(histories, VECTORS), rtol=1e-5, atol=1e-5)
    reader, first = model.user.feature_reader()
    assert 0 <= first <= reader.in_features - model.user.feature_width


@pytest.mark.parametrize(
    ("variant", "item_bias"),
    [
        ("pooled with an age", True),
        ("transformer, interests", True),
        *(
            pytest.param(variant, variant == "times", marks=pytest.mark.nightly)
            for variant in ("attentive", "gru", "transformer", "times", "pooled, interests")
        ),
    ],
)
def test_the_exported_form_is_the_trained_one(variant: str, item_bias: bool) -> None:
    """With features, at sizes that the export did not see, and of operators that a service allows."""
    model = model_of(variant, item_bias=item_bias)
    histories, requested = served(model)
    exported = user_tower_onnx(model)
    expected = model.user_vectors(histories, VECTORS)
    for extra in (0, 1, 30):
        history, lengths, times = padded(histories, extra)
        inputs = {"history": history, "length": lengths, **dict(zip(TIME_INPUTS, times, strict=False))}
        inputs |= {f"feature_{name}": column for name, column in requested.items()}
        if histories.kinds is not None:
            inputs["kinds"] = torch.full(history.shape[:2], -1)
            for example, held in enumerate(reads_of(histories)):
                inputs["kinds"][example, : lengths[example]] = histories.kinds[held]
        given = {name: column.numpy() for name, column in inputs.items()}
        found = Session(exported, "user_tower.onnx", "user_vector", set(given)).run(
            given, (len(lengths), *shape_of(model))
        )
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-5)
