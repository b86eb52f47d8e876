"""A bundle whose check takes more memory than the machine should give it."""

import hashlib
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.abuse_attacks.attack import Outcome, Scene
from benchmarks.abuse_attacks.shop import LIVE
from benchmarks.abuse_attacks.target import Target
from benchmarks.abuse_attacks.wire import Answer, statuses

_MOST_BYTES = 600_000_000  # of a check, which is ended then: the machine is others' too


def huge_golden_queries(scene: Scene) -> Outcome:
    """Recorded queries of 88 MB; the check of the version is ended where it takes more than 0.6 GB."""
    target = scene.target
    folder = _copied(target.bundles, LIVE, "golden")
    _rewrite(folder, {"golden.json": _huge_golden(folder, 88_000_000)})
    workers = set(target.children())
    over = threading.Event()
    largest: list[int] = [0]
    guard = threading.Thread(target=_guard, args=(target, workers, over, largest))
    guard.start()
    try:
        began = time.monotonic()
        answer = target.admin("activate", {"version": "golden"})
        seconds = time.monotonic() - began
    finally:
        over.set()
        guard.join()
    notes = {"check_mb": round(largest[0] / 1e6), "seconds": round(seconds, 2), "words": _words(answer)}
    return Outcome(statuses([answer]), held=answer.status == 409 and largest[0] < 250_000_000, notes=notes)


def _guard(target: Target, workers: set[int], over: threading.Event, largest: list[int]) -> None:
    """End a check that takes too much."""
    while not over.wait(0.02):
        for pid in target.children():
            held = _kilobytes(pid, "RssAnon") * 1024 if pid not in workers else 0
            largest[0] = max(largest[0], held)
            if held > _MOST_BYTES:
                os.kill(pid, signal.SIGKILL)


def _kilobytes(pid: int, field: str) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has just ended
        return 0
    return int(text.partition(f"{field}:")[2].split()[0]) if f"{field}:" in text else 0


def _words(answer: Answer) -> str:
    return str(answer.json.get("error", {}).get("message", ""))[:200]


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
