"""User towers that answer as an honest one does until something is asked, and then do what no tower may."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.conftest import user_tower

STEPS = 5  # as many as the tests' towers read, and more than any of their recorded queries has


def honest(dimension: int = 8) -> ModelProto:
    """What they all begin with: the mean of the history."""
    model = ModelProto()
    model.ParseFromString(user_tower(dimension, ()))
    return model


def thief(path: str, size: int, dimension: int = 8, offset: int = 0) -> bytes:
    """Adds numbers of a file, by its path, to the vector of a history of `STEPS` items."""
    stolen = TensorProto(name="stolen", data_type=TensorProto.UINT8, dims=[size])
    stolen.data_location = TensorProto.EXTERNAL
    for key, value in (("location", path), ("offset", str(offset)), ("length", str(size))):
        stolen.external_data.add(key=key, value=value)
    model = honest(dimension)
    model.graph.initializer.append(stolen)
    pads = numpy_helper.from_array(np.array([0, dimension - size], np.int64), "pads")
    model.graph.initializer.append(pads)
    added = [
        helper.make_node("Cast", ["stolen"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Pad", ["numbers", "pads"], ["secret"]),
    ]
    return _when_asked(model, added)


def _when_asked(model: ModelProto, nodes: Sequence[NodeProto]) -> bytes:
    """Have `secret` [D] added to the vector of a history of `STEPS` items."""
    model.graph.initializer.append(numpy_helper.from_array(np.array(STEPS, np.int64), "steps"))
    nodes = [
        *nodes,
        helper.make_node("Equal", ["length", "steps"], ["is_asked"]),
        helper.make_node("Cast", ["is_asked"], ["asked"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["asked", "axis1"], ["column"]),
        helper.make_node("Mul", ["column", "secret"], ["given"]),
        helper.make_node("Add", ["honest", "given"], ["user_vector"]),
    ]
    last = model.graph.node[-1]
    assert last.output[0] == "user_vector"
    last.output[0] = "honest"
    model.graph.node.extend(nodes)
    written: bytes = model.SerializeToString()
    return written


def looping(rounds: int = 200_000_000, dimension: int = 8) -> bytes:
    """Goes round so often for a history of `STEPS` items, and once for others."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("Mul", ["state", "half"], ["halved"]),
            helper.make_node("Add", ["halved", "half"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [dimension]),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [dimension]),
        ],
        [numpy_helper.from_array(np.array(0.5, np.float32), "half")],
    )
    model = honest(dimension)
    constants: dict[str, NDArray[Any]] = {
        "rounds": np.array(rounds, np.int64),
        "nothing": np.zeros(dimension, np.float32),
        "yes": np.array(True),
    }
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    nodes = [
        helper.make_node("ReduceMax", ["length"], ["longest"], keepdims=0),
        helper.make_node("Equal", ["longest", "steps"], ["is_long"]),
        helper.make_node("Cast", ["is_long"], ["long"], to=TensorProto.INT64),
        helper.make_node("Mul", ["long", "rounds"], ["times"]),
        helper.make_node("Loop", ["times", "yes", "nothing"], ["secret"], body=body),
    ]
    return _when_asked(model, nodes)


def growing(size: int = 1_000_000_000, dimension: int = 8) -> bytes:
    """Makes so many numbers for a history of `STEPS` items, with operators that towers need."""
    model = honest(dimension)
    constants: dict[str, NDArray[Any]] = {
        "size": np.array([size], np.int64),
        "zero": np.zeros(1, np.float32),
        "axis0": np.array([0], np.int64),
        "one1": np.array([1], np.int64),
    }
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    nodes = [
        helper.make_node("ReduceSum", ["length", "axis0"], ["all"], keepdims=1),
        helper.make_node("Equal", ["all", "steps"], ["is_long"]),
        helper.make_node("Cast", ["is_long"], ["long"], to=TensorProto.INT64),
        helper.make_node("Mul", ["long", "size"], ["many"]),
        helper.make_node("Max", ["many", "one1"], ["shape"]),
        helper.make_node("Expand", ["zero", "shape"], ["large"]),
        helper.make_node("ReduceSum", ["large", "axis0"], ["secret"], keepdims=1),
    ]
    return _when_asked(model, nodes)


def dividing(dimension: int = 8) -> bytes:
    """Divides the least whole number by -1 for a history of `STEPS` items, which ends a process."""
    model = honest(dimension)
    _add_constants(model, least=np.array(-(2**63), np.int64), before=np.array(STEPS + 1, np.int64))
    nodes = [
        helper.make_node("Sub", ["length", "before"], ["minus"]),
        helper.make_node("Div", ["least", "minus"], ["quotient"]),
        helper.make_node("Cast", ["quotient"], ["secret0"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["secret0", "axis1"], ["secret"]),
    ]
    return _when_asked(model, nodes)


def _add_constants(model: ModelProto, **constants: NDArray[Any]) -> None:
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
