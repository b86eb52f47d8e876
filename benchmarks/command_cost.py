"""What a command costs: seconds, processor seconds, and the peak of its resident memory.

`python -m benchmarks.command_cost WORDS...` runs it from a small process, as a child begins with the peak of
its parent.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of a unit of ru_maxrss


@dataclass(frozen=True)
class CommandCost:
    """Seconds of the clock, seconds of processors, and megabytes (10^6 bytes) at the peak."""

    seconds: float
    processor_seconds: float
    peak_mb: float


def command_cost(*words: object, threads: int | None = None) -> CommandCost:
    """Run a command until it ends. Raises CalledProcessError with its output if it fails.

    `threads` limits those of its libraries.
    """
    command = [sys.executable, "-m", "benchmarks.command_cost", *map(str, words)]
    environment = os.environ | ({} if threads is None else _threads(threads))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return CommandCost(**json.loads(done.stdout.splitlines()[-1]))


def turret_cost(*words: object, threads: int | None = None) -> CommandCost:
    """Run a command of Turret."""
    return command_cost(sys.executable, "-m", "turret", *words, threads=threads)


def _threads(count: int) -> Mapping[str, str]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    return dict.fromkeys((*names, "NUMBA_NUM_THREADS"), str(count))


def main() -> None:
    """Run the words of the command line, and print what they cost."""
    begun = time.perf_counter()
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{' '.join(sys.argv[1:])} ended with {os.waitstatus_to_exitcode(status)}")
    used = usage.ru_utime + usage.ru_stime
    print(json.dumps(asdict(CommandCost(seconds, used, usage.ru_maxrss * _UNIT / 1e6))))


if __name__ == "__main__":
    main()
