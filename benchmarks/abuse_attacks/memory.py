"""The memory that the processes of a service hold together, looked at often."""

import os
import re
from contextlib import suppress
from statistics import median
from typing import Any

from benchmarks.processes import family

_FIELDS = re.compile(rb"^(VmHWM|VmRSS|RssAnon):\s+(\d+) kB", re.MULTILINE)


class Memory:
    """Samples of a supervisor's memory with that of its children.

    `look_idle` some times, then `begin`, then `look` as often as possible.
    """

    def __init__(self, supervisor: int) -> None:
        self._supervisor = supervisor
        self._idle: list[int] = []
        self._peak = 0
        self._resident: dict[int, int] = {}
        self._highest: dict[int, int] = {}
        self._processes = 0

    def look_idle(self) -> None:
        """Note what is held before anything happens."""
        self._idle.append(self._held())

    def begin(self) -> None:
        """Forget the high-water marks of before."""
        self._highest = {}
        for pid in family(self._supervisor):
            with suppress(OSError, KeyError):  # it has just ended
                with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as marks:
                    marks.write("5")
                self._resident[pid] = _kilobytes(pid)["VmRSS"]

    def look(self) -> None:
        """Note what is held now."""
        self._peak = max(self._peak, self._held())

    def figures(self) -> dict[str, Any]:
        """In MB (10^6 bytes): idle, the peak over it, and by how much each process's own mark rose.

        The last two differ where memory was held for less than the time between two looks, and where
        processes had their peaks at different times; `peak_mb_over_idle` is the larger of what was seen of
        all together and of the one process that rose most.
        """
        self.look()
        idle = median(self._idle)
        rises = [self._highest.get(pid, 0) - before for pid, before in self._resident.items()]
        return {
            "idle_mb": _megabytes(idle),
            "peak_mb_over_idle": _megabytes(max(self._peak - idle, *rises, 0)),
            "high_water_mb": [_megabytes(rise) for rise in rises],
            "processes": self._processes,
        }

    def _held(self) -> int:
        """Kilobytes of anonymous pages, those that a child has from the supervisor counted once."""
        pids = family(self._supervisor)
        self._processes = max(self._processes, len(pids))
        each = {}
        for pid in pids:
            with suppress(OSError, KeyError):  # it has just ended
                found = _kilobytes(pid)
                each[pid] = found["RssAnon"]
                self._highest[pid] = max(self._highest.get(pid, 0), found["VmHWM"])
        shared = each.get(self._supervisor, 0)
        return shared + sum(max(0, held - shared) for pid, held in each.items() if pid != self._supervisor)


def _kilobytes(pid: int) -> dict[str, int]:
    descriptor = os.open(f"/proc/{pid}/status", os.O_RDONLY)
    try:
        text = os.read(descriptor, 8192)
    finally:
        os.close(descriptor)
    return {name.decode(): int(count) for name, count in _FIELDS.findall(text)}


def _megabytes(kilobytes: float) -> float:
    return round(kilobytes * 1024 / 1e6, 1)
