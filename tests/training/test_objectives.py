"""Steps of an objective: scores, temperature, log counts, masks, normalisers, weights; softmax in blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log, log1p
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from turret.data.prepared import PreparedData
from turret.tower.config import ScoringConfig
from turret.tower.towers.model import TwoTowers
from turret.training import Estimator, losses, samplers
from turret.training.batches.batches import Batch, TrainingBatches
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.losses.binary import nce
from turret.training.losses.loss import loss, settings_of
from turret.training.losses.sampled import sampled_softmax
from turret.training.model_loss import build_objective, model_loss, seen_items
from turret.training.objectives.blocked import blocked_softmax, tensor_masses_
from turret.training.objectives.contract import Examples, Lesson, SeenItems
from turret.training.objectives.sampled import DrawLossSettings, SampledObjective, candidate_scores
from turret.training.objectives.taught import expected_scores
from turret.training.randomness import stream
from turret.training.run import build_model
from turret.training.samplers.core.contract import Draw, DrawContext, Sampler
from turret.training.samplers.fixed.popularity import UniformConfig

TEMPERATURE = 0.25
RANDOM = torch.manual_seed(0)
USERS = torch.randn(3, 4, generator=RANDOM) / 2.0
VECTORS = torch.randn(8, 4, generator=RANDOM) / 2.0
POSITIVES = torch.tensor([0, 1, 2])


# Log counts so unequal that a wrong place of theirs shows.
LOG_COUNTS = torch.tensor([-3.0, 1.5, -0.5, 2.0, -2.0, 0.7, -4.0, 1.0])
# What is added to them for each example, where they are each example's own.
SHIFTS = torch.tensor([0.0, 2.0, -1.5])
SHARED = torch.tensor([0, 3, 4, 5, 6])
OWN = torch.tensor([[0, 3, 4, 5, 6], [3, 7, 4, 4, 1], [7, 6, 0, 5, 3]])


# Of the first example the items 4 and 6, of the last the item 6.
SEEN = SeenItems.of(torch.tensor([0, 0, 2, 0, 1, 2]), torch.tensor([4, 6, 6, 0, 1, 2]), torch.arange(3))


@dataclass(frozen=True)
class Table:
    vectors: Tensor

    def item_vectors(self, rows: Tensor) -> Tensor:
        return self.vectors[rows]

    def current_vectors(self, rows: Tensor) -> Tensor:
        return self.vectors[rows].detach()

    def catalog_vectors(self) -> Tensor:
        return self.vectors


@dataclass
class Told(Sampler):
    """Draws what it was told, with the counts above or of one, and keeps what it was told of the step."""

    ids: Tensor
    log_counts: Tensor | None = None
    by_example: bool = False
    context: DrawContext | None = None
    query: Tensor = USERS

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        self.query, self.context = query, context
        valid = self.ids != positives.unsqueeze(1)
        if self.log_counts is None:
            return Draw(self.ids, torch.zeros(self.ids.shape), torch.zeros(len(positives)), valid)
        counts = self.log_counts[self.ids]
        counts = counts + SHIFTS[:, None] if self.by_example else counts
        return Draw(self.ids, counts, self.log_counts[positives], valid)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        raise NotImplementedError


def small_examples(vectors: Tensor = VECTORS, seen: SeenItems | None = None) -> Examples:
    scoring = ScoringConfig(kind="dot", temperature=TEMPERATURE)
    table, ones = Table(vectors), torch.ones(3)
    given = Examples(USERS, POSITIVES, vectors[POSITIVES], table, scoring, ones, POSITIVES)
    return replace(given, seen=seen)


def score(example: int, item: int) -> float:
    return float(USERS[example].double() @ VECTORS[item].double()) / TEMPERATURE


def candidates(ids: Tensor, example: int) -> list[int]:
    found: list[int] = (ids if ids.dim() == 1 else ids[example]).tolist()
    return found


def softmax_by_hand(ids: Tensor, hidden: Sequence[set[int]], by_example: bool = False) -> float:
    """The mean of log(exp s_y + sum_j exp(s_j - l_j)) - s_y over candidates that are not `hidden`."""
    total = 0.0
    for example, positive in enumerate(POSITIVES.tolist()):
        own, shift = score(example, positive), float(SHIFTS[example]) if by_example else 0.0
        drawn = [item for item in candidates(ids, example) if item not in hidden[example]]
        sums = (exp(score(example, item) - float(LOG_COUNTS[item]) - shift) for item in drawn)
        total += log(exp(own) + sum(sums)) - own
    return total / 3


def nce_by_hand(ids: Tensor, z: float) -> float:
    """The mean of log(1 + exp(l_y - s_y)) + sum_j log(1 + exp(s_j - l_j)), each score less log Z."""
    total = 0.0
    for example, positive in enumerate(POSITIVES.tolist()):
        total += log1p(exp(float(LOG_COUNTS[positive]) - (score(example, positive) - z)))
        for item in candidates(ids, example):
            total += log1p(exp(score(example, item) - z - float(LOG_COUNTS[item])))
    return total / 3


def ours(kind: DrawLossSettings, ids: Tensor, given: Examples, normaliser: float | None = None) -> Tensor:
    objective = SampledObjective(kind, Told(ids, LOG_COUNTS), 8, given.seen is not None)
    if objective.log_normaliser is not None and normaliser is not None:
        nn.init.constant_(objective.log_normaliser, normaliser)
    result: Tensor = objective(given, stream(0, "draw", 0)).loss
    return result


shared_or_own = pytest.mark.parametrize("ids", [SHARED, OWN], ids=["shared", "own"])


@shared_or_own
@pytest.mark.parametrize("by_example", [False, True])
def test_the_temperature_divides_scores_before_the_log_counts_are_subtracted(
    ids: Tensor, by_example: bool
) -> None:
    """Also where shared candidates have counts of each example, which no block of scores has."""
    told = Told(ids, LOG_COUNTS, by_example)
    found = SampledObjective(settings_of(sampled_softmax)(), told, 8)(small_examples(), no_random())
    assert found.loss.item() == pytest.approx(softmax_by_hand(ids, [{0}, {1}, {2}], by_example), rel=1e-5)


@shared_or_own
def test_the_items_of_the_user_are_masked_and_no_others(ids: Tensor) -> None:
    found = ours(settings_of(sampled_softmax)(), ids, small_examples(seen=SEEN)).item()
    assert found == pytest.approx(softmax_by_hand(ids, [{0, 4, 6}, {1}, {2, 6}]), rel=1e-5)
    assert found != pytest.approx(softmax_by_hand(ids, [{0}, {1}, {2}]), rel=1e-2)


@shared_or_own
def test_a_normaliser_lowers_the_scores_of_positives_and_candidates(ids: Tensor) -> None:
    """Alone from either of them, it would give another loss."""
    found = ours(settings_of(nce)(learned_normaliser=True), ids, small_examples(), 0.7).item()
    assert found == pytest.approx(nce_by_hand(ids, 0.7), rel=1e-5)
    assert found != pytest.approx(nce_by_hand(ids, 0.0), rel=1e-2)


def no_random() -> np.random.Generator:
    return stream(0, "draw", 0)


@pytest.mark.parametrize("size", [2, 400], ids=["gathered", "one product"])
def test_each_example_is_scored_with_its_own_candidates(towers: TwoTowers, size: int) -> None:
    """Value and gradient are those of one inner product after the other, few candidates or many."""
    users = torch.randn(30, 64, generator=torch.manual_seed(0), requires_grad=True)
    ids = torch.randint(0, towers.item.item_count, (30, size), generator=torch.manual_seed(1))
    draw = Draw(ids, torch.zeros(ids.shape), torch.zeros(30), torch.ones(ids.shape, dtype=torch.bool))
    rows, scoring = torch.zeros(30, dtype=torch.int64), towers.config.scoring
    given = Examples(users, rows, towers.item_vectors(rows), towers, scoring, torch.ones(30), rows)
    scores = candidate_scores(given, draw)
    (gradient,) = torch.autograd.grad(scores.sum(), users)
    vectors = towers.item_vectors(ids).detach()
    expected = torch.stack([vectors[b] @ users[b].detach() / 0.07 for b in range(30)])
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradient, vectors.sum(dim=1) / 0.07, rtol=1e-4, atol=1e-3)


def test_a_sampler_is_told_of_the_step(towers: TwoTowers, batch: Batch) -> None:
    """The newest items read, the positives' vectors, and how to encode others; all without a gradient."""
    sampler = Told(torch.tensor([1, 2, 3]))
    model_loss(
        SampledObjective(settings_of(sampled_softmax)(), sampler, 200, mask_seen=False),
        towers,
        batch,
        no_random(),
    )
    context = sampler.context
    assert context is not None
    ends = batch.histories.ends.tolist()
    assert context.last_items.tolist() == [int(batch.histories.rows[end - 1]) for end in ends]
    torch.testing.assert_close(context.positive_vectors, towers.item_vectors(batch.targets).detach())
    torch.testing.assert_close(context.encode(torch.tensor([5])), towers.item_vectors(torch.tensor([5])))
    assert sampler.query.shape == (len(batch.targets), 64)
    assert not sampler.query.requires_grad
    assert not context.positive_vectors.requires_grad
    assert not context.encode(torch.tensor([5])).requires_grad


