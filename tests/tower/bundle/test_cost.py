"""How long towers may take: told by processor time, for every length of a history."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tests.support.hostile_towers import honest
from tests.support.item_towers import with_item_tower
from turret.data.features import Feature
from turret.tower.bundle import cost
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.cost import check_cost
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.inference.encoder import TOGETHER, Encoder

Make = Callable[..., BundleContents]


def slow(width: int) -> bytes:
    """As the honest tower, after a product of `width` ** 3 multiplications that changes nothing."""
    model = honest()
    constants: dict[str, NDArray[Any]] = {
        "zero": np.zeros((1, 1), np.float32),
        "wide": np.array([width, width], np.int64),
    }
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    model.graph.node[-1].output[0] = "honest"
    model.graph.node.extend(
        [
            # Of the history, so that it isn't folded into a constant when the tower is opened.
            helper.make_node("ReduceSum", ["history"], ["any"], keepdims=0),
            helper.make_node("Mul", ["any", "zero"], ["nothing"]),
            helper.make_node("Expand", ["nothing", "wide"], ["square"]),
            helper.make_node("MatMul", ["square", "square"], ["product"]),
            helper.make_node("ReduceSum", ["product"], ["total"], keepdims=0),
            helper.make_node("Add", ["honest", "total"], ["user_vector"]),
        ]
    )
    written: bytes = model.SerializeToString()
    return written


@pytest.fixture
def bundle(bundles: Path) -> Bundle:
    return Bundle.open(bundles / "v1")


def test_every_length_and_number_is_tried(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[int, int]] = []
    encode = bundle.encoder.encode

    def noted(histories: list[Any], features: list[Any]) -> NDArray[np.float32]:
        tried.append((len(histories[0]), len(histories)))
        return encode(histories, features)

    monkeypatch.setattr(bundle.encoder, "encode", noted)
    check_cost(bundle, 10_000)
    assert tried[0] == (5, 1), "the longest that this tower reads"
    assert sorted(tried[1:]) == [(1, 1), (2, 1), (3, 1), (4, 1), *((5, n) for n in range(2, TOGETHER + 1))]
    tried.clear()
    check_cost(bundle, 3)
    assert max(count for count, _ in tried) == 3, "nobody gives it more"


def test_a_slow_tower_is_not_asked_every_length(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_ALL_SECONDS", 0.0)
    calls = []
    monkeypatch.setattr(bundle.encoder, "encode", lambda *given: calls.append(sum(range(1000))))
    check_cost(bundle, 10_000)
    assert len(calls) == 1


@pytest.mark.fault(48)
def test_a_tower_that_takes_too_long_is_refused(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """By real work, of about a hundredth of what takes too long."""
    monkeypatch.setattr(cost, "HISTORY_SECONDS", 0.005)
    check_cost(bundle, 10_000)
    bundle.encoder = Encoder(slow(1500), bundle.vectors, 5, ())
    with pytest.raises(BundleError, match="of processor time for a history of 5 items"):
        check_cost(bundle, 10_000)


def test_an_item_tower_and_large_features_are_tried_too(
    tmp_path: Path, make_contents: Make, user_features: tuple[Feature, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, with_item_tower(make_contents(features=user_features)))
    bundle = Bundle.open(tmp_path / "v1")
    assert bundle.item_encoder is not None
    given: list[object] = []
    encode = bundle.item_encoder.encode

    def noted(items: Sequence[Mapping[str, object]]) -> NDArray[np.float32]:
        given.extend(items)
        return encode(items)

    monkeypatch.setattr(bundle.item_encoder, "encode", noted)
    check_cost(bundle, 10_000)
    (features,) = given
    assert isinstance(features, dict)
    assert len(features["tags"]) == 2000
