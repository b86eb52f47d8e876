"""The context of a request changes the finished vector of its user, whatever the tower."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch

from tests.tower.small_towers import from_the_start, no_features, user_features, vectors
from turret.data.features.columns import Bag, Features
from turret.data.features.feature import Feature
from turret.tower.errors import TowerError
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.config import TowerConfig
from turret.tower.towers.context import UNKNOWN_SHARE
from turret.tower.towers.model import TwoTowers
from turret.training.export.onnx_form import user_tower_onnx

KINDS = ("pooled", "attentive", "gru", "transformer")
CONTEXTS = torch.tensor([1, 1, 2, 3, 0, 3, 2, 1])
INPUTS = {"device": torch.tensor([0, 1, 2, 1]), "pages": torch.tensor([[0, 0], [1, 0], [1, 2], [2, 0]])}


def context_features() -> Features:
    """The unknown context, and three others."""
    features = (
        Feature(name="device", kind="category", values=("desktop", "mobile")),
        Feature(name="pages", kind="multi", values=("home", "search")),
    )
    pages = Bag(np.array([1, 1, 2, 2], dtype=np.int32), np.array([0, 0, 1, 3, 4]))
    return Features(4, features, {"device": np.array([0, 1, 2, 1], dtype=np.int32), "pages": pages})


def model_of(kind: str, is_trained: bool = True) -> TwoTowers:
    """Towers that read a context, in evaluation mode; trained ones have no zeros for weights."""
    torch.manual_seed(0)
    user = {"kind": kind, "features": "all", "context_features": "all"}
    config = TowerConfig.model_validate({"dimension": 6, "user": user})
    prepared = no_features(9), user_features()
    model = TwoTowers(config, 9, *prepared, context_features=context_features()).eval()
    with torch.no_grad():
        for parameter in model.parameters() if is_trained else ():
            if not parameter.any():
                parameter.normal_(std=0.5)
    return model


def histories() -> PackedHistories:
    """Every position of two histories, each example with a context of its own."""
    return replace(from_the_start(), gaps=None, clocks=None, contexts=CONTEXTS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_has_the_vector_of_its_own_context_however_it_is_computed(kind: str) -> None:
    """Examples of one segment share a pass; alone, and in chunks, each has the same vector."""
    model, packed = model_of(kind), histories()
    together = model.user_vectors(packed, vectors())
    unknown = model.user_vectors(replace(packed, contexts=None), vectors())
    is_known = CONTEXTS != 0
    assert torch.equal(together[~is_known], unknown[~is_known])
    assert ((together - unknown)[is_known].abs().amax(dim=1) > 1e-3).all()
    model.chunk_size = 3
    torch.testing.assert_close(model.user_vectors(packed, vectors()), together)
    first, groups = replace(packed, starts=packed.starts * 0, ends=packed.ends * 0 + 5).distinct()
    assert first.tolist() == [0, 2, 3, 4, 5, 6, 7]  # the first two are equal in all, and in their context
    assert groups.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    chosen = packed.take(first).contexts
    assert chosen is not None
    assert chosen.tolist() == [1, 2, 3, 0, 3, 2, 1]


@pytest.mark.parametrize("kind", ["pooled", pytest.param("transformer", marks=pytest.mark.nightly)])
def test_the_exported_tower_reads_the_context_as_training_does(kind: str) -> None:
    model = model_of(kind)
    packed = PackedHistories(
        torch.tensor([3, 1, 4, 1]), torch.arange(4), torch.arange(1, 5), torch.arange(4), torch.zeros(4)
    )
    expected = model.user_vectors(replace(packed, contexts=torch.arange(4)), vectors()[:4])
    features = {
        "country": torch.tensor([1, 0, 2, 1]),
        "age": torch.tensor([0.5, -1.0, 0.0, 2.0]),
        "likes": torch.tensor([[1, 2], [0, 0], [2, 0], [0, 0]]),
        **INPUTS,
    }
    inputs = {f"feature_{name}": values.numpy() for name, values in features.items()}
    inputs |= {"history": vectors()[:4, None].numpy(), "length": np.ones(4, dtype=np.int64)}
    (found,) = onnxruntime.InferenceSession(user_tower_onnx(model)).run(["user_vector"], inputs)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-5)


def test_vectors_begin_as_those_of_a_tower_without_a_context_and_training_hides_some() -> None:
    model, packed = model_of("pooled", is_trained=False), histories()
    without = replace(packed, contexts=None)
    assert torch.equal(model.user_vectors(packed, vectors()), model.user_vectors(without, vectors()))
    layer = model_of("pooled").context
    assert layer is not None
    users, contexts = torch.zeros(4000, 6), torch.ones(4000, dtype=torch.int64)
    is_hidden = (layer.train()(users, contexts) == layer(users, None)).all(dim=1).float()
    deviation = (UNKNOWN_SHARE * (1 - UNKNOWN_SHARE) / len(users)) ** 0.5
    assert float(is_hidden.mean()) == pytest.approx(UNKNOWN_SHARE, abs=4 * deviation)


def test_a_context_that_is_not_prepared_is_refused_by_the_name_of_the_setting() -> None:
    config = TowerConfig.model_validate({"user": {"context_features": ["place"]}})
    with pytest.raises(
        TowerError, match=r"tower\.user\.context_features: there is no prepared .*: device, p"
    ):
        TwoTowers(config, 9, no_features(9), no_features(4), context_features=context_features())
