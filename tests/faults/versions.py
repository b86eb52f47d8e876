"""Versions that a running service is asked for, and damage to them."""

from pathlib import Path
from typing import Any

from tests.support.service_process import Process, plain_client


def damage(root: Path, version: str, name: str = "item_vectors.npy") -> None:
    path = root / version / name
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[-3] ^= 0x40
    path.write_bytes(content)


def ask(service: Process, **body: Any) -> dict[str, Any]:
    """On a connection of its own, so that any worker may answer."""
    with plain_client(service.urls[0]) as client:
        found: dict[str, Any] = client.post("/v1/recommend", json=body).json()
        return found