@pytest.mark.parametrize("removed", [True, False])
def test_hits_are_removed_as_the_setting_says(towers: TwoTowers, batch: Batch, removed: bool) -> None:
    """For every loss that has the setting, also where the softmax is computed in blocks."""
    for kind in ("nce", "sampled_softmax_corrected", "negative_sampling"):
        settings = getattr(losses, kind)(remove_accidental_hits=removed)
        made = SampledObjective(settings, Told(torch.arange(towers.item.item_count)), 200)
        masked = int(model_loss(made, towers, batch, no_random()).masked)
        assert masked == (len(batch.targets) if removed else 0)


def test_known_candidates_are_those_of_the_events_of_the_same_user_in_the_batch(shop: PreparedData) -> None:
    """Shared or each example's own, in any order of examples; every positive is known, and no draw is too."""
    batch = next(TrainingBatches(shop, 200, 10, 8).epoch(stream(0, "order", 0)))
    size, random = len(batch.targets), torch.manual_seed(0)
    read = zip(batch.owners.tolist(), batch.histories.rows.tolist(), strict=True)
    aimed = zip(batch.histories.users.tolist(), batch.targets.tolist(), strict=True)
    events = {*read, *aimed}
    users, rows = batch.histories.users.tolist(), range(len(shop.item_ids))
    expected = torch.tensor([[(user, item) in events for item in rows] for user in users])
    seen = seen_items(batch)
    assert 0 < int(expected.sum()) < expected.numel()
    assert torch.equal(seen.among(torch.arange(len(shop.item_ids))), expected)
    assert expected.gather(1, batch.targets[:, None]).all()
    shared = torch.randint(0, len(shop.item_ids), (150,), generator=random)
    assert torch.equal(seen.among(shared), expected[:, shared])
    own = torch.randint(0, len(shop.item_ids), (size, 150), generator=random)
    assert torch.equal(seen.among(own), expected.gather(1, own))
    several = torch.randint(0, size, (300,), generator=random)
    ids = torch.randint(0, len(shop.item_ids), (300, 20), generator=random)
    assert torch.equal(seen.among(ids, several), expected[several[:, None], ids])
    for one, other in zip(seen.pairs(), expected.nonzero(as_tuple=True), strict=True):
        assert torch.equal(one, other)
    for none in (torch.empty(0, dtype=torch.int64), torch.empty(size, 0, dtype=torch.int64)):
        assert seen.among(none).shape == (size, 0)


