"""An item tower written by hand: an item's vector is where its numbers say, so that tests can place it."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.conftest import onnx_model
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
    numbers = range(dimension)
    constants: dict[str, NDArray[Any]] = {
        "axis1": np.array([1], np.int64),
        "base": np.eye(1, dimension, dtype=np.float32) * np.float32(1e-6),
        "signs": np.array([[1.0], [1.0], [turn]], np.float32),
        "nothing": np.zeros((3, 1), np.float32),
    }
    nodes = f"""
        {" ".join(f"c{i} = Unsqueeze (feature_n{i}, axis1)" for i in numbers)}
        numbers = Concat <axis=1> ({", ".join(f"c{i}" for i in numbers)})
        moved = Add (numbers, base)
        sign = Gather (signs, feature_kind)
        turned = Mul (moved, sign)
        each = Gather (nothing, feature_tags)
        none = ReduceSum <keepdims=0> (each, axis1)
        state = Add (turned, none)
        norm = ReduceL2 <axes=[1], keepdims=1> (state)
        item_vector = Div (state, norm)
    """
    inputs = [
        *(f"float[B] feature_n{i}" for i in numbers),
        "int64[B] feature_kind",
        "int64[B,M] feature_tags",
    ]
    return onnx_model(inputs, nodes, f"float[B,{dimension}] item_vector", constants)


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
