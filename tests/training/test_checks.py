"""`check_loss` and `check_sampler`: every kind passes, and each fault ends in a sentence."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor

from tests.contracts.samplers import context_of, sampler_of
from turret.training import check_loss, check_sampler, losses, samplers
from turret.training.errors import TrainingError
from turret.training.losses.catalog import full_softmax
from turret.training.losses.loss import settings_of
from turret.training.losses.pairwise import ranking
from turret.training.losses.registry import LOSSES
from turret.training.losses.sampled import sampled_softmax, standard_importance
from turret.training.losses.terms import masked
from turret.training.objectives.contract import Loss, PairLoss
from turret.training.objectives.sampled import DrawLossSettings
from turret.training.samplers.core.contract import CountingSampler, DrawContext, Encode, Sampler, State
from turret.training.samplers.core.draw import Draw
from turret.training.samplers.core.settings import SamplerContext, SamplerSettings
from turret.training.samplers.fixed.popularity import UnigramConfig
from turret.training.samplers.kernel.quadratic import QuadraticConfig, QuadraticSampler
from turret.training.samplers.kernel.sums import TensorSums
from turret.training.samplers.registry import SAMPLERS

LOSS_VARIANTS = [
    losses.hierarchical_softmax(clusters=4),
    losses.hierarchical_softmax(tree="huffman"),
    losses.scalable_cross_entropy(buckets=16, bucket_examples=8, bucket_items=6),
    losses.nce(learned_normaliser=True),
    losses.nce(learned_normaliser="context", remove_accidental_hits=True),
    losses.ranking(delta="complementary_sum"),
    losses.gbce(t=1.0),
]


@pytest.mark.parametrize("loss", [*LOSSES, *LOSS_VARIANTS], ids=str)
def test_every_loss_passes(loss: Any) -> None:
    """The weight of refined logQ stands still in its gradient, by its definition."""
    check_loss(loss, detached=loss == "refined_logq")


def test_no_two_kinds_are_the_same_loss() -> None:
    """On one batch all values differ, so no name stands for another's function."""
    positive, drawn = torch.tensor([0.3, -1.0]), torch.tensor([[0.5, 1.0, -0.2], [0.1, -0.4, 2.0]])
    draw = Draw(torch.arange(3), torch.tensor([0.2, -1.0, 0.7]), torch.tensor([-0.5, 0.4]), drawn < 2.0)
    values: dict[tuple[float, ...], str] = {}
    for kind, settings in LOSSES.items():
        if issubclass(settings, DrawLossSettings):
            found = tuple(settings(kind=kind).build(40)(positive, drawn, draw).tolist())
            assert found not in values, (kind, values[found])
            values[found] = kind


class OnTensors(QuadraticConfig):
    """The quadratic sampler as it is on a GPU, but for the device."""

    def build(self, context: SamplerContext) -> Sampler:
        sampler = super().build(context)
        assert isinstance(sampler, QuadraticSampler)
        sampler.snapshot.make_sums = lambda rows, width: TensorSums(rows, width, self.alpha, context.device)
        return sampler


# One of each kind, sized so that a few hundred draws tell its distribution, and its variants.
SAMPLER_VARIANTS = [
    samplers.uniform(negatives=50),
    samplers.uniform(negatives=50, exclude_positive=True),
    samplers.log_uniform(negatives=50),
    samplers.log_uniform(negatives=50, exclude_positive=True),
    samplers.log_uniform(negatives=5, unique=True),
    samplers.unigram(negatives=50),
    samplers.unigram(negatives=50, exclude_positive=True),
    samplers.unigram(negatives=10, exclude_positive=True, spare=4),
    samplers.bigram(negatives=50, backoff=3.0),
    samplers.adaptive_ngram(negatives=50, publish_every=2),
    samplers.bernoulli(negatives=5),
    samplers.exact_head(negatives=6, exact=3),
    samplers.in_batch(),
    samplers.in_batch(unique=True),
    samplers.cross_batch(batches=2),
    samplers.mined(negatives=5, refresh_every=3),
    samplers.quadratic(negatives=50, alpha=5.0, refresh_every=3),
    samplers.quadratic(negatives=50, alpha=5.0, exclude_positive=True),
    samplers.quadratic(negatives=50, alpha=5.0, per="batch"),
    OnTensors(negatives=50, alpha=5.0, refresh_every=3),
    samplers.quartic(negatives=50, refresh_every=3),
    samplers.quartic(negatives=50, exclude_positive=True),
    samplers.softmax(negatives=50, refresh_every=3),
    samplers.softmax(negatives=50, exclude_positive=True),
    samplers.positive_features(negatives=50, features=24, sharpness=1.0, refresh_every=3),
    samplers.fourier_features(negatives=50, features=24, refresh_every=3),
    samplers.two_pass(negatives=6, pool=40),
    samplers.mixed(parts=[samplers.in_batch(), samplers.uniform(negatives=50)]),
    samplers.mixed(
        parts=[
            samplers.cross_batch(batches=1),
            samplers.mined(negatives=4, refresh_every=3),
            samplers.unigram(negatives=20),
        ]
    ),
]


