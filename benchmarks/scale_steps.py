"""The steps of one training in one thread of a process of its own: PREPARED RUN EXPERIMENT CHANGES...

Prints processor seconds an example, which other programs of a busy machine hardly change, and the most
examples/s of a turn.
"""

import json
import sys
import time
from pathlib import Path

import torch

from benchmarks.harness import Side
from benchmarks.turret_training import training
from turret.data.prepared import PreparedData
from turret.training.process import keep_freed_memory

TURN_SECONDS, TURNS = 1.5, 4


def main() -> None:
    """Take turns of at least `TURN_SECONDS`; the first warms up."""
    prepared, run, experiment, *changes = sys.argv[1:]
    keep_freed_memory()
    torch.set_num_threads(1)
    side = training(PreparedData.open(Path(prepared)), Path(run), experiment, changes, "cpu")
    steps = _steps_of_a_turn(side)
    costs, rates = [], []
    for _ in range(TURNS):
        begun = time.process_time()
        examples, seconds = side(steps)
        costs.append((time.process_time() - begun) / examples)
        rates.append(examples / seconds)
    print(json.dumps({"processor_us_per_example": 1e6 * min(costs), "examples_per_second": max(rates)}))


def _steps_of_a_turn(side: Side) -> int:
    steps = 1
    while True:
        _, seconds = side(steps)
        if seconds > TURN_SECONDS / 2:
            return max(1, round(steps * TURN_SECONDS / seconds))
        steps *= 2


if __name__ == "__main__":
    main()
