"""Damage to bundles that no checksum sees: files exchanged, and the manifest made to agree."""

import json
from pathlib import Path
from typing import Any

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