@loss("column")
def column(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    return sampled_softmax(positive, drawn, draw)[:, None]


def test_a_loss_of_another_shape_is_named() -> None:
    """A column [B, 1] would otherwise be multiplied with every weight, and the loss be B times too large."""
    estimate = Estimator(settings_of(column)(), samplers.uniform(negatives=4), items=8)
    with pytest.raises(TrainingError, match=r"objective.loss = 'column'.*of the shape \(3, 1\)"):
        estimate(USERS, POSITIVES, VECTORS.__getitem__)


class HalfConfig(UniformConfig):
    """A sampler that never draws some items."""

    covers_catalog: ClassVar[bool] = False


def test_a_loss_that_corrects_positives_is_refused_where_some_are_out_of_reach() -> None:
    """Their log count is minus infinity; in a mixed draw the other parts count them."""
    for corrected in (losses.sampled_softmax_corrected(), losses.nce(), losses.blackout()):
        with pytest.raises(TrainingError, match=r"never draws some items; use 'sampled_softmax'.*'mixed'"):
            Estimator(corrected, HalfConfig(), items=8)


SIGNED = ScoringConfig(kind="dot", temperature=0.3)
ABSOLUTE = ScoringConfig(kind="dot", temperature=0.3, absolute=True)
WEIGHTS = torch.tensor([1.0, 2.0, 0.0, 0.25, 1.0], dtype=torch.float64)
HITS = (torch.tensor([0, 0, 2, 4]), torch.tensor([3, 36, 0, 5]))


def vectors(scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """User vectors [5, 6], candidates [37, 6], and scores of positives [5]."""
    random = torch.Generator().manual_seed(0)
    shapes = ((5, 6), (37, 6), (5,))
    users, items, positive = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes)
    return (users * scale).requires_grad_(), items.requires_grad_(), (positive * scale).requires_grad_()


def plain(
    users: Tensor, items: Tensor, positive: Tensor, counts: Tensor | None, scoring: ScoringConfig
) -> Tensor:
    """The formula, with all scores at once."""
    scores = users @ items.T / 0.3
    if scoring.absolute:
        scores = scores.abs()
    if counts is not None:
        scores = scores - counts
    mask = torch.zeros(scores.shape, dtype=torch.bool)
    mask[HITS] = True
    scores = torch.cat([positive.unsqueeze(1), scores.masked_fill(mask, -torch.inf)], dim=1)
    return ((scores.logsumexp(dim=1) - positive) * WEIGHTS).sum()


COUNTS = torch.linspace(-3.0, 2.0, 37, dtype=torch.float64)


@pytest.mark.parametrize("scoring", [SIGNED, ABSOLUTE], ids=["signed", "absolute"])
@pytest.mark.parametrize("counts", [None, COUNTS], ids=["catalog", "drawn"])
@pytest.mark.parametrize("held", [1, 2 * 37, 10**6])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1000.0])
def test_it_is_the_softmax_of_all_scores(
    scoring: ScoringConfig, counts: Tensor | None, held: int, scale: float
) -> None:
    given = vectors(scale)
    users, items, positive = given
    ours = blocked_softmax(users, positive, WEIGHTS, HITS, items, counts, scoring, held=held)
    theirs = plain(*given, counts, scoring)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    slopes = torch.autograd.grad(2.0 * ours, given), torch.autograd.grad(2.0 * theirs, given)
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_each_example_of_a_window_is_trained_by_the_interest_that_fits_its_target(shop: PreparedData) -> None:
    """The loss is that of the best of the scores of each target, also where examples share a window."""
    user = {"ordered": False, "leave_out": False, "last_item": False, "interests": 3, "dropout": 0.0}
    settings = {"tower": {"dimension": 8, "user": user}, "objective": {"loss": "full_softmax"}}
    experiment = ExperimentConfig.model_validate(settings)
    model = build_model(experiment, shop)
    batch = next(TrainingBatches.of(experiment, shop, 200).epoch(stream(0, "order", 0)))
    objective = build_objective(experiment, shop, torch.device("cpu"))
    out = model_loss(objective, model, batch, stream(0, "draw", 0))

    items = model.catalog_vectors()
    interests = model.user_vectors(batch.histories, items[batch.histories.rows])
    losses = []
    chosen = set()
    for vectors, target in zip(interests, batch.targets.tolist(), strict=True):
        scores = vectors @ items.T / experiment.tower.scoring.temperature
        best = int(scores[:, target].argmax())
        chosen.add(best)
        losses.append(scores[best].logsumexp(dim=0) - scores[best, target])
    assert len(chosen) > 1
    expected = (torch.stack(losses) * batch.weights).sum() / batch.weights.sum()
    torch.testing.assert_close(out.loss, expected, rtol=1e-5, atol=1e-6)


