"""The check that all processes train the same run."""

from hashlib import sha256

import torch

from turret.training.distributed.world import World, process_count
from turret.training.errors import TrainingError
from turret.training.records.environment import package_version
from turret.training.run import Run


def check_same_run(world: World, run: Run) -> None:
    """Raise TrainingError unless all processes of torchrun train `run`, with one release, data and settings.

    Each machine may have its own: where only the order of the items differs, training would go on, and make
    one vector of two items. A script that does not join the others would train the run once in each process.
    """
    if world.size < process_count():
        raise TrainingError(
            f"torchrun has started {process_count()} processes, and each would train {run.folder} alone; "
            "several processes are for `turret train` (docs/distributed.md), so start this without torchrun."
        )
    parts = {
        "release of turret": package_version("turret") or "",
        "copy of the prepared data": run.fingerprint,
        "experiment": run.experiment.model_dump_json(),
    }
    every = world.gathered(torch.tensor([[_digest(text) for text in parts.values()]]))
    for name, column in zip(parts, every.T, strict=True):
        others = (column != column[0]).nonzero().flatten().tolist()
        if others:
            raise TrainingError(
                f"process {others[0]} of {world.size} has another {name} than process 0; give all machines "
                "the same release, settings and prepared data (a shared folder, or copies of one)."
            )


def _digest(text: str) -> int:
    """63 bits of a hash, as an int64 has."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1
