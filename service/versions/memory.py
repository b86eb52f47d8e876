"""The memory still available to this process, by the machine and by its control groups."""

import ctypes
from pathlib import Path

from turret.tower.format.manifest import Manifest

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_M_ARENA_MAX = -8  # of glibc's malloc.h; other C libraries have no such function
_MAPPED = frozenset({"item_vectors.npy", "model.safetensors"})


def available_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return the available bytes, or None if the system doesn't report them.

    The minimum of the machine's available memory and of the room under the limit of each control group
    (version 2). Page cache that the system can drop counts as available.
    """
    limits = [_bytes(proc / "meminfo", "MemAvailable"), *(_left(folder) for folder in _groups(proc, cgroups))]
    return min((limit for limit in limits if limit is not None), default=None)


def needed_bytes(manifest: Manifest, factor: float) -> float:
    """Return the memory for checking and loading a version: `factor` times the size of its files.

    Files that the service of a version on an engine only maps do not count: the system may drop their pages.
    """
    mapped = _MAPPED if manifest.index.is_remote else frozenset()
    return factor * sum(file.bytes for name, file in manifest.files.items() if name not in mapped)


def data_bytes(proc: Path = _PROC) -> int | None:
    """Return the bytes of this process that RLIMIT_DATA counts, or None if the system doesn't report them."""
    return _bytes(proc / "self" / "status", "VmData")


def few_arenas() -> None:
    """Limit malloc to two arenas: by default each thread that opened a bundle keeps one."""
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(_M_ARENA_MAX, 2)


def give_back() -> None:
    """Return freed memory of an unloaded version to the system. Takes some milliseconds."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def in_words(count: float) -> str:
    """Format a number of bytes."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _bytes(path: Path, name: str) -> int | None:
    """A field of a file that the system writes in kB."""
    for line in _lines(path):
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _groups(proc: Path, cgroups: Path) -> list[Path]:
    """The folders of this process's control group and of its ancestors."""
    for line in _lines(proc / "self" / "cgroup"):
        if line.startswith("0::"):
            # In a container the path may be the one on the host; then the root is the group itself.
            here = cgroups / line.removeprefix("0::").lstrip("/")
            return [folder for folder in (here, *here.parents) if folder.is_relative_to(cgroups)]
    return []


def _left(group: Path) -> int | None:
    """The room under a group's limit, or None if it has no limit."""
    limit, usage = _number(group / "memory.max"), _number(group / "memory.current")
    if limit is None or usage is None:
        return None
    counts = dict(line.split() for line in _lines(group / "memory.stat"))
    return max(0, limit - usage + int(counts.get("inactive_file", 0)))


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
