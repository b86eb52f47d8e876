"""Losses and samplers that packages write wrongly end in one sentence, and not in another result."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor, nn

from turret.data.errors import ConfigurationError
from turret.training import Estimator, losses, samplers
from turret.training.errors import TrainingError
from turret.training.losses.catalog import FullSoftmaxConfig
from turret.training.losses.sampled import SampledSoftmaxConfig, sampled_softmax
from turret.training.objectives.contract import Loss, LossSettings
from turret.training.objectives.sampled import DrawLossSettings
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw, drawn_with_replacement
from turret.training.samplers.core.settings import SamplerContext, SamplerSettings

N, B, K = 20, 6, 4


class GivenLoss(DrawLossSettings):
    """The function that a test gives."""

    function: ClassVar[Any] = None
    kind: Literal["given"] = "given"

    def build(self, item_count: int) -> Loss:
        """The function."""
        made: Loss = type(self).function
        return made


class GivenSampler(Sampler):
    """Uniform draws of K, changed by a function that a test gives."""

    def __init__(self, change: Callable[[Draw], Any]) -> None:
        self.change = change

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """The changed draw."""
        ids = torch.from_numpy(context.random.integers(N, size=K))
        made: Draw = self.change(drawn_with_replacement(ids, torch.full((N,), 1 / N).log(), positives))
        return made

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """Uniform."""
        return torch.full((len(query), N), 1 / N)


class GivenSettings(SamplerSettings):
    """Settings with the values of a test."""

    sampler: ClassVar[Any] = None
    kind: Literal["given"] = "given"

    def build(self, context: SamplerContext) -> Sampler:
        """The sampler."""
        made: Sampler = type(self).sampler
        return made


class HalfSettings(GivenSettings):
    """It does not reach every item."""

    covers_catalog: ClassVar[bool] = False


def step(loss: LossSettings, sampler: SamplerSettings | None = None) -> float:
    """The loss of one step of B examples."""
    torch.manual_seed(0)
    users, items = nn.Embedding(B, 3), nn.Embedding(N, 3)
    estimate = Estimator(loss, sampler, items=N)
    value: float = estimate(users(torch.arange(B)), torch.arange(B), items).loss.item()
    return value


def broken(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    raise KeyError("gamma")


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (None, "build that returned None; return a function"),
        (
            lambda *batch: sampled_softmax(*batch).mean(),
            r"float32 tensor of the shape \(\), .* the shape \(6,\)",
        ),
        (lambda *batch: sampled_softmax(*batch)[:, None], r"of the shape \(6, 1\)"),
        (lambda *batch: sampled_softmax(*batch).long(), "an? int64 tensor"),
        (lambda *batch: 0.5, "returned a float,"),
        (broken, r" failed with KeyError: 'gamma' \(.*test_checks\.py, line \d+\)"),
    ],
)
def test_a_loss_that_breaks_the_contract_is_named(
    function: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column [B, 1] would otherwise be multiplied with every weight, and the loss be B times too large."""
    monkeypatch.setattr(GivenLoss, "function", staticmethod(function) if callable(function) else function)
    with pytest.raises(TrainingError, match=f"objective.loss = 'given'.*{sentence}"):
        step(GivenLoss(), samplers.uniform(negatives=K))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda draw: None, "GivenSampler returned a NoneType; return a Draw"),
        (lambda draw: replace(draw, ids=draw.ids.float()), "ids a float32 tensor .* int64"),
        (lambda draw: replace(draw, ids=draw.ids.expand(3, K)), r"ids .*\(3, 4\).* \[6, K\]"),
        (lambda draw: replace(draw, log_count=draw.log_count[0]), r"log_count .*\(\); return a float \(4,\)"),
        (lambda draw: replace(draw, positive_log_count=draw.log_count), r"positive_log_count .*\(6,\)"),
        (lambda draw: replace(draw, valid=draw.valid[0]), r"valid .*return a bool \(6, 4\)"),
        (lambda draw: draw.nothing, r"failed with AttributeError.*test_checks\.py"),
    ],
)
def test_a_draw_that_breaks_the_contract_is_named(
    change: Callable[[Draw], Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts of another shape would otherwise be broadcast."""
    monkeypatch.setattr(GivenSettings, "sampler", GivenSampler(change))
    with pytest.raises(TrainingError, match=f"objective.sampler.*{sentence}"):
        step(losses.sampled_softmax(), GivenSettings())


def test_a_sampler_of_another_type_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GivenSettings, "sampler", 7)
    with pytest.raises(TrainingError, match="build that returned 7; return a Sampler"):
        step(losses.sampled_softmax(), GivenSettings())


def test_a_loss_that_corrects_positives_is_refused_where_some_are_out_of_reach() -> None:
    """Their log count is minus infinity; in a mixed draw the other parts count them."""
    for loss in (losses.sampled_softmax_corrected(), losses.nce(), losses.blackout()):
        with pytest.raises(TrainingError, match=r"never draws some items; use 'sampled_softmax'.*'mixed'"):
            Estimator(loss, HalfSettings(), items=N)


def test_a_mixed_draw_names_the_parts_that_do_not_reach_every_item() -> None:
    with pytest.raises(ConfigurationError, match=r"^mined can't draw every item .*add a part that can"):
        samplers.mixed(parts=[samplers.mined()])


def test_a_loss_derived_from_a_blocked_one_is_computed_by_its_own_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The blocked softmax would otherwise stand in for it, wherever candidates are shared."""

    class Doubled(SampledSoftmaxConfig):
        kind: Literal["doubled"] = "doubled"  # type: ignore[assignment]

        def build(self, item_count: int) -> Loss:
            return lambda *batch: 2.0 * sampled_softmax(*batch)

    class Renamed(SampledSoftmaxConfig):
        kind: Literal["renamed"] = "renamed"  # type: ignore[assignment]

    class OfCatalog(FullSoftmaxConfig):
        def build(self) -> Any:
            return None

    uniform = samplers.uniform(negatives=K)
    assert step(Doubled(), uniform) == pytest.approx(2.0 * step(losses.sampled_softmax(), uniform), rel=1e-6)
    assert Renamed.blocked
    assert not OfCatalog.blocked
