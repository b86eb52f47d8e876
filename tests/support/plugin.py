"""A third party's package as pip leaves it: modules and a dist-info folder with entry points, on sys.path."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.places import ROOT


def install(folder: Path, name: str, source: str, entry_points: Mapping[str, str]) -> None:
    """Write the package `name` with this source; `entry_points` maps a group to `entry = module:object`."""
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{group}]\n{entry}\n" for group, entry in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def run_with(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter that finds the packages in `folder`."""
    command, variables = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
