"""The Python API for models and loops of one's own, and for packages that add a kind."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.places import ROOT, python_blocks
from tests.support.plugin import install, run_with
from tests.test_imports import reached
from turret.data.errors import ConfigurationError
from turret.data.extras import kind_of, registry
from turret.data.prepared import PreparedData
from turret.training import Estimator, losses, samplers
from turret.training.errors import TrainingError
from turret.training.losses.registry import LOSSES
from turret.training.objectives.contract import LossSettings

N, D = 50, 8


def vectors(count: int, seed: int) -> Tensor:
    return 0.5 * torch.randn(count, D, generator=torch.manual_seed(seed))


def test_every_block_of_the_page_runs() -> None:
    names: dict[str, Any] = {}
    for block in python_blocks(ROOT / "docs" / "python_estimators.md"):
        exec(compile(block, "docs/python_estimators.md", "exec"), names)
    assert names["full"].isfinite()


IN_CATALOG = [(kind, None) for kind, loss in LOSSES.items() if loss.servable and not loss.draws]
OVER_DRAWS = [(kind, "uniform") for kind, loss in LOSSES.items() if loss.draws]
BY_SAMPLER = [
    ("sampled_softmax", kind)
    for kind in ("in_batch", "mixed", "bigram", "adaptive_ngram", "quadratic", "softmax", "two_pass")
]


def typed(kind: str, sampler: str | None) -> Estimator:
    loss = getattr(losses, kind)()
    temperature = 1.0 if loss.needs_cosine else 0.1
    return Estimator(
        loss,
        None if sampler is None else getattr(samplers, sampler)(),
        items=N,
        cosine=loss.needs_cosine,
        absolute=loss.needs_absolute,
        temperature=temperature,
        counts=torch.arange(1, N + 1),
        following=(torch.arange(N), torch.arange(N).flip(0)),
    )


@pytest.mark.parametrize(("kind", "sampler"), [*IN_CATALOG, *OVER_DRAWS, *BY_SAMPLER])
@pytest.mark.parametrize("form", [torch.bfloat16, torch.float16, "autocast"], ids=str)
def test_losses_are_those_of_float32_by_the_vectors_that_towers_round(
    kind: str, sampler: str | None, form: torch.dtype | str
) -> None:
    """In any type of the towers; under autocast the item tower keeps it, and all else is computed without."""
    found = []
    for rounded in (True, False):
        under, dtype = rounded and form == "autocast", torch.bfloat16 if form == "autocast" else form
        assert isinstance(dtype, torch.dtype)
        users, items = (some.to(dtype).float() for some in (vectors(6, 0), vectors(N, 1)))
        made = dtype if rounded else torch.float32
        items.requires_grad_()

        def tower(
            rows: Tensor, items: Tensor = items, under: bool = under, made: torch.dtype = made
        ) -> Tensor:
            assert torch.is_autocast_enabled("cpu") is under
            return items[rows].to(made)

        estimate = typed(kind, sampler)
        with torch.autocast("cpu", torch.bfloat16, enabled=under):
            estimate.refresh(tower)
            named = {"propensities": torch.full((6,), 0.01)} if estimate.needs_propensities else {}
            out = estimate(users.to(made), torch.arange(6), tower, last_items=torch.arange(6, 12), **named)
            estimate.update(tower)
        (gradient,) = torch.autograd.grad(out.loss, items)
        assert out.loss.dtype == torch.float32
        found.append((out.loss.detach(), gradient))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-6, atol=0.0)
    # The gradient of each look-up is rounded once, to the eight bits of bfloat16.
    most = float(found[1][1].abs().max())
    torch.testing.assert_close(found[0][1], found[1][1], rtol=2.0**-7, atol=2.0**-7 * most)


def drawn_losses(steps: int, estimate: Estimator) -> list[float]:
    items = vectors(N, 1)
    return [float(estimate(vectors(6, 0), torch.arange(6), items.__getitem__).loss) for _ in range(steps)]


def test_each_step_has_its_own_draw_and_a_restored_estimator_repeats_it() -> None:
    made = [Estimator(losses.sampled_softmax(), samplers.uniform(negatives=8), items=N) for _ in range(2)]
    first = drawn_losses(4, made[0])
    assert len(set(first)) == 4
    drawn_losses(2, made[1])
    restored = Estimator(losses.sampled_softmax(), samplers.uniform(negatives=8), items=N)
    restored.load_state_dict(made[1].state_dict())
    assert drawn_losses(2, restored) == first[2:]


def test_each_rank_has_draws_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of rank 0 are those of a process alone."""
    found = []
    for rank in (None, 0, 1, 2):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda rank=rank: rank is not None)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        estimate = Estimator(losses.sampled_softmax(), samplers.uniform(negatives=8), items=N)
        found += drawn_losses(1, estimate)
    assert found[0] == found[1]
    assert len(set(found)) == 3


