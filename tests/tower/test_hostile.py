"""What may be in the file of a tower, told without running it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.conftest import USER_FEATURES, user_tower
from tests.support.bundle_damage import honest, thief
from tests.support.item_towers import item_tower
from tests.support.places import FIXTURES
from turret.tower.errors import BundleError
from turret.tower.hostile import check_onnx

Change = Callable[[ModelProto], Any]


def with_attribute(**fields: Any) -> Change:
    attribute = AttributeProto(name="value", **fields)
    return lambda model: model.graph.node[0].attribute.append(attribute)


def with_nodes(*nodes: NodeProto, **constants: Any) -> Change:
    def change(model: ModelProto) -> None:
        model.graph.initializer.extend(
            numpy_helper.from_array(np.array(value), name) for name, value in constants.items()
        )
        model.graph.node.extend(nodes)

    return change


def operator(name: str, domain: str = "") -> Change:
    return with_nodes(helper.make_node(name, ["history"], ["more"], domain=domain))


def using(domain: str) -> Change:
    return lambda model: model.opset_import.append(helper.make_opsetid(domain, 1))


def function(model: ModelProto) -> None:
    inner = helper.make_node("Identity", ["x"], ["y"])
    opset = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("", "Relu", ["x"], ["y"], [inner], opset))


@pytest.mark.parametrize(
    "tower",
    [
        user_tower(8, ()),
        user_tower(8, USER_FEATURES, times=True),
        item_tower(4),
        *(path.read_bytes() for path in sorted((FIXTURES / "towers").glob("*.onnx"))),
    ],
)
def test_towers_of_the_tests_and_of_older_exporters_pass(tower: bytes) -> None:
    check_onnx(tower, "user_tower.onnx")


@pytest.mark.fault(48)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.ParseFromString(thief("admin.key")), "keeps its numbers in another file"),
        (operator("Loop"), "'Loop', which no tower needs"),
        (
            with_nodes(
                helper.make_node("Expand", ["unit", "length"], ["large"]), unit=np.ones(1, np.float32)
            ),
            "the size of its Expand depends on the numbers that it is given",
        ),
        (
            with_nodes(
                helper.make_node("Shape", ["history"], ["lengths"]),
                helper.make_node("Slice", ["history", "zero", "zero", "zero", "lengths"], ["some"]),
                zero=np.zeros(1, np.int64),
            ),
            "its Slice begins or steps by lengths",
        ),
        (
            with_nodes(helper.make_node("Div", ["length", "least"], ["crash"]), least=np.int64(-1)),
            "it divides whole numbers, which can end the process",
        ),
        (with_attribute(type=5, g=honest().graph), "a graph of its own"),
        (with_attribute(type=10, graphs=[honest().graph]), "a graph of its own"),
        (with_attribute(type=4, t=TensorProto()), "a field 5"),
        (lambda model: model.graph.sparse_initializer.add(), "a field 15"),
        (function, "has functions"),
        (lambda model: model.metadata_props.add(key="ort_config", value="{}"), "a field 14"),
        (using("com.microsoft"), "operators of others"),
        (operator("Relu", "com.microsoft"), "'Relu', which no tower needs"),
        (operator("RandomNormalLike"), "'RandomNormalLike', which no tower needs"),
        (operator(""), "''"),
        (lambda model: model.graph.node.reverse(), "reads an input that no operator before it produces"),
        (lambda model: model.graph.node.append(model.graph.node[0]), "two values of the name 'sum'"),
        (lambda model: model.graph.initializer.add(name="history"), "two values of the name 'history'"),
        (lambda model: model.ClearField("graph"), "no graph"),
    ],
)
def test_what_is_more_than_a_tower_is_refused(change: Change, words: str) -> None:
    model = honest()
    change(model)
    with pytest.raises(BundleError, match="can't be run") as caught:
        check_onnx(model.SerializeToString(), "user_tower.onnx")
    assert words in str(caught.value)


def test_bytes_that_are_read_otherwise_by_others_are_refused() -> None:
    """ONNX Runtime tells its own format by four bytes, and of a field that comes twice it takes the last."""
    whole = honest().SerializeToString()
    for model, words in (
        (b"\x08\x08\x12\x04ORTM" + whole[2:], "own format"),
        (whole + b"\x3a\x0a\x0a\x08\x22\x04Loop\x12\x00", "model.graph comes twice"),
        (whole + b"\x08\x07", "model.ir_version comes twice"),
    ):
        assert ModelProto.FromString(model).graph.node, "it is ONNX"
        with pytest.raises(BundleError, match=words):
            check_onnx(model, "user_tower.onnx")


def test_a_tower_that_is_cut_short_is_refused() -> None:
    for length in range(0, 400, 7):
        with pytest.raises(BundleError):
            check_onnx(user_tower(8, ())[:length], "user_tower.onnx")


def test_what_passes_is_read_alike_by_onnx() -> None:
    """Flipped bytes that the check lets pass are still a tower of the operators that are allowed."""
    whole, generator = user_tower(8, ()), np.random.default_rng(0)
    passed = 0
    for place, flip in generator.integers((0, 1), (len(whole), 256), (600, 2)).tolist():
        damaged = whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :]
        try:
            check_onnx(damaged, "user_tower.onnx")
            model = ModelProto.FromString(damaged)
        except Exception:  # refused, or of protobuf's own, which has no types: bytes that are no ONNX at all
            continue
        passed += 1
        assert not any(tensor.external_data or tensor.data_location for tensor in model.graph.initializer)
        assert not any(one.g.node or one.graphs for node in model.graph.node for one in node.attribute)
    assert passed