@pytest.mark.parametrize("settings", SAMPLER_VARIANTS, ids=lambda one: str(one)[5:60])
def test_every_sampler_passes(settings: SamplerSettings) -> None:
    """`quadratic` takes seconds where its draws are not in numba's cache: they are compiled here."""
    check_sampler(settings)


def test_every_kind_of_sampler_is_checked() -> None:
    """A kind's name stands for its defaults."""
    assert {settings.kind for settings in SAMPLER_VARIANTS} == SAMPLERS.keys()
    check_sampler("softmax")


@pytest.mark.parametrize("kind", [kind for kind, settings in SAMPLERS.items() if settings.alone])
@pytest.mark.parametrize("row", [-1, 5])
def test_positives_outside_the_catalog_are_refused(kind: str, row: int) -> None:
    """The row is named; -1 does not silently mean the last item."""
    positives = torch.tensor([3, row])
    sampler = sampler_of(SAMPLERS[kind](kind=kind), items=5)
    sampler.refresh(torch.ones(5, 4))
    with pytest.raises(TrainingError, match=rf"item row {row}, .*0 to 4"):
        sampler.draw(torch.ones(2, 4), positives, context_of(torch.tensor([3, 3]), torch.ones(5, 4)))


class GivenLoss(DrawLossSettings):
    """A function that a test gives."""

    function: ClassVar[Any] = None
    pairs: ClassVar[PairLoss | None] = None
    kind: Literal["given"] = "given"

    def build(self, item_count: int) -> Loss:
        loss: Loss = type(self).function
        return loss

    def pair_loss(self) -> PairLoss | None:
        return type(self).pairs


def averaged(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    return sampled_softmax(positive, drawn, draw) * (1.0 + positive.detach().mean().sigmoid())


def emptied(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    drawn.data.mul_(1.0000001)
    return sampled_softmax(positive, drawn, draw)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda *batch: sampled_softmax(*batch).mean(), r"not one number of torch\.float64 for each of 5"),
        (lambda *batch: sampled_softmax(*batch).float(), r"not one number of torch\.float64"),
        (lambda p, d, draw: (d.exp() * draw.valid).sum(1).log1p() - p, "a masked candidate with a score of"),
        (lambda p, d, draw: standard_importance(p, d, draw) + d[:, 0], "masked candidates get a gradient"),
        (lambda p, d, draw: masked(d, draw).logsumexp(1) - p, "not finite"),
        (lambda p, d, draw: masked(d, draw).exp().sum(1).log1p() - p, "scores of 10,000 have a|10,000 has a"),
        (lambda p, d, draw: ranking(-p, d, draw, delta=0.0), "a higher score of the positive raises"),
        (lambda p, d, draw: sampled_softmax(p - draw.positive_log_count, d, draw), "say needs_probabilities"),
        (averaged, "an example alone differs"),
        (lambda p, d, draw: sampled_softmax(p, d, draw) + 0 * torch.rand(()) + torch.rand(()), "two calls"),
        (emptied, "it changes its arguments|two calls"),
        (lambda p, d, draw: sampled_softmax(p, d, draw) - p + p.detach(), "not that of finite differences"),
        (lambda p, d, draw: sampled_softmax(p, d, draw).clamp(max=0.0), "no finite gradient"),
    ],
)
def test_what_is_wrong_with_a_loss_is_said(
    function: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GivenLoss, "function", staticmethod(function))
    with pytest.raises(AssertionError, match=f"^the loss 'given': .*({sentence})"):
        check_loss(GivenLoss())


def test_a_loss_of_pairs_falls_with_the_scores_of_those_that_belong_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GivenLoss, "function", staticmethod(sampled_softmax))
    monkeypatch.setattr(GivenLoss, "pairs", staticmethod(lambda scores, positive: scores.sigmoid()))
    with pytest.raises(AssertionError, match="pair of label 1 rises"):
        check_loss(GivenLoss())


def test_a_loss_that_is_not_computed_by_its_own_function_is_named() -> None:
    """A subclass of a blocked loss that says so itself, with another function."""

    class Doubled(settings_of(sampled_softmax)):  # type: ignore[misc] # a class that a decorator makes
        blocked: ClassVar[bool] = True

        def build(self, item_count: int = 0) -> Loss:
            return lambda *batch: 2.0 * sampled_softmax(*batch)

    with pytest.raises(AssertionError, match="weighted mean of what build returns; say blocked = False"):
        check_loss(Doubled())


def at(scores: Tensor, positives: Tensor) -> Tensor:
    return scores.gather(1, positives[:, None])[:, 0]