@pytest.mark.parametrize("sampler", ["bigram", "adaptive_ngram"])
def test_draws_by_the_newest_item_need_it(sampler: str) -> None:
    estimate = typed("sampled_softmax", sampler)
    with pytest.raises(TrainingError, match=r"give it last_items, int64 \[B\]"):
        estimate(vectors(3, 0), torch.arange(3), vectors(N, 1).__getitem__)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"positives": [0, -1, 2]}, "positives has the row -1; give rows 0 to 49"),
        ({"positives": [0.0, 1.0, 2.0]}, r"positives is a float32 tensor of the shape \(3,\); give an int64"),
        ({"last_items": [0, 1, 50]}, "last_items has the row 50"),
        ({"last_items": [0, 1]}, r"last_items is .* \(2,\); give an int64 tensor of the shape \(3,\)"),
        ({"seen": ([0, 3], [1, 1])}, r"seen\[0\] has the row 3; give rows 0 to 2"),
        ({"seen": ([0, 1], [1, 50])}, r"seen\[1\] has the row 50; give rows 0 to 49"),
        ({"seen": ([0, 1], [1])}, r"seen\[1\] is .* give an int64 tensor of the shape \(2,\)"),
        ({"weights": [[1.0], [1.0], [1.0]]}, r"weights is .* \(3, 1\); give one for each of 3 examples"),
        *(({"weights": [1.0, odd, 1.0]}, "weights has a negative, ") for odd in (-1.0, math.nan)),
    ],
    ids=str,
)
def test_values_outside_of_their_range_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    """They would stand for the last items, for those of other users, or be multiplied with every example."""
    estimate = Estimator(losses.nce(), samplers.uniform(negatives=8), items=N)
    given = {"positives": [0, 1, 2], **arguments}
    tensors = {
        name: tuple(map(torch.tensor, value)) if isinstance(value, tuple) else torch.tensor(value)
        for name, value in given.items()
    }
    with pytest.raises(TrainingError, match=f"^{sentence}"):
        estimate(vectors(3, 0), item_tower=vectors(N, 1).__getitem__, **tensors)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"users": np.zeros((3, 4))}, "users is a ndarray; give a tensor"),
        ({"positives": [0, 1, 2]}, "positives is a list; give a tensor"),
        ({"last_items": [0, 1, 2]}, "last_items is a list; give a tensor"),
        ({"weights": [1.0, 1.0, 1.0]}, "weights is a list; give a tensor"),
        ({"seen": torch.arange(3)}, "seen is no pair; give"),
        ({"seen": ([0], [1])}, r"seen\[0\] is a list; give a tensor"),
        ({"users": vectors(3, 0)[:, :3]}, "users have 3 columns, and items 8; give both one width"),
        ({"item_tower": vectors(9, 1).__getitem__}, r"the item tower fails for rows up to .* give one of 50"),
        ({"item_tower": lambda rows: None}, "the item tower gives None for rows"),
        ({"item_tower": lambda rows: torch.zeros(2, 4)}, r"the item tower gives a float32 .* \(2, 4\)"),
    ],
)
def test_arguments_of_another_kind_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    estimate = Estimator(losses.nce(), samplers.uniform(negatives=64), items=N)
    given = {"users": vectors(3, 0), "positives": torch.arange(3), "item_tower": vectors(N, 1).__getitem__}
    with pytest.raises(TrainingError, match=f"^{sentence}"):
        estimate(**given | arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"loss": "sampled_softmax"}, "needs a sampler"),
        ({"loss": "full_softmax", "items": True}, "items is True; give a whole number"),
        ({"loss": "full_softmax", "items": 10**30}, "at least 1, below 2,147,483,648"),
        ({"loss": "full_softmax", "device": "nope"}, "torch has no device 'nope' here"),
        ({"loss": "nce", "sampler": "unigram", "counts": ["a"] * N}, "counts holds .*; give whole numbers"),
        ({"loss": "nce", "sampler": "unigram", "counts": [[1], [2, 3]]}, "counts can't be an array"),
        *(
            (
                {"loss": "sampled_softmax", "sampler": "bigram", "counts": [1] * N, "following": wrong},
                sentence,
            )
            for wrong, sentence in ((5, "is no pair"), (([1.5], [2.5]), "float64"), ((["a"], ["b"]), "holds"))
        ),
        ({"loss": "sampled_softmax", "sampler": "mined"}, "a part of kind = 'mixed'"),
        ({"loss": "sampled_softmax", "sampler": "unigram"}, r"give Estimator\(counts="),
        ({"loss": "sampled_softmax", "sampler": "unigram", "counts": [1, 2]}, "each of the 50 items"),
        ({"loss": "nce", "sampler": "unigram", "counts": [0.5] * N}, "give whole numbers of at least 0"),
        ({"loss": "full_softmax", "items": 2.5}, "at least"),
        ({"loss": "full_softmax", "seed": -1}, "at least"),
        ({"loss": "full_softmax", "temperature": math.nan}, "above 0"),
        (
            {"loss": "sampled_softmax", "sampler": "bigram", "counts": [1] * N, "following": ([0], [N])},
            "rows from 0 to 50; give two .* 0 to 49",
        ),
        ({"loss": "hierarchical_softmax"}, "use another loss"),
        ({"loss": "cosine_hinge", "sampler": "uniform"}, "margin in cosines"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    sampler = arguments.pop("sampler", None)
    loss = getattr(losses, arguments.pop("loss"))()
    with pytest.raises(TrainingError, match=sentence):
        Estimator(loss, sampler and getattr(samplers, sampler)(), **{"items": N, **arguments})


def test_propensities_that_are_missing_or_no_probabilities_are_refused() -> None:
    users, positives, items = vectors(3, 0), torch.arange(3), vectors(N, 1).__getitem__
    estimate = Estimator(losses.top_k_off_policy(), samplers.uniform(negatives=8), items=N)
    assert estimate(users, positives, items, propensities=torch.tensor([0.5, math.nan, 1.0])).loss > 0
    for propensities, sentence in (
        (None, r"top_k_off_policy needs propensities, \[3\], those of the logged answers; NaN stands for"),
        (torch.ones(2), r"tensor of the shape \(2,\); give one for each of 3 examples"),
        (torch.tensor([0.5, 0.0, 1.0]), "give probabilities above 0, or NaN"),
        (torch.tensor([0.5, 1.5, 1.0]), "give probabilities above 0, or NaN"),
    ):
        with pytest.raises(TrainingError, match=sentence):
            estimate(users, positives, items, propensities=propensities)
    plain = Estimator(losses.sampled_softmax(), samplers.uniform(negatives=8), items=N)
    with pytest.raises(TrainingError, match=r"reads no propensities; use losses\.top_k_off_policy, or we"):
        plain(users, positives, items, propensities=torch.ones(3))


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
    with pytest.raises(ConfigurationError, match="remove_accidental_hits"):
        losses.sampled_softmax(remove_accidental_hits=False)


def test_it_reaches_neither_prepared_data_nor_towers_nor_polars() -> None:
    """Nor inside functions: a loop of one's own needs torch alone."""
    assert "torch" in reached("turret.training.estimator")
    assert not reached("turret.training.estimator") & {"polars", "pandas", "onnx", "matplotlib"}


MODULE = """
from typing import Literal

import torch

from turret.training.losses.loss import loss, settings_of
from turret.training.losses.loss import masked, mean_of_valid
from turret.training.samplers.core.contract import Sampler, drawn_with_replacement
from turret.training.samplers.core.settings import SamplerSettings


@loss("squared_hinge", needs_fixed_size=True)
def squared_hinge(positive, drawn, draw, *, margin: float = 1.0):
    return mean_of_valid((masked(drawn, draw) - positive[:, None] + margin).relu().square(), draw)


SquaredHinge = settings_of(squared_hinge)


class EvenConfig(SamplerSettings):
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
"""
SCRIPT = """
from pathlib import Path
from dwarves import Even
from turret.data.prepared import PreparedData
from turret.training import Estimator, losses, samplers
from turret.training.config.experiment import ExperimentConfig
from turret.training.sampler_report.samplers import entries
from turret.training.run import Run
from turret.training.loop.train import train
data = PreparedData.open(Path(DATA))
objective = {"loss": {"kind": "squared_hinge", "margin": 2.0}, "sampler": "even"}
training = {"epochs": 1, "batch_size": 4096, "device": "cpu"}
experiment = ExperimentConfig.model_validate({"objective": objective, "training": training})
train(Run(Path(RUN), experiment, data.folder, data.fingerprint), data, report=print)
assert Even.observed > 0
Estimator(losses.squared_hinge(), samplers.even(), items=10)
assert [entry.negatives for entry in entries((4, 16), 256) if entry.settings.kind == "even"] == [4, 16]
"""


def installed(folder: Path, loss: str = "squared_hinge = dwarves:SquaredHinge") -> None:
    """The package, with this line of loss entry points."""
    points = {"turret.losses": loss, "turret.samplers": "even = dwarves:EvenConfig"}
    install(folder, "dwarves", MODULE, points)


@pytest.mark.nightly
def test_its_loss_and_its_sampler_train(shop: PreparedData, tmp_path: Path) -> None:
    """By the names of their kinds, in an experiment and in a loop of one's own; it observes the scores."""
    installed(tmp_path)
    folders = f"DATA, RUN = {str(shop.folder)!r}, {str(tmp_path / 'run')!r}"
    run = run_with(tmp_path, folders + SCRIPT)
    assert run.returncode == 0, run.stderr
    assert "epoch 1/1: loss" in run.stdout


@pytest.mark.parametrize(
    ("point", "sentence"),
    [
        ("even = dwarves:EvenConfig", r"\(dwarves:EvenConfig\) of .*, no LossSettings"),
        (
            "tree = turret.training.losses.hierarchical:HierarchicalSoftmaxConfig",
            "two entries of turret.losses are named 'hierarchical_softmax'",
        ),
    ],
)
def test_an_entry_point_that_does_not_fit_is_named(
    point: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, point)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "dwarves", raising=False)
    with pytest.raises(TrainingError, match=sentence):
        registry((LOSSES["hierarchical_softmax"],), "turret.losses", LossSettings, TrainingError, kind_of)