def test_examples_of_one_window_share_the_sum_over_the_catalog(shop: PreparedData) -> None:
    """Loss and gradients are those of cross entropy over all scores, example by example, with weights."""
    user = {"ordered": False, "leave_out": False, "last_item": False, "hidden": [], "dropout": 0.0}
    settings = {"tower": {"dimension": 8, "user": user}, "objective": {"loss": "full_softmax"}}
    experiment = ExperimentConfig.model_validate(settings)
    model = build_model(experiment, shop)
    batch = next(TrainingBatches.of(experiment, shop, 200).epoch(stream(0, "order", 0)))
    batch = replace(batch, weights=torch.rand(len(batch.targets), generator=torch.manual_seed(0)))
    assert len(batch.histories.distinct()[0]) < len(batch.targets) / 3
    objective = build_objective(experiment, shop, torch.device("cpu"))
    out = model_loss(objective, model, batch, stream(0, "draw", 0))

    items = model.catalog_vectors()
    users = model.user_vectors(batch.histories, items[batch.histories.rows])
    scores = users @ items.T / experiment.tower.scoring.temperature
    losses = torch.nn.functional.cross_entropy(scores, batch.targets, reduction="none")
    expected = (losses * batch.weights).sum() / batch.weights.sum()
    torch.testing.assert_close(out.loss, expected, rtol=1e-5, atol=1e-6)
    slopes = [torch.autograd.grad(loss, list(model.parameters())) for loss in (out.loss, expected)]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("held", [1, 2 * 37, 10**6])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1000.0])
