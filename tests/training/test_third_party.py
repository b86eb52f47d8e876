"""An installed package adds a loss and a sampler by entry points, without a change of Turret."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turret.data.prepared import PreparedData

ROOT = Path(__file__).parents[2]
MODULE = '''
from typing import ClassVar, Literal

import torch

from turret.training.objectives.sampled import DrawLossSettings
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.draw import drawn_with_replacement
from turret.training.samplers.core.settings import SamplerSettings


class SquaredHingeConfig(DrawLossSettings):
    """Pairs by a squared hinge."""

    needs_fixed_size: ClassVar[bool] = True
    kind: Literal["squared_hinge"] = "squared_hinge"
    margin: float = 1.0

    def build(self, item_count):
        return lambda positive, drawn, draw: (
            (drawn - positive[:, None] + self.margin).relu().square() * draw.valid
        ).mean(dim=1)


class NamelessConfig(DrawLossSettings):
    """Without a kind."""

    def build(self, item_count):
        return None


class EvenConfig(SamplerSettings):
    """Even rows only."""

    kind: Literal["even"] = "even"
    negatives: int = 8

    def build(self, context):
        return Even(self.negatives, context.item_count)


class Even(Sampler):
    observes_scores = True
    observed = 0

    def __init__(self, negatives, items):
        weights = torch.arange(items) % 2 == 0
        self.negatives, self.q = negatives, weights / weights.sum()

    def draw(self, query, positives, context):
        rows = 2 * context.random.integers(len(self.q) // 2, size=self.negatives)
        return drawn_with_replacement(torch.from_numpy(rows), self.q.log(), positives)

    def probability(self, query, context=None):
        return self.q.expand(len(query), -1)

    def observe(self, draw, positive, drawn):
        assert drawn.shape == (len(positive), self.negatives) and not drawn.requires_grad
        Even.observed += 1
'''
SCRIPT = """
import sys
from pathlib import Path
from dwarves import Even
from turret.data.prepared import PreparedData
from turret.training import Estimator, losses, samplers
from turret.training.config.experiment import ExperimentConfig
from turret.training.report.measured import entries
from turret.training.run import Run
from turret.training.trainer import train
data = PreparedData.open(Path(sys.argv[1]))
objective = {"loss": {"kind": "squared_hinge", "margin": 2.0}, "sampler": "even"}
training = {"epochs": 1, "batch_size": 4096, "device": "cpu"}
experiment = ExperimentConfig.model_validate({"objective": objective, "training": training})
train(Run(Path(sys.argv[2]), experiment, data.folder, data.fingerprint), data, report=print)
assert Even.observed > 0
Estimator(losses.squared_hinge(), samplers.even(), items=10)
assert [entry.negatives for entry in entries((4, 16), 256) if entry.kind == "even"] == [4, 16]
"""


def installed(folder: Path, losses: str) -> dict[str, str]:
    """The environment in which the package is installed, with this line of loss entry points."""
    (folder / "dwarves.py").write_text(MODULE)
    metadata = folder / "dwarves-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dwarves\nVersion: 1.0\n")
    points = f"[turret.losses]\n{losses}\n[turret.samplers]\neven = dwarves:EvenConfig\n"
    (metadata / "entry_points.txt").write_text(points)
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


@pytest.mark.nightly
def test_its_loss_and_its_sampler_train(shop: PreparedData, tmp_path: Path) -> None:
    """By the names of their kinds, in an experiment and in a loop of one's own; it observes the scores."""
    environment = installed(tmp_path, "squared_hinge = dwarves:SquaredHingeConfig")
    command = [sys.executable, "-c", SCRIPT, str(shop.folder), str(tmp_path / "run")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "epoch 1/1: loss" in run.stdout


@pytest.mark.parametrize(
    ("point", "sentence"),
    [
        (
            "gone = dwarves:Gone",
            "entry point 'gone' (dwarves:Gone) of turret.losses of the package dw",
        ),
        ("even = dwarves:EvenConfig", "not a subclass of LossSettings"),
        ("nameless = dwarves:NamelessConfig", "NamelessConfig needs a name, as in kind: Literal['my_kind']"),
        ("nce = turret.training.losses.binary:NceConfig", "two entries of turret.losses are named 'nce'"),
    ],
)
def test_one_that_does_not_fit_is_named(point: str, sentence: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import turret.training.losses.registry"]
    environment = installed(tmp_path, point)
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert sentence in run.stderr
