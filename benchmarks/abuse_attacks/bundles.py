"""A bundle whose check takes more memory than the machine should give it."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from benchmarks.abuse_attacks.attack import Outcome, Scene
from benchmarks.abuse_attacks.shop import LIVE
from benchmarks.abuse_attacks.wire import statuses


def huge_golden_queries(scene: Scene) -> Outcome:
    """Recorded queries of 88 MB, whose check may not take the memory of the machine."""
    target = scene.target
    folder = _copied(target.bundles, LIVE, "golden")
    _rewrite(folder, {"golden.json": _huge_golden(folder, 88_000_000)})
    answer = target.admin("activate", {"version": "golden"})
    words = str(answer.json.get("error", {}).get("message", ""))[:200]
    return Outcome(statuses([answer]), held=answer.status == 409, notes={"words": words})


def _copied(bundles: Path, version: str, name: str) -> Path:
    """Copy a version under another name, in such a way that its files may be replaced."""
    folder = bundles / name
    shutil.copytree(bundles / version, folder)
    for path in (folder, *folder.iterdir()):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    _rewrite(folder, {}, version=name)
    return folder


def _rewrite(folder: Path, files: dict[str, bytes], **manifest: Any) -> None:
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


def _huge_golden(folder: Path, size: int) -> bytes:
    """The recorded queries of a bundle, again and again until they are as large as `size` bytes."""
    golden = json.loads((folder / "golden.json").read_bytes())
    queries = json.dumps(golden["queries"])[1:-1]
    many = ", ".join([queries] * max(1, size // len(queries)))
    return f'{{"k": {golden["k"]}, "queries": [{many}]}}'.encode()
