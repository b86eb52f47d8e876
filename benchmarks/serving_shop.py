"""Bundles of an invented shop of any size, and its users' histories, for the benchmark of the service."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.processes import turret
from turret.data.prepared import PreparedData
from turret.tower.format.manifest import read_manifest

WORK = Path("var/benchmarks/serving")
HISTORY, QUESTIONS = 50, 1_000
# Two versions of one model, so that activations have somewhere to go.
VERSIONS = ("first", "second")


@dataclass(frozen=True)
class Served:
    """A folder of bundles with two versions, and questions of real users: bodies of `POST /v1/recommend`."""

    items: int
    bundles: Path
    bodies: tuple[str, ...]

    @property
    def bundle_bytes(self) -> int:
        """Bytes of all files of one version."""
        return sum(path.stat().st_size for path in (self.bundles / VERSIONS[0]).iterdir())


def served_shop(items: int) -> Served:
    """Make the bundles unless they exist; return them with questions.

    Users have 60 events in the mean; the towers are those of the experiment `youtubednn`, trained for ten
    epochs; the index is what `turret index --kind auto` chooses.
    """
    folder = WORK / str(items)
    if not (folder / "bundles" / "current").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _make(folder, items)
    data = PreparedData.open(folder / "prepared")
    return Served(items, folder / "bundles", tuple(_bodies(data)))


def _make(folder: Path, items: int) -> None:
    users = str(max(2_000, items // 2))
    shop, prepared, run, bundles = (folder / name for name in ("shop", "prepared", "run", "bundles"))
    turret("data", "synth", shop, "--users", users, "--items", items, "--events-per-user", 60, "--overwrite")
    turret("data", "prepare", shop, "--to", prepared, "--overwrite")
    turret("train", "--data", prepared, "--run", run, "--overwrite", "--set", "training.epochs=10")
    turret("export", run, "--bundles", bundles, "--version", "exact")
    first, second = VERSIONS
    turret("index", bundles / "exact", "--kind", "auto", "--version", first)
    kind = read_manifest(bundles / first).index.kind
    turret("index", bundles / "exact", "--kind", kind, "--version", second)
    turret("activate", VERSIONS[0], "--bundles", bundles)


def _bodies(data: PreparedData) -> list[str]:
    """The newest 50 items of users who have that many, as requests for 10 more."""
    users = np.flatnonzero(np.diff(data.offsets) >= HISTORY)[:QUESTIONS]
    histories = (data.item_ids.ids(data.history(int(user), "end")[-HISTORY:]) for user in users)
    return [json.dumps({"history": history, "k": 10}) for history in histories]
