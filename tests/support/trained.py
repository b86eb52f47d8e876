"""One synthetic shop, taken all the way by commands that a user types, for all tests that need a trained one.

It is made once for each state of the sources and kept in the user's cache: neither the next file nor the next
run of the tests trains it again.
"""

import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tests.support.command_line import output
from tests.support.places import ROOT
from turret.data.files import locked
from turret.data.prepared import PreparedData
from turret.training.run import Run

# Small, and the towers still learn more than popularity.
_SYNTH = ("--users", "400", "--items", "300", "--events-per-user", "20", "--seed", "3")
_LENGTHS = ("--set", "shortest_history=4", "--set", "longest_history=50")
_QUICK = ("--set", "training.batch_size=1024", "--set", "tower.dimension=32")
# The runs, which are the versions of the bundles too, the first of them current: experiment and epochs.
RUNS = {"ids": ("demo", 4), "features": ("dssm", 2)}
SAID = "said.json"
_WEEK = 7 * 86_400


@dataclass(frozen=True)
class TrainedShop:
    """The folders `raw`, `prepared`, `ids` and `features` (runs), and `bundles`. Nobody may write to them."""

    folder: Path

    @cached_property
    def said(self) -> dict[str, str]:
        """The output of each command: `synth`, `prepare`, `train ids`, `evaluate ids`, `export ids`, ..."""
        said: dict[str, str] = json.loads((self.folder / SAID).read_text(encoding="utf-8"))
        return said

    @cached_property
    def data(self) -> PreparedData:
        """The prepared data of both runs."""
        return PreparedData.open(self.folder / "prepared")

    def run(self, name: str = "ids") -> Run:
        """One of the runs."""
        return Run.read(self.folder / name)

    @property
    def bundles(self) -> Path:
        """Two versions; a service writes its admin key beside them, so it gets a copy."""
        return self.folder / "bundles"

    def copy(self, to: Path) -> "TrainedShop":
        """The same shop in another folder, to write to. Its runs still name the data of the first."""
        return TrainedShop(Path(shutil.copytree(self.folder, to)))


@cache
def trained_shop() -> TrainedShop:
    """The shop of these sources; made where there is none."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turret-tests" / "shops"
    home.mkdir(parents=True, exist_ok=True)
    with locked(home):
        _forget_old(home)
        folder = home / _state_of_sources()
        if not (folder / SAID).exists():
            shutil.rmtree(folder, ignore_errors=True)  # its making was interrupted
            folder.mkdir()
            _make(folder)
    return TrainedShop(folder)


def _make(folder: Path) -> None:
    def said(*words: str) -> str:
        return output(*words, folder=folder)

    everything: dict[str, Any] = {
        "synth": said("data", "synth", "raw", *_SYNTH, *_LENGTHS),
        "prepare": said("data", "prepare", "raw", "--to", "prepared"),
    }
    for run, (experiment, epochs) in RUNS.items():
        settings = ("--set", f"training.epochs={epochs}", *_QUICK)
        words = ("--data", "prepared", "--run", run, "-e", experiment, *settings)
        everything[f"train {run}"] = said("train", *words)
        everything[f"evaluate {run}"] = said("evaluate", run, "--json")
        everything[f"export {run}"] = said("export", run, "--bundles", "bundles", "--version", run)
    # Last: its file tells that the shop is whole.
    (folder / SAID).write_text(json.dumps(everything), encoding="utf-8")


def _state_of_sources() -> str:
    digest = hashlib.sha256()
    packages = (path for name in ("data", "tower", "training") for path in (ROOT / name).rglob("*.*"))
    for path in sorted([*packages, ROOT / "constraints.txt", Path(__file__)]):
        if path.suffix in (".py", ".toml", ".txt"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _forget_old(home: Path) -> None:
    for path in home.iterdir():
        if path.stat().st_mtime < time.time() - _WEEK:
            shutil.rmtree(path)
