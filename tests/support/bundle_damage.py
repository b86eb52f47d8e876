"""Damage to bundles that no checksum sees: files that the manifest agrees with, and a tower that steals."""

import json
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto, helper

from tests.conftest import user_tower
from turret.data.manifest import hash_file
from turret.tower.format.manifest import DIGEST, MANIFEST, digest_line


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and make the manifest agree."""
    replace(folder / name, content)
    stored = json.loads((folder / MANIFEST).read_text())
    change_manifest(folder, files={**stored["files"], name: hash_file(folder / name).model_dump()})


def change_manifest(folder: Path, **changes: Any) -> None:
    """Change entries of the manifest, and its checksum with it if it has one."""
    text = json.dumps({**json.loads((folder / MANIFEST).read_text()), **changes}).encode()
    replace(folder / MANIFEST, text)
    if (folder / DIGEST).exists():
        replace(folder / DIGEST, digest_line(text))


def replace(path: Path, content: bytes) -> None:
    """Put another file in the place of a read-only one."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def honest() -> ModelProto:
    """A user tower as an honest author exports it: the mean of the history."""
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
