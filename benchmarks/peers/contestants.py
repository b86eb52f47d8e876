"""The peers, their settings and files: the fastest of the documented settings.

The files hold the same training events that Turret trains on, as plain arrays.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.peer import Peer, environment
from turret.data.prepared import PreparedData

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
        """Its process, not yet started. Raises PeerError where its environment can't be made."""
        python = environment(self.requirements, environments)
        return Peer(self.name, self.script, python, data, {"threads": THREADS, **self.settings})


def sasrec(loss: str, batch_size: int, precision: str = "32-true", evaluate: bool = False) -> dict[str, Any]:
    """The settings of RecTools' SASRec with "softmax" or "sampled_softmax"; a batch holds so many users.

    `precision` is one of Lightning's. "bf16-mixed" is faster, but several times as slow with the sampled
    softmax of `SASRecModel`.
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


def _rechub(name: str, batch_size: int, steps: int) -> Contestant:
    settings = {**_TOWERS, "batch_size": batch_size, "negatives": NEGATIVES}
    return Contestant(name, "torch_rechub", "rechub_youtubednn", settings, steps)


def _recommenders(negatives: int, batch_size: int, steps: int) -> Contestant:
    name = f"TensorFlow Recommenders, {f'{negatives} negatives each' if negatives else 'in-batch negatives'}"
    settings = {**_TOWERS, "batch_size": batch_size, "negatives": negatives}
    return Contestant(name, "tensorflow_recommenders", "recommenders_towers", settings, steps)


_TOWERS = {"dimension": DIMENSION, "hidden": HIDDEN}
POOLED = (
    _rechub("torch-rechub", 2048, 60),
    _rechub("torch-rechub, batches of 8,192", 8192, 15),
    _recommenders(0, 1024, 120),
    _recommenders(NEGATIVES, 2048, 60),
)


def _rectools(script: str, name: str, settings: dict[str, Any], steps: int) -> Contestant:
    return Contestant(name, "rectools", script, settings, steps)


# The model of RecTools with its trainer, and the network of its `fast_transformers`, each at the batch size
# and the precision at which it is fastest.
TRANSFORMER_SAMPLED = (
    _rectools("rectools_sasrec", "RecTools, 256 negatives", sasrec("sampled_softmax", 16), 8),
    _rectools(
        "rectools_fast",
        "RecTools fast_transformers, 256 negatives",
        sasrec("sampled_softmax", 16, "bf16-mixed"),
        8,
    ),
)
TRANSFORMER_FULL = (
    _rectools("rectools_sasrec", "RecTools, full softmax", sasrec("softmax", 128, "bf16-mixed"), 3),
    _rectools(
        "rectools_fast", "RecTools fast_transformers, full softmax", sasrec("softmax", 32, "bf16-mixed"), 12
    ),
)


def write_events(data: PreparedData, path: Path, users: int | None = None) -> Path:
    """All events, or those of the first `users` users, sorted by user and time.

    items int32 [E] are item rows; offsets int64 [U + 1] the users' bounds; train_ends int64 [U] the places
    where their training events end.
    """
    offsets, train_ends = data.offsets[: (users or len(data.users)) + 1], data.splits[:users, 0]
    np.savez(path, items=data.event_items[: offsets[-1]], offsets=offsets, train_ends=train_ends)
    return path


def write_positions(data: PreparedData, path: Path, history_length: int, count: int) -> Path:
    """At most `count` of the training events that have some before them, drawn without replacement (seed 0).

    histories int32 [P, T] are the items before each, the newest last, filled up with -1 in front; targets
    int32 [P] the items themselves; item_count the size of the catalog.
    """
    begins, ends = np.asarray(data.offsets[:-1]), np.asarray(data.splits[:, 0])
    users = np.repeat(np.arange(len(begins)), np.diff(data.offsets))
    places = np.arange(len(users))
    places = places[(places > begins[users]) & (places < ends[users])]
    drawn = np.random.default_rng(0).permutation(places)[:count]
    read = drawn[:, None] + np.arange(-history_length, 0)
    histories = np.where(
        read >= begins[users[drawn], None], data.event_items[np.maximum(read, 0)], np.int32(-1)
    )
    np.savez(path, histories=histories, targets=data.event_items[drawn], item_count=len(data.item_ids))
    return path
