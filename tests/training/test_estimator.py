"""The Python API for models and loops of one's own, and for packages that add a kind."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.places import ROOT
from tests.test_imports import reached
from turret.data.errors import ConfigurationError
from turret.data.prepared import PreparedData
from turret.training import Estimator, check_loss, check_sampler, losses, samplers
from turret.training.errors import TrainingError
from turret.training.losses.binary import NceConfig
from turret.training.objectives.contract import LossSettings
from turret.training.registry import by_kind
from turret.training.samplers.core.settings import SamplerSettings

N, D = 50, 8


def vectors(count: int, seed: int) -> Tensor:
    return 0.5 * torch.randn(count, D, generator=torch.manual_seed(seed))


def test_every_block_of_the_page_runs() -> None:
    """One after the other, in one interpreter."""
    page = (ROOT / "docs" / "python_estimators.md").read_text("utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/python_estimators.md", "exec"), names)
    assert names["full"].isfinite()


def test_the_full_softmax_is_cross_entropy_over_all_scores() -> None:
    users, items, rows = vectors(6, 0), vectors(N, 1), torch.arange(6)
    weights = torch.arange(1.0, 7.0)
    estimate = Estimator(losses.full_softmax(), items=N, temperature=0.3, cosine=True)
    out = estimate(users, rows, items.__getitem__, weights=weights)
    normal = torch.nn.functional.normalize
    scores = normal(users, dim=1) @ normal(items, dim=1).T / 0.3
    expected = torch.nn.functional.cross_entropy(scores, rows, reduction="none")
    torch.testing.assert_close(out.loss, (expected * weights).sum() / weights.sum())


def test_seen_items_are_masked() -> None:
    """The loss is that without them; the positive stays."""
    users, items, rows = vectors(2, 0), vectors(N, 1), torch.tensor([3, 4])
    seen = (torch.tensor([0, 0, 1]), torch.tensor([3, 9, 0]))
    out = Estimator(losses.full_softmax(), items=N)(users, rows, items.__getitem__, seen=seen)
    scores = users @ items.T
    scores[0, 9] = scores[1, 0] = float("-inf")
    torch.testing.assert_close(out.loss, torch.nn.functional.cross_entropy(scores, rows))
    assert int(out.masked) == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"loss": "sampled_softmax"}, "needs a sampler"),
        ({"loss": "nce", "sampler": "two_pass"}, "expected count of the positive"),
        ({"loss": "sampled_softmax", "sampler": "mined"}, "a part of kind = 'mixed'"),
        ({"loss": "sampled_softmax", "sampler": "unigram"}, r"give Estimator\(counts="),
        ({"loss": "sampled_softmax", "sampler": "unigram", "counts": [1, 2]}, "each of the 50 items"),
        ({"loss": "hierarchical_softmax"}, "use another loss"),
        ({"loss": "cosine_hinge", "sampler": "uniform"}, "margin in cosines"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    sampler = arguments.pop("sampler", None)
    loss = getattr(losses, arguments.pop("loss"))()
    with pytest.raises(TrainingError, match=sentence):
        Estimator(loss, sampler and getattr(samplers, sampler)(), items=N, **arguments)


def test_shapes_names_and_settings_that_do_not_fit_are_refused() -> None:
    estimate = Estimator(losses.full_softmax(), items=N)
    with pytest.raises(TrainingError, match=r"give \[B, D\] and \[B\]"):
        estimate(vectors(3, 0), torch.arange(4), vectors(N, 1).__getitem__)
    with pytest.raises(TrainingError, match=r"the loss is 'nce'; give settings, such as losses\."):
        Estimator("nce", samplers.uniform(), items=N)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=r"the sampler is .*; give settings, such as samplers\."):
        Estimator(losses.nce(), samplers.uniform, items=N)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="no loss 'softmacks'; there are binary_cross_entropy"):
        _ = losses.softmacks
    with pytest.raises(ConfigurationError, match="negatives can't be 0"):
        samplers.uniform(negatives=0)


def test_it_reaches_neither_prepared_data_nor_towers_nor_polars() -> None:
    """Nor inside functions: a loop of one's own needs torch alone."""
    assert "torch" in reached("turret.training.estimator")
    assert not reached("turret.training.estimator") & {"polars", "pandas", "onnx", "matplotlib"}


MODULE = '''
from typing import ClassVar, Literal

import torch

from turret.training.losses.terms import masked, mean_of_valid
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
        return lambda positive, drawn, draw: mean_of_valid(
            (masked(drawn, draw) - positive[:, None] + self.margin).relu().square(), draw
        )


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
    ("group", "point", "sentence"),
    [
        (
            "losses",
            "gone = dwarves:Gone",
            r"entry point 'gone' \(dwarves:Gone\) of turret.losses of the package dw",
        ),
        ("losses", "even = dwarves:EvenConfig", "not a subclass of LossSettings"),
        (
            "losses",
            "nameless = dwarves:NamelessConfig",
            r"NamelessConfig needs a name, as in kind: Literal\['my_kind'\]",
        ),
        (
            "losses",
            "nce = turret.training.losses.binary:NceConfig",
            "two entries of turret.losses are named 'nce'",
        ),
    ],
)
def test_an_entry_point_that_does_not_fit_is_named(
    group: str, point: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, point)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "dwarves", raising=False)
    with pytest.raises(TrainingError, match=sentence):
        by_kind((NceConfig,), f"turret.{group}", LossSettings)


def test_a_package_checks_its_own_loss_and_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names of their kinds, in a loop of one's own."""
    installed(tmp_path, "squared_hinge = dwarves:SquaredHingeConfig")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "dwarves", raising=False)
    none: list[type[Any]] = []
    found = by_kind(none, "turret.losses", LossSettings)["squared_hinge"]
    even = by_kind(none, "turret.samplers", SamplerSettings)["even"]
    check_loss(found.model_validate({"margin": 2.0}))
    estimate = Estimator(found(), even(), items=N)
    assert estimate(vectors(5, 0), torch.arange(5), torch.nn.Embedding(N, D)).loss.isfinite()
    with pytest.raises(AssertionError, match=r"the sampler 'even': item 1 weighs 0\.000"):
        check_sampler(even())
