"""An item tower written by hand: an item's vector is where its numbers say, so that tests can place it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.conftest import USER_FEATURES, contents, onnx_model
from turret.data.features.feature import Feature
from turret.tower.bundle.golden import RecordedItem
from turret.tower.bundle.publish import BundleContents, publish

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


def with_item_tower(plain: BundleContents) -> BundleContents:
    """The same bundle with this item tower, and two recorded items."""
    dimension = plain.item_vectors.shape[1]
    places = [np.eye(dimension, dtype=np.float32)[-1], -np.eye(dimension, dtype=np.float32)[1]]
    kinds = ("book", "film")
    recorded = tuple(
        RecordedItem(
            id=plain.vocabulary.id(row),
            features={**placed(place), "kind": kind},
            vector=tuple((place if kind == "book" else -place).tolist()),
        )
        for row, (place, kind) in enumerate(zip(places, kinds, strict=True))
    )
    return replace(
        plain,
        item_tower=item_tower(dimension),
        item_features=item_features(dimension),
        golden=plain.golden.model_copy(update={"items": recorded}),
    )


def publish_described(root: Path, version: str = "v1", seed: int = 0) -> None:
    """Publish a bundle that has everything the document of the calls can speak of.

    60 items with ids from 100, features of both sides, times, and a field of each kind that a filter reads.
    """
    plain = contents(version, features=USER_FEATURES, times=True, seed=seed)
    count = len(plain.item_vectors)
    fields: dict[str, list[Any]] = {
        "title": [f"Item {row}" for row in range(count)],
        "genres": [["drama"] if row % 3 else ["drama", "noir"] for row in range(count)],
        "year": [None if row % 10 == 0 else 1960 + row for row in range(count)],
        "sizes": [[row % 4, 10] for row in range(count)],
        "new": [row % 2 == 0 for row in range(count)],
        "country": [("nl", "de", "fr")[row % 3] for row in range(count)],
        "anything": [row if row % 2 else str(row) for row in range(count)],
        "nothing": [None] * count,
    }
    publish(root, with_item_tower(replace(plain, fields=fields)))
