"""A user tower as an honest author exports it, and one that reads a file."""

from onnx import ModelProto, TensorProto, helper

from tests.conftest import user_tower


def honest() -> ModelProto:
    """The mean of the history."""
    model = ModelProto()
    model.ParseFromString(user_tower(8, ()))
    return model


def thief(path: str) -> bytes:
    """Adds the first numbers of a file, by its path, to the vector of each history."""
    model = honest()
    stolen = TensorProto(name="stolen", data_type=TensorProto.FLOAT, dims=[8])
    stolen.data_location = TensorProto.EXTERNAL
    for key, value in (("location", path), ("offset", "0"), ("length", "32")):
        stolen.external_data.add(key=key, value=value)
    model.graph.initializer.append(stolen)
    model.graph.node[-1].output[0] = "honest"
    model.graph.node.append(helper.make_node("Add", ["honest", "stolen"], ["user_vector"]))
    written: bytes = model.SerializeToString()
    return written
