"""Who is compared with, at which settings: those that were fastest of the documented ones."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import environment
from benchmarks.peers.peer import Peer

SCRIPTS = Path(__file__).parent / "scripts"
# One number for every side.
THREADS = len(os.sched_getaffinity(0))
DIMENSION = 64
HIDDEN = [128]
HISTORY_LENGTH = 50
SESSION_LENGTH = 200
NEGATIVES = 20
SAMPLED = 256


@dataclass(frozen=True)
class Contestant:
    """A peer's script, the file of its requirements, and what the script is told.

    `steps` are as many as take some seconds on two cores.
    """

    name: str
    requirements: str
    script: str
    settings: Mapping[str, Any]
    steps: int

    def peer(self, environments: Path, data: Path) -> Peer:
        """Its process, not yet started. Raises PeerMissingError where its environment can't be made."""
        python = environment(self.requirements, environments)
        return Peer(
            self.name, SCRIPTS / f"{self.script}.py", python, data, {"threads": THREADS, **self.settings}
        )


def sasrec(loss: str, batch_size: int, precision: str = "32-true", evaluate: bool = False) -> dict[str, Any]:
    """The settings of RecTools' SASRec with "softmax" or "sampled_softmax"; a batch holds so many users.

    `precision` is one of Lightning's: "bf16-mixed" is faster with the full softmax, and several times as slow
    with the sampled one.
    """
    model = {
        "n_blocks": 2,
        "n_heads": 2,
        "n_factors": DIMENSION,
        "dropout_rate": 0.2,
        "session_max_len": SESSION_LENGTH,
        "loss": loss,
        "n_negatives": SAMPLED,
        "lr": 1e-3,
        "batch_size": batch_size,
    }
    return {"model": model, "precision": precision, "evaluate": evaluate}


_TOWERS = {"dimension": DIMENSION, "hidden": HIDDEN}
POOLED = (
    Contestant(
        "torch-rechub",
        "torch_rechub",
        "rechub_youtubednn",
        {**_TOWERS, "batch_size": 2048, "negatives": NEGATIVES},
        60,
    ),
    Contestant(
        "torch-rechub, batches of 8,192",
        "torch_rechub",
        "rechub_youtubednn",
        {**_TOWERS, "batch_size": 8192, "negatives": NEGATIVES},
        15,
    ),
    Contestant(
        "TensorFlow Recommenders, in-batch negatives",
        "tensorflow_recommenders",
        "recommenders_towers",
        {**_TOWERS, "batch_size": 1024, "negatives": 0},
        120,
    ),
    Contestant(
        "TensorFlow Recommenders, 20 negatives each",
        "tensorflow_recommenders",
        "recommenders_towers",
        {**_TOWERS, "batch_size": 2048, "negatives": NEGATIVES},
        60,
    ),
)
TRANSFORMER_SAMPLED = Contestant(
    "RecTools, 256 negatives", "rectools", "rectools_sasrec", sasrec("sampled_softmax", 16), 8
)
TRANSFORMER_FULL = Contestant(
    "RecTools, full softmax", "rectools", "rectools_sasrec", sasrec("softmax", 128, "bf16-mixed"), 3
)
