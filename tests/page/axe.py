"""The rules of axe-core, from npm: unpacked once into the cache of the user, and checked."""

import base64
import hashlib
import subprocess
import tarfile
from pathlib import Path

from tests.support.tools import missing, require

VERSION = "4.14.1"
INTEGRITY = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="


def axe_script(folder: Path) -> str:
    """Download axe-core with npm into `folder`, and return its script; skips the test without npm."""
    require("npm")
    command = ["npm", "pack", f"axe-core@{VERSION}", "--pack-destination", str(folder), "--silent"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        missing("npm", f"axe-core can't be downloaded from npm: {done.stderr.strip()[:200]}")
    archive = folder / f"axe-core-{VERSION}.tgz"
    assert base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() == INTEGRITY
    with tarfile.open(archive) as files:
        script = files.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode("utf-8")
