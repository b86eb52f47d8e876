"""The full-softmax steps of `kernel_cost` in a process of their own: `python -m benchmarks.full_step N`.

Prints seconds a step as JSON. A process has its memory from the system in pages of one kind, so what large
pages (THP_MEM_ALLOC_ENABLE=1, which torch reads when it starts) save the full softmax takes another process.
"""

import json
import os
import subprocess
import sys

import torch

from benchmarks.kernel_steps import FullStep

STEPS = 6


def with_large_pages(item_count: int) -> list[float]:
    """The seconds of steps at N = `item_count` where torch asks for large pages."""
    command = [sys.executable, "-m", "benchmarks.full_step", str(item_count)]
    environment = {**os.environ, "THP_MEM_ALLOC_ENABLE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def main() -> None:
    """Take one step to warm up, and measure some."""
    torch.set_num_threads(min(2, torch.get_num_threads()))
    step = FullStep(int(sys.argv[1]))
    step()
    print(json.dumps([step() for _ in range(STEPS)]))


if __name__ == "__main__":
    main()
