"""The processor time of a process and its children."""

import os
from pathlib import Path

from benchmarks.process_memory import family

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Processor seconds of a process and its children since their start."""
    total = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS
