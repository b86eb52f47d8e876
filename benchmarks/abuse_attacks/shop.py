"""The bundles of the service that is attacked: written by hand, made in a second, without any training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper

from turret.data.features import Feature
from turret.data.vocabulary import Vocabulary
from turret.tower.bundle.golden import RecordedItem
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.config import ScoringConfig

# The first rows are the unit vectors, so that the scores of an answer spell out the user vector.
ITEMS, WIDTH = 1_000, 48
HISTORY_LENGTH = 20
FIRST_ID = 1
LIVE = "v1"
_DIRECTION = np.full((1, WIDTH), 1 / np.sqrt(WIDTH), np.float32)


def publish_shop(bundles: Path, version: str = LIVE, first_id: int = FIRST_ID, seed: int = 0) -> Path:
    """Publish a bundle of 1,000 items, some 170 bytes of an answer each; the first becomes current."""
    vectors = item_vectors(seed)
    ids = range(first_id, first_id + ITEMS)
    vocabulary = Vocabulary(ids)
    histories = [[100], [101, 102, 103], [ITEMS - 1, 100, ITEMS // 2]]
    contents = BundleContents(
        version=version,
        user_tower=mean_tower(),
        item_vectors=vectors,
        vocabulary=vocabulary,
        user_features=(),
        fields={"title": [f"Item {one}, {'of a long name ' * 7}" for one in ids]},
        popularity=np.arange(ITEMS, 0, -1, dtype=np.int64),
        scoring=ScoringConfig(kind="dot", temperature=1.0),
        history_length=HISTORY_LENGTH,
        model=b"safetensors",
        recorded=[{"history": vocabulary.ids(rows), "features": {}} for rows in histories],
        expected=[_ranking(vectors, rows) for rows in histories],
        item_tower=_item_tower(),
        item_features=(Feature(name="size", kind="number"),),
        recorded_items=(
            RecordedItem(id=first_id, features={"size": 1.0}, vector=tuple(_DIRECTION[0].tolist())),
        ),
    )
    return publish(bundles, contents)


def item_vectors(seed: int = 0) -> NDArray[np.float32]:
    """Item vectors [1000, 48]: the unit vectors, then directions at random."""
    vectors = np.random.default_rng(seed).standard_normal((ITEMS, WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[:WIDTH] = np.eye(WIDTH, dtype=np.float32)
    return vectors


def mean_tower(
    more: Sequence[NodeProto] = (), constants: Sequence[TensorProto] = (), last: str = "mean"
) -> bytes:
    """A user tower: the mean of the history [B, 48], and what further nodes make of it, named `last`."""
    inputs = [
        helper.make_tensor_value_info("history", TensorProto.FLOAT, ["B", "T", WIDTH]),
        helper.make_tensor_value_info("length", TensorProto.INT64, ["B"]),
    ]
    tensors = [
        numpy_helper.from_array(np.array(1, np.int64), "one"),
        numpy_helper.from_array(np.array([1], np.int64), "axis1"),
    ]
    nodes = [
        helper.make_node("ReduceSum", ["history", "axis1"], ["sum"], keepdims=0),
        helper.make_node("Max", ["length", "one"], ["positive"]),
        helper.make_node("Cast", ["positive"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float", "axis1"], ["divisor"]),
        helper.make_node("Div", ["sum", "divisor"], ["mean"]),
        *more,
        helper.make_node("Mul", [last, "unit"], ["user_vector"]),
    ]
    tensors.append(numpy_helper.from_array(np.array(1, np.float32), "unit"))
    output = helper.make_tensor_value_info("user_vector", TensorProto.FLOAT, ["B", WIDTH])
    graph = helper.make_graph(nodes, "user_tower", inputs, [output], [*tensors, *constants])
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if not constants:
        checker.check_model(model)
    written: bytes = model.SerializeToString()
    return written


def _item_tower() -> bytes:
    """An item's one number times a direction."""
    inputs = [helper.make_tensor_value_info("feature_size", TensorProto.FLOAT, ["B"])]
    output = helper.make_tensor_value_info("item_vector", TensorProto.FLOAT, ["B", WIDTH])
    nodes = [
        helper.make_node("Unsqueeze", ["feature_size", "axis1"], ["column"]),
        helper.make_node("MatMul", ["column", "direction"], ["item_vector"]),
    ]
    constants = [
        numpy_helper.from_array(np.array([1], np.int64), "axis1"),
        numpy_helper.from_array(_DIRECTION, "direction"),
    ]
    graph = helper.make_graph(nodes, "item_tower", inputs, [output], constants)
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    written: bytes = model.SerializeToString()
    return written


def _ranking(vectors: NDArray[np.float32], rows: Sequence[int], k: int = 20) -> tuple[Any, Any]:
    scores = vectors @ vectors[list(rows)].mean(axis=0)
    scores[list(rows)] = -np.inf
    order = np.lexsort((np.arange(len(scores)), -scores))[:k]
    return order, scores[order]
