"""What may be in the file of a tower, told without running it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from tests.conftest import USER_FEATURES, user_tower
from tests.support.hostile_towers import dividing, growing, honest, looping, thief
from tests.support.item_towers import item_tower
from tests.support.places import FIXTURES
from turret.tower.errors import BundleError
from turret.tower.hostile import check_onnx

TOWERS = FIXTURES / "towers"

Change = Callable[[ModelProto], Any]


def changed(change: Change) -> bytes:
    model = honest()
    change(model)
    written: bytes = model.SerializeToString()
    return written


def external(tensor: TensorProto) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="admin.key")


def with_attribute(model: ModelProto, **fields: Any) -> None:
    model.graph.node[0].attribute.append(AttributeProto(name="value", **fields))


def constant(model: ModelProto) -> None:
    node = helper.make_node("Constant", [], ["it"], value=numpy_helper.from_array(np.zeros(1)))
    external(node.attribute[0].t)
    model.graph.node.insert(0, node)


def of(domain: str) -> Change:
    def change(model: ModelProto) -> None:
        model.opset_import.append(helper.make_opsetid(domain, 1))

    return change


def operator(name: str, domain: str = "") -> Change:
    return lambda model: model.graph.node.append(helper.make_node(name, ["history"], ["more"], domain=domain))


def sparse(model: ModelProto) -> None:
    one = model.graph.sparse_initializer.add()
    external(one.values)


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
        *(path.read_bytes() for path in sorted(TOWERS.glob("*.onnx"))),
    ],
)
def test_towers_of_the_tests_and_of_older_exporters_pass(tower: bytes) -> None:
    check_onnx(tower, "user_tower.onnx")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: external(model.graph.initializer[0]), "keeps its numbers in another file"),
        (lambda model: with_attribute(model, type=5, g=model.graph), "a graph of its own"),
        (lambda model: with_attribute(model, type=10, graphs=[model.graph]), "a graph of its own"),
        (lambda model: with_attribute(model, type=4, t=TensorProto()), "a field 5"),
        (lambda model: with_attribute(model, type=9, tensors=[TensorProto()]), "a field 10"),
        (lambda model: with_attribute(model, ref_attr_name="other"), "a field 21"),
        (constant, "a field 5"),
        (sparse, "a field 15"),
        (function, "has functions"),
        (lambda model: model.training_info.add(), "a field 20"),
        (lambda model: model.metadata_props.add(key="ort_config", value="{}"), "a field 14"),
        (of("com.microsoft"), "operators of others"),
        (of("ai.onnx.ml"), "operators of others"),
        (operator("Relu", "com.microsoft"), "'Relu', which no tower needs"),
        (operator("RandomNormalLike"), "'RandomNormalLike', which no tower needs"),
        (operator("NonZero"), "'NonZero'"),
        (operator(""), "''"),
        (lambda model: setattr(model.graph.node[0], "overload", "x"), "a field 8"),
        (lambda model: model.graph.node.reverse(), "reads an input that no operator before it produces"),
        (lambda model: model.graph.node.append(model.graph.node[0]), "two values of the name 'sum'"),
        (lambda model: model.graph.initializer.append(model.graph.initializer[0]), "two values"),
        (lambda model: model.graph.initializer.add(name="history"), "two values of the name 'history'"),
        (lambda model: model.ClearField("graph"), "no graph"),
    ],
)
def test_what_is_more_than_a_tower_is_refused(change: Change, words: str) -> None:
    with pytest.raises(BundleError, match="can't be run") as caught:
        check_onnx(changed(change), "user_tower.onnx")
    assert words in str(caught.value)


@pytest.mark.fault(48)
@pytest.mark.parametrize("tower", [thief("pyproject.toml", 8), looping(), growing(), dividing()])
def test_towers_that_do_something_else_when_they_are_asked_are_refused(tower: bytes) -> None:
    with pytest.raises(BundleError):
        check_onnx(tower, "user_tower.onnx")


def test_sizes_may_follow_those_of_the_inputs() -> None:
    """As the lengths that the exporter reads off a history do."""
    model = honest()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "zero"))
    model.graph.node.append(helper.make_node("Shape", ["history"], ["lengths"]))
    model.graph.node.append(helper.make_node("Expand", ["zero", "lengths"], ["zeros"]))
    check_onnx(model.SerializeToString(), "user_tower.onnx")


def test_a_model_of_another_format_in_the_clothes_of_this_one_is_refused() -> None:
    """ONNX Runtime tells its own format by four bytes, which a name in ONNX can have there too."""
    model = b"\x08\x08\x12\x04ORTM" + honest().SerializeToString()[2:]
    assert ModelProto.FromString(model).graph.node
    with pytest.raises(BundleError, match="own format"):
        check_onnx(model, "user_tower.onnx")


@pytest.mark.parametrize("length", range(0, 400, 7))
def test_a_tower_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(BundleError):
        check_onnx(user_tower(8, ())[:length], "user_tower.onnx")


def test_a_name_that_comes_twice_does_not_hide_the_other() -> None:
    """Of a field that comes twice, ONNX Runtime takes the last."""
    model = honest()
    (node,) = [one for one in model.graph.node if one.op_type == "Max" and one.output[0] == "positive"]
    whole = model.SerializeToString()
    hidden = node.SerializeToString()
    twice = hidden + b"\x22\x04Loop"
    before = b"\x0a" + bytes([len(hidden)]) + hidden
    inside = model.graph.SerializeToString().replace(before, b"\x0a" + bytes([len(twice)]) + twice)
    model.ClearField("graph")
    written = model.SerializeToString() + b"\x3a" + _varint(len(inside)) + inside
    assert len(written) >= len(whole) + len(twice) - len(hidden)
    assert any(one.op_type == "Loop" for one in ModelProto.FromString(written).graph.node)
    with pytest.raises(BundleError, match="op_type comes twice"):
        check_onnx(written, "user_tower.onnx")


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7])


def test_what_passes_is_read_alike_by_onnx() -> None:
    """Flipped bytes that the check lets pass are still a tower of the operators that are allowed."""
    whole, generator = user_tower(8, ()), np.random.default_rng(0)
    passed = 0
    for place, flip in zip(
        generator.integers(0, len(whole), 600), generator.integers(1, 256, 600), strict=True
    ):
        damaged = bytearray(whole)
        damaged[place] ^= int(flip)
        try:
            check_onnx(bytes(damaged), "user_tower.onnx")
        except BundleError:
            continue
        model = ModelProto()
        try:
            model.ParseFromString(bytes(damaged))
        except Exception:  # of protobuf's own, which has no types: bytes that are no ONNX at all
            continue
        passed += 1
        assert not any(tensor.external_data or tensor.data_location for tensor in model.graph.initializer)
        assert not any(one.g.node or one.graphs for node in model.graph.node for one in node.attribute)
    assert passed
