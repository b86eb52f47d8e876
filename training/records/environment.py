"""`environment.json`: the versions, the machine and the state of the code behind a run.

It holds no environment variables and no names of hosts or users.
"""

import json
import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from turret.data.files import new_file

ENVIRONMENT = "environment.json"
PACKAGES = (
    *("turret", "torch", "numpy", "polars", "numba", "pydantic"),
    *("safetensors", "faiss-cpu", "onnx", "onnxruntime"),
)
_GIT_SECONDS, _PROCESSORS = 10, Path("/proc/cpuinfo")


def record_environment(folder: Path, step: int) -> None:
    """Add the environment to the run in `folder`, with the step from which on it holds.

    A resumed training adds an entry only if something has changed. A file that can't be read is replaced.
    """
    stored = _entries(folder) if step else []
    current = environment()
    if stored and {**stored[-1], "from_step": None} == {**current, "from_step": None}:
        return
    entries = [*stored, {"from_step": step, **current}]
    with new_file(folder / ENVIRONMENT) as draft:
        draft.write_text(json.dumps({"environments": entries}, indent=2) + "\n", encoding="utf-8")


def load_environment(folder: Path) -> dict[str, Any] | None:
    """The environment that the run in `folder` was last trained in; None if the record can't be read."""
    return next(reversed(_entries(folder)), None)


def _entries(folder: Path) -> list[dict[str, Any]]:
    try:
        stored = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))["environments"]
        return [dict(entry) for entry in stored]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def environment() -> dict[str, Any]:
    """The versions, the machine, and `git_state` of the working folder."""
    # Linux has the model of the processor in /proc alone.
    listed = _PROCESSORS.read_text("utf-8") if _PROCESSORS.is_file() else ""
    models = re.findall(r"(?m)^model name\s*:\s*(.+)$", listed)
    return {
        "python": platform.python_version(),
        "versions": {name: known for name in PACKAGES if (known := package_version(name)) is not None},
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": models[0] if models else platform.processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            "accelerators": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        },
        "git": git_state(Path.cwd()),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit checked out in `folder`, and whether tracked files differ from it.

    None outside a repository, before its first commit, and without git.
    """
    command = ["git", "--no-optional-locks", "-C", str(folder), "describe"]
    command += ["--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    commit = done.stdout.strip()
    return {"commit": commit.removesuffix("-dirty"), "dirty": commit.endswith("-dirty")}


def package_version(package: str) -> str | None:
    """The version of an installed package, else None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
