"""An item tower written by hand: an item's vector is where its numbers say, so that tests can place it."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, checker, helper, numpy_helper

from turret.data.features import Feature
from turret.tower.bundle.golden import RecordedItem
from turret.tower.bundle.publish import BundleContents

CATEGORY = Feature(name="kind", kind="category", values=("book", "film"))
TAGS = Feature(name="tags", kind="multi", values=("old", "new"))


def item_features(dimension: int) -> tuple[Feature, ...]:
    """Numbers `n0` ... one a coordinate, a category that turns the vector round, tags that do nothing."""
    return (*(Feature(name=f"n{i}", kind="number") for i in range(dimension)), CATEGORY, TAGS)


def item_tower(dimension: int, turn: float = -1.0) -> bytes:
    """Unit vectors of the numbers, a little of the first coordinate added; `film` multiplies by `turn`."""
    inputs = [
        helper.make_tensor_value_info(f"feature_n{i}", TensorProto.FLOAT, ["B"]) for i in range(dimension)
    ]
    inputs.append(helper.make_tensor_value_info("feature_kind", TensorProto.INT64, ["B"]))
    inputs.append(helper.make_tensor_value_info("feature_tags", TensorProto.INT64, ["B", "M"]))
    constants: dict[str, NDArray[Any]] = {
        "axis1": np.array([1], np.int64),
        "base": np.eye(1, dimension, dtype=np.float32) * np.float32(1e-6),
        "signs": np.array([[1.0], [1.0], [turn]], np.float32),
        "nothing": np.zeros((3, 1), np.float32),
    }
    nodes = [
        *(helper.make_node("Unsqueeze", [f"feature_n{i}", "axis1"], [f"c{i}"]) for i in range(dimension)),
        helper.make_node("Concat", [f"c{i}" for i in range(dimension)], ["numbers"], axis=1),
        helper.make_node("Add", ["numbers", "base"], ["moved"]),
        helper.make_node("Gather", ["signs", "feature_kind"], ["sign"]),
        helper.make_node("Mul", ["moved", "sign"], ["turned"]),
        helper.make_node("Gather", ["nothing", "feature_tags"], ["each"]),
        helper.make_node("ReduceSum", ["each", "axis1"], ["none"], keepdims=0),
        helper.make_node("Add", ["turned", "none"], ["state"]),
        helper.make_node("ReduceL2", ["state"], ["norm"], axes=[1], keepdims=1),
        helper.make_node("Div", ["state", "norm"], ["item_vector"]),
    ]
    output = helper.make_tensor_value_info("item_vector", TensorProto.FLOAT, ["B", dimension])
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "item_tower", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    written: bytes = model.SerializeToString()
    return written


def placed(vector: NDArray[np.float32] | list[float]) -> dict[str, float]:
    """The features that put an item where `vector` is."""
    return {f"n{i}": float(value) for i, value in enumerate(vector)}


def with_item_tower(contents: BundleContents) -> BundleContents:
    """The same bundle with this item tower, and two recorded items."""
    dimension = contents.item_vectors.shape[1]
    places = [np.eye(dimension, dtype=np.float32)[-1], -np.eye(dimension, dtype=np.float32)[1]]
    kinds = ("book", "film")
    recorded = tuple(
        RecordedItem(
            id=contents.vocabulary.id(row),
            features={**placed(place), "kind": kind},
            vector=tuple((place if kind == "book" else -place).tolist()),
        )
        for row, (place, kind) in enumerate(zip(places, kinds, strict=True))
    )
    return replace(
        contents,
        item_tower=item_tower(dimension),
        item_features=item_features(dimension),
        golden=contents.golden.model_copy(update={"items": recorded}),
    )
