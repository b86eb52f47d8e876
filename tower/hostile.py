"""The sandbox of bundles: an ONNX file is a tower and nothing else, and a FAISS index names no other file.

A bundle may be untrusted. ONNX lets a model refer to other files, loop as often as an input says, and carry
functions. So a tower must hold its weights itself and be one graph of known operators, and the shapes in it
must depend on the shapes of its inputs alone, never on their values: histories of one length take equally
long. The service has no onnx package, and readers of protobuf (https://protobuf.dev/programming-guides/encoding)
skip unknown fields, so the reader here refuses every field that is not in its schema.
"""

import mmap
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from turret.tower.errors import BundleError

# The output size of these operators follows from the sizes of their inputs.
_OF_ONE_SIZE = re.findall(
    r"\w+",
    """
    Abs Add Cast Clip Concat Cos CumSum Div Equal Exp Gather GatherElements Gemm
    Greater GreaterOrEqual GRU Identity LayerNormalization Less Log MatMul Max Mul Not Relu
    Shape Sigmoid Sin Softmax Sqrt Sub Tanh Transpose Where
    """,
)
# The table has every operator of every tower that training exports or ever exported, with the inputs that
# decide how large its output is. Only the recurrent operator loops, once a step of the history; no operator
# reads a file, draws random numbers or calls other code. Tests compare exports of all towers with the table.
OPERATORS: dict[str, frozenset[int]] = {
    **dict.fromkeys(_OF_ONE_SIZE, frozenset[int]()),
    "ConstantOfShape": frozenset({0}),
    "Expand": frozenset({1}),
    "Range": frozenset({0, 1, 2}),
    "ReduceL2": frozenset({1}),
    "ReduceSum": frozenset({1}),
    "Reshape": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Split": frozenset({1}),
    "Squeeze": frozenset({1}),
    "Unsqueeze": frozenset({1}),
}
# These operators copy lengths from their first input.
COPYING = frozenset({"Cast", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"})
# These operators combine lengths monotonically, so that the longest input is the most expensive.
GROWING = frozenset({"Concat", "Mul"})
# These inputs must be constants: start and step.
FIXED = {"Slice": frozenset({1, 3, 4}), "Range": frozenset({0, 2}), "Split": frozenset({1})}

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTH = {FIXED64: 8, FIXED32: 4}
# A tower of a hundred layers has some ten thousand fields; reading this many takes half a second.
_MOST_FIELDS = 200_000


class Field(NamedTuple):
    """A field: its wire type, whether it repeats, and the schema of a message in it.

    `refused`: the reason why the field is forbidden.
    """

    name: str
    wire: int = BYTES
    repeated: bool = False
    inside: "Schema | None" = None
    refused: str = ""


Schema = dict[int, Field]
# The values of each field, one an occurrence: numbers are int, messages Message, all others memoryview.
Message = dict[str, list[Any]]


class WireError(ValueError):
    """Bytes that are not a message of the schema."""


class Reader:
    """Reads messages with a limited number of fields."""

    count = 0

    def read(self, data: memoryview, schema: Schema, where: str) -> Message:
        """Read `data` as a message, to its last byte.

        Raises WireError, naming the message by `where`, for a field that the schema doesn't have or that
        comes in another form or twice, and for bytes that end too early.
        """
        message: Message = {known.name: [] for known in schema.values()}
        start = 0
        while start < len(data):
            self.count += 1
            if self.count > _MOST_FIELDS:
                raise WireError(f"there are more than {_MOST_FIELDS} fields")
            tag, start = _varint(data, start)
            known = schema.get(tag >> 3)
            if known is not None and known.refused:
                raise WireError(f"{where} {known.refused}")
            if known is None or known.wire != tag & 7:
                raise WireError(f"{where} has a field {tag >> 3} that no tower of ours has")
            value, start = _value(data, start, known.wire)
            if known.inside is not None:
                value = self.read(value, known.inside, f"{where}.{known.name}")
            if message[known.name] and not known.repeated:
                raise WireError(f"{where}.{known.name} comes twice")
            message[known.name].append(value)
        return message


def _value(data: memoryview, start: int, wire: int) -> tuple[Any, int]:
    if wire == VARINT:
        return _varint(data, start)
    size, start = _varint(data, start) if wire == BYTES else (_WIDTH[wire], start)
    if size > len(data) - start:
        raise WireError("it is cut short")
    return data[start : start + size], start + size


def _varint(data: memoryview, start: int) -> tuple[int, int]:
    value = 0
    for position in range(10):
        if start + position >= len(data):
            raise WireError("it is cut short")
        byte = data[start + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, start + position + 1
    raise WireError("a number in it has no end")


# The schema is part of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto. All other fields are refused,
# too: training, sparse tensors, quantization, overloads, tensors in attributes.
_ELSEWHERE = Field("external", refused="keeps its numbers in another file")
_GRAPHS = Field("graphs", refused="holds a graph of its own, as loops do")
_TENSOR: Schema = {
    1: Field("dims", VARINT, repeated=True),
    2: Field("data_type", VARINT),
    8: Field("name"),
    9: Field("raw_data"),
    13: _ELSEWHERE,
    14: _ELSEWHERE,
}
_ATTRIBUTE: Schema = {
    1: Field("name"),
    2: Field("f", FIXED32),
    3: Field("i", VARINT),
    4: Field("s"),
    6: _GRAPHS,
    8: Field("ints", VARINT, repeated=True),
    11: _GRAPHS,
    20: Field("type", VARINT),
}
_NODE: Schema = {
    1: Field("input", repeated=True),
    2: Field("output", repeated=True),
    3: Field("name"),
    4: Field("op_type"),
    5: Field("attribute", repeated=True, inside=_ATTRIBUTE),
    6: Field("doc_string"),
    7: Field("domain"),
    9: Field("metadata_props", repeated=True),
}
_DENSE: Schema = {1: Field("elem_type", VARINT), 2: Field("shape")}
_NAMED: Schema = {
    1: Field("name"),
    2: Field("type", inside={1: Field("tensor_type", inside=_DENSE), 6: Field("denotation")}),
    3: Field("doc_string"),
    4: Field("metadata_props", repeated=True),
}
_GRAPH: Schema = {
    1: Field("node", repeated=True, inside=_NODE),
    2: Field("name"),
    5: Field("initializer", repeated=True, inside=_TENSOR),
    10: Field("doc_string"),
    11: Field("input", repeated=True, inside=_NAMED),
    12: Field("output", repeated=True, inside=_NAMED),
    13: Field("value_info", repeated=True),
    16: Field("metadata_props", repeated=True),
}
_OPSET: Schema = {1: Field("domain"), 2: Field("version", VARINT)}
_MODEL: Schema = {
    1: Field("ir_version", VARINT),
    2: Field("producer_name"),
    3: Field("producer_version"),
    6: Field("doc_string"),
    7: Field("graph", BYTES, inside=_GRAPH),
    8: Field("opset_import", repeated=True, inside=_OPSET),
    25: Field("functions", refused="has functions"),
}
FLOAT, INT64 = 1, 7
# ONNX Runtime reads a file with these bytes at offset 4 as its own format.
_ORT_FORMAT = b"ORTM"


def check_onnx(model: bytes, name: str) -> None:
    """Raise BundleError, naming the file `name`, unless `model` is a self-contained tower."""
    try:
        if model[4:8] == _ORT_FORMAT:
            raise WireError("it is of ONNX Runtime's own format")
        read = Reader().read(memoryview(model), _MODEL, "model")
        if any(map(_domain, read["opset_import"])) or not read["graph"]:
            raise WireError("it has operators of others, or no graph")
        _check_graph(read["graph"][0])
    except WireError as error:
        raise BundleError(f"{name} can't be run ({error}); export it again") from None


CONSTANT, LENGTH, GIVEN = range(3)


class _Value(NamedTuple):
    """The dependence of a value (one of the three above), and its ONNX type number."""

    source: int
    kind: int


def _check_graph(graph: Message) -> None:
    """Check the nodes in order, tracking whether each value depends on lengths or on numbers."""
    values: dict[bytes, _Value] = {}
    for entry in graph["input"]:
        _define(values, _text(entry, "name"), _Value(GIVEN, _given_kind(entry)))
    for tensor in graph["initializer"]:
        _define(values, _text(tensor, "name"), _Value(CONSTANT, _number(tensor, "data_type")))
    for node in graph["node"]:
        operator = _text(node, "op_type").decode("ascii", "replace")
        sizes = OPERATORS.get(operator)
        if sizes is None or _domain(node):
            raise WireError(f"it has an operator {operator[:40]!r}, which no tower needs")
        names = [bytes(name) for name in node["input"]]
        if any(name and name not in values for name in names):
            raise WireError(f"its {operator} reads an input that no operator before it produces")
        inputs = [values.get(name, _Value(CONSTANT, 0)) for name in names]
        sources = [value.source for value in inputs]
        if any(sources[position] == GIVEN for position in sizes if position < len(sources)):
            raise WireError(f"the size of its {operator} depends on the numbers that it is given")
        if any(sources[position] for position in FIXED.get(operator, ()) if position < len(sources)):
            raise WireError(f"its {operator} begins or steps by lengths, which no tower needs")
        kind = _kind(node, operator, inputs)
        if operator == "Div" and kind != FLOAT:
            raise WireError("it divides whole numbers, which can end the process")
        for output in node["output"]:
            _define(values, bytes(output), _Value(_source(operator, sources), kind))


def _source(operator: str, sources: Sequence[int]) -> int:
    """The source of an output: a copied or multiplied length is a length, any other result a number."""
    if operator == "Shape":
        return LENGTH
    most = max(sources, default=CONSTANT)
    if most != LENGTH or (operator in COPYING and LENGTH not in sources[1:]) or operator in GROWING:
        return most
    return GIVEN


def _kind(node: Message, operator: str, inputs: Sequence[_Value]) -> int:
    if operator == "Cast":
        return next((_number(entry, "i") for entry in node["attribute"] if _text(entry, "name") == b"to"), 0)
    if operator == "Shape":
        return INT64
    position = 1 if operator == "Where" else 0
    return inputs[position].kind if len(inputs) > position else 0


def _given_kind(entry: Message) -> int:
    return next((_number(dense, "elem_type") for kind in entry["type"] for dense in kind["tensor_type"]), 0)


def _number(message: Message, name: str) -> int:
    return message[name][0] if message[name] else 0


def _define(values: dict[bytes, _Value], name: bytes, value: _Value) -> None:
    if name in values:
        raise WireError(f"it has two values of the name {name[:40].decode('utf-8', 'replace')!r}")
    if name:
        values[name] = value


def _domain(message: Message) -> bool:
    """Whether a node or an import of operators names another domain than ONNX's own."""
    return _text(message, "domain") not in (b"", b"ai.onnx")


def _text(message: Message, name: str) -> bytes:
    return bytes(message[name][0]) if message[name] else b""


# These bytes stand for lists in another file, which FAISS opens to read and to write while it reads the
# index. Two counts of 8 bytes follow the four letters, and the upper halves of both counts are zero.
_IN_A_FILE = re.compile(rb"ilod....\0{4}....\0{4}", re.DOTALL)
# Indexes that begin so have no lists: they hold vectors as they are, or codes of vectors.
_WITHOUT_LISTS = (b"IxFI", b"IxSQ")


def names_a_file(index: mmap.mmap) -> bool:
    """Whether FAISS could open another file while it reads these bytes as an index of any kind."""
    return index[:4] not in _WITHOUT_LISTS and _IN_A_FILE.search(index) is not None
