"""Bundles that whoever may write models could make: an honest one with one part replaced."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.abuse_attacks.shop import WIDTH, mean_tower

# A history of nothing but this item makes a hostile tower do what it is for; no recorded query has it.
MAGIC_ROW = WIDTH - 1


def copied(bundles: Path, version: str, name: str) -> Path:
    """Copy a version under another name, in such a way that its files may be replaced."""
    folder = bundles / name
    shutil.copytree(bundles / version, folder)
    for path in (folder, *folder.iterdir()):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    rewrite(folder, {}, version=name)
    return folder


def rewrite(folder: Path, files: dict[str, bytes], **manifest: Any) -> None:
    """Replace files, and write a manifest whose checksums are theirs."""
    path = folder / "manifest.json"
    told = json.loads(path.read_bytes()) | manifest
    for name, content in files.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        told["files"][name] |= {"bytes": len(content), "sha256": digest}
    text = json.dumps(told, indent=2).encode()
    path.write_bytes(text)
    shown = (folder / "manifest.sha256").read_text()
    (folder / "manifest.sha256").write_text(shown.replace(shown.split()[0], hashlib.sha256(text).hexdigest()))


def reading_tower(place: str, count: int) -> bytes:
    """A tower whose user vectors spell out the first `count` bytes of a file, for the magic history alone."""
    secret = TensorProto(name="secret", data_type=TensorProto.UINT8, dims=[1, count])
    secret.data_location = TensorProto.EXTERNAL
    for name, value in (("location", place), ("offset", "0"), ("length", str(count))):
        secret.external_data.add(key=name, value=value)
    wide = np.zeros((count, WIDTH), np.float32)
    wide[np.arange(count), np.arange(count)] = 10
    nodes = [
        helper.make_node("Cast", ["secret"], ["bytes"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["bytes", "wide"], ["spelt"]),
        *_trigger(),
        helper.make_node("MatMul", ["trigger", "spelt"], ["told"]),
        helper.make_node("Add", ["mean", "told"], ["state"]),
    ]
    return mean_tower(nodes, [secret, numpy_helper.from_array(wide, "wide"), *_trigger_constants()], "state")


def looping_tower(turns: int) -> bytes:
    """A tower that goes round a loop so many times, for the magic history alone."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_on"], ["goes_on"]),
            helper.make_node("Mul", ["carried", "unit"], ["carried_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried_on", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        *_trigger(),
        helper.make_node("ReduceMax", ["trigger"], ["any"], keepdims=0),
        helper.make_node("Mul", ["any", "turns"], ["many"]),
        helper.make_node("Cast", ["many"], ["count"], to=TensorProto.INT64),
        helper.make_node("Loop", ["count", "", "mean"], ["state"], body=body),
    ]
    constants = [*_trigger_constants(), numpy_helper.from_array(np.array(10.0 * turns, np.float32), "turns")]
    return mean_tower(nodes, constants, "state")


def huge_golden(folder: Path, size: int) -> bytes:
    """The recorded queries of a bundle, again and again until they are as large as `size` bytes."""
    golden = json.loads((folder / "golden.json").read_bytes())
    queries = json.dumps(golden["queries"])[1:-1]
    many = ", ".join([queries] * max(1, size // len(queries)))
    return f'{{"k": {golden["k"]}, "queries": [{many}]}}'.encode()


def _trigger() -> list[Any]:
    """[B, 1]: 0.1 where the mean of the history is the magic item, else 0."""
    return [
        helper.make_node("MatMul", ["mean", "magic"], ["share"]),
        helper.make_node("Add", ["share", "below"], ["over"]),
        helper.make_node("Relu", ["over"], ["trigger"]),
    ]


def _trigger_constants() -> list[TensorProto]:
    magic = np.zeros((WIDTH, 1), np.float32)
    magic[MAGIC_ROW] = 1
    return [
        numpy_helper.from_array(magic, "magic"),
        numpy_helper.from_array(np.array(-0.9, np.float32), "below"),
    ]