def loss_at(scores: Tensor, positives: Tensor) -> Tensor:
    return scores.logsumexp(1) - at(scores, positives)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda scores, own: scores.logsumexp(1) - scores[:, 0], "the order of the items matters"),
        (lambda scores, own: scores.logsumexp(1) - scores.mean(1), "minus infinity|a higher score"),
        (lambda scores, own: scores.exp().sum(1).log() - at(scores, own), "scores of 10,000"),
        (lambda scores, own: loss_at(scores, own) + at(scores, own).detach().mean(), "alone differs"),
        (lambda scores, own: scores.logsumexp(1) + at(scores, own), "a higher score of the positive"),
        (lambda scores, own: scores.detach().logsumexp(1) - at(scores, own), "finite differences"),
    ],
)
def test_what_is_wrong_with_a_loss_over_the_catalog_is_said(function: Any, sentence: str) -> None:
    class Given(settings_of(full_softmax)):  # type: ignore[misc] # as above
        def build(self, item_count: int = 0) -> Any:
            return function

    with pytest.raises(AssertionError, match=f"^the loss 'full_softmax': .*({sentence})"):
        check_loss(Given())


class Wrapped(CountingSampler):
    """A sampler that a test changes."""

    def __init__(self, sampler: Sampler) -> None:
        assert isinstance(sampler, CountingSampler)
        self.sampler = sampler

    @property
    def holds_vectors(self) -> bool:
        return self.sampler.holds_vectors

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        return self.sampler.draw(query, positives, context)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        return self.sampler.probability(query, context)

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        return self.sampler.log_expected(query, positives, ids)

    def refresh(self, item_vectors: Tensor) -> None:
        self.sampler.refresh(item_vectors)

    def update(self, encode: Encode) -> None:
        self.sampler.update(encode)

    def state(self) -> State:
        return self.sampler.state()

    def restore(self, state: State) -> None:
        self.sampler.restore(state)


class DrawsByUnigram(UnigramConfig):
    """Unigram draws with a change."""

    wrapper: ClassVar[type[Wrapped]] = Wrapped
    negatives: int = 50

    def build(self, context: SamplerContext) -> Sampler:
        return type(self).wrapper(super().build(context))


class DrawsByVectors(QuadraticConfig):
    """Quadratic draws with a change."""

    wrapper: ClassVar[type[Wrapped]] = Wrapped
    negatives: int = 50
    alpha: float = 5.0
    refresh_every: int = 3

    def build(self, context: SamplerContext) -> Sampler:
        return type(self).wrapper(super().build(context))


def changed(change: Callable[[Draw, Tensor], Draw]) -> type[Wrapped]:
    """A sampler whose draws are changed, knowing the positives."""

    class Changed(Wrapped):
        def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
            return change(super().draw(query, positives, context), positives)

    return Changed


def without(method: str) -> type[Wrapped]:
    """A sampler one of whose methods does nothing."""
    return type("Without", (Wrapped,), {method: lambda *given: None})


class Lopsided(Wrapped):
    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        q = super().probability(query, context)
        return 1.1 * q


class Even(Wrapped):
    """Says that it draws evenly; its counts are right."""

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        return torch.full_like(super().probability(query, context), 0.05)


class Overcounted(Wrapped):
    """Expects everything a fifth too often."""

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        draw = super().draw(query, positives, context)
        return replace(draw, log_count=draw.log_count + 0.2, positive_log_count=draw.positive_log_count + 0.2)

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        return super().log_expected(query, positives, ids) + 0.2


def of_global_random(draw: Draw, positives: Tensor) -> Draw:
    return replace(draw, log_count=draw.log_count + torch.rand(()))


@pytest.mark.parametrize(
    ("wrapper", "sentence"),
    [
        (changed(lambda draw, _: replace(draw, valid=draw.valid[0])), "valid"),
        (changed(lambda draw, _: replace(draw, ids=draw.ids + 20)), "rows outside of 0 to 19"),
        (changed(lambda draw, _: replace(draw, valid=draw.valid | True)), "positive is not masked"),
        (
            changed(lambda draw, _: replace(draw, valid=draw.valid & False)),
            "it masks candidates",
        ),
        (
            changed(lambda draw, _: replace(draw, log_count=draw.log_count + 0.2)),
            "log_expected has other counts than the draw",
        ),
        (Overcounted, "item 0 weighs 0.8.* in the estimated sum"),
        (changed(of_global_random), "draw with context.random alone"),
        (
            changed(lambda draw, _: replace(draw, positive_log_count=draw.positive_log_count + 0.1)),
            "counts of positives than the draw",
        ),
        (Lopsided, "do not sum to one"),
        (Even, "draws do not follow `probability`"),
    ],
)
def test_what_is_wrong_with_a_sampler_is_said(
    wrapper: type[Wrapped], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DrawsByUnigram, "wrapper", wrapper)
    with pytest.raises(AssertionError, match=f"^the sampler 'unigram': .*{sentence}"):
        check_sampler(DrawsByUnigram())


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("update", "3 updates do not come to the same as a refresh"),
        ("refresh", "call refresh"),
        ("restore", "a restored state draws otherwise|call refresh"),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_said(
    method: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DrawsByVectors, "wrapper", without(method))
    with pytest.raises(AssertionError, match=f"^the sampler 'quadratic': .*({sentence})"):
        check_sampler(DrawsByVectors())


def test_a_sampler_is_as_symmetric_as_its_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DrawsByUnigram, "symmetric", False)
    with pytest.raises(AssertionError, match="symmetric is False, and h and -h have the same probabilities"):
        check_sampler(DrawsByUnigram())