def test_the_scores_that_teachers_expect_are_a_mean_under_their_softmax(
    held: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and gradients of both sides, in blocks of any size; the teachers get no gradient."""
    monkeypatch.setattr("turret.training.objectives.taught.HELD", held)
    users, items, _ = vectors(1.0)
    random = torch.Generator().manual_seed(3)
    taught = [
        scale * torch.randn(len(part), 11, generator=random, dtype=torch.float64) for part in (users, items)
    ]
    ours = expected_scores(users, items, WEIGHTS, Lesson(taught[0], taught[1], 0.5))
    theirs = WEIGHTS @ ((taught[0] @ taught[1].T).softmax(dim=1) * (users @ items.T)).sum(dim=1)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    slopes = [torch.autograd.grad(2.0 * value, [users, items]) for value in (ours, theirs)]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mask_known", [False, True], ids=["all", "known masked"])
def test_a_smoothed_label_is_shared_by_all_candidates(shop: PreparedData, mask_known: bool) -> None:
    """Loss and gradients are the cross entropy with the smoothed label, of which masked items get none."""
    smoothing, user = 0.3, {"ordered": False, "leave_out": False, "last_item": False, "dropout": 0.0}
    loss = {"kind": "full_softmax", "smoothing": smoothing}
    settings = {
        "tower": {"dimension": 8, "user": user, "scoring": {"item_bias": True}},
        "objective": {"loss": loss, "mask_known": mask_known},
    }
    experiment = ExperimentConfig.model_validate(settings)
    model = build_model(experiment, shop)
    batch = next(TrainingBatches.of(experiment, shop, 200).epoch(stream(0, "order", 0)))
    batch = replace(batch, weights=torch.rand(len(batch.targets), generator=torch.manual_seed(0)))
    objective = build_objective(experiment, shop, torch.device("cpu"))
    out = model_loss(objective, model, batch, stream(0, "draw", 0))

    items = model.catalog_vectors()
    users = model.user_vectors(batch.histories, items[batch.histories.rows])
    scores = users @ items.T / experiment.tower.scoring.temperature
    is_candidate = torch.ones_like(scores, dtype=torch.bool)
    if mask_known:
        is_candidate = ~seen_items(batch).among(torch.arange(len(items)))
        is_candidate[torch.arange(len(scores)), batch.targets] = True
        assert not is_candidate.all()
    labels = smoothing * is_candidate / is_candidate.sum(dim=1, keepdim=True)
    labels[torch.arange(len(scores)), batch.targets] += 1.0 - smoothing
    logs = scores.masked_fill(~is_candidate, -1e9).log_softmax(dim=1)
    losses = -(labels * logs.masked_fill(~is_candidate, 0.0)).sum(dim=1)
    expected = (losses * batch.weights).sum() / batch.weights.sum()
    torch.testing.assert_close(out.loss, expected, rtol=1e-5, atol=1e-6)
    slopes = [torch.autograd.grad(value, list(model.parameters())) for value in (out.loss, expected)]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_log_counts_keep_their_bits_beside_scores_of_eight(scale: float) -> None:
    """Without the compiled loop, as on a GPU: log Z of bfloat16 scores has the rounding of float32 alone.

    Log counts near -10 in bfloat16 are off by .03 at most, and log Z with them.
    """
    random = torch.Generator().manual_seed(0)
    scores = (torch.randn(300, 701, generator=random) * scale).bfloat16()
    counts, own = torch.randn(701, generator=random) - 10.0, torch.randn(300, generator=random) * scale
    assert (counts.bfloat16().float() - counts).abs().max() > 0.01
    held = scores.double().numpy() - counts.double().numpy()
    tops = np.maximum(held.max(axis=1), own.double().numpy())
    masses = np.exp(held - tops[:, None])
    found, total = tensor_masses_(scores, counts, own)
    assert scores.dtype == torch.bfloat16
    assert found.dtype == total.dtype == torch.float32
    np.testing.assert_allclose(total.log() + found, np.log(masses.sum(axis=1)) + tops, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(scores.float().numpy(), masses, rtol=0.005, atol=1e-37)
