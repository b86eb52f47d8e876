"""The objectives that score the positives with the candidates of a draw, or labelled pairs.

An example with several positives becomes an example for each of them, which knows the others. With
probabilities pi_t of the positives y_t of a user vector, the loss is the sum of pi_t times the loss of y_t. A
softmax keeps the other positives in its sum and masks them in the draw, so that the loss is the cross-entropy
of the distribution pi; a loss that judges candidates one by one leaves them out.
"""

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from turret.tower.kernels.elementwise import gather_rows
from turret.tower.towers.model import cross_scores, paired_scores
from turret.training.errors import TrainingError
from turret.training.objectives.blocked import blocked_softmax
from turret.training.objectives.contract import (
    Examples,
    Loss,
    LossSettings,
    Objective,
    PairLoss,
    StepLoss,
    weighted_mean,
)
from turret.training.samplers.core.contract import Draw, DrawContext, Sampler
from turret.training.samplers.core.settings import BuildContext

# One product with all distinct candidates is faster while there are at most this many times K of them.
MOST_DISTINCT = 32


class DrawLossSettings(LossSettings, ABC):
    """The registry entry of a loss over a draw; a subclass builds the function of scores."""

    @abstractmethod
    def build(self, item_count: int) -> Loss:
        """Build the loss for a catalog of N = `item_count`."""

    def objective(self, context: BuildContext, sampler: Sampler | None) -> Objective:
        """Build the objective over the draws of `sampler`."""
        assert sampler is not None, "config.experiment refuses a loss over a draw without one"
        return SampledObjective(self, sampler, context.item_count, context.mask_seen)


class HitSettings(DrawLossSettings, ABC):
    """A loss whose sources differ on accidental hits: candidates that are the example's own positive."""

    remove_accidental_hits: bool = True

    @property
    def keeps_hits(self) -> bool:
        return not self.remove_accidental_hits


class SampledObjective(Objective):
    """A loss over the draw of a sampler.

    If the loss has a `learned_normaliser`, that constant is subtracted from the scores (Mnih & Teh 2012,
    section 3).
    """

    merges = True

    def __init__(
        self, loss: DrawLossSettings, sampler: Sampler, item_count: int, mask_seen: bool = False
    ) -> None:
        super().__init__()
        self.settings = loss
        self.loss = loss.build(item_count)
        self.sampler: Sampler = sampler
        self.mask_seen = mask_seen
        self.log_normaliser = None
        if getattr(loss, "learned_normaliser", False):
            self.log_normaliser = nn.Parameter(torch.zeros(()))

    def forward(self, examples: Examples, random: np.random.Generator) -> StepLoss:
        """The loss of a step over candidates drawn with `random`."""
        draw = self._draw(examples, random)
        masked_count = draw.masked_count
        positive = paired_scores(examples.users, examples.positive_vectors, examples.scoring)
        # Counts that differ between examples are subtracted from a matrix of scores.
        shared = draw.ids.dim() == draw.log_count.dim() == 1
        if self.settings.blocked and shared and not self.sampler.observes_scores:
            return self._blocked(examples, positive, draw)
        drawn = candidate_scores(examples, draw)
        if self.sampler.observes_scores:
            self.sampler.observe(draw, positive.detach(), drawn.detach())
        if self.log_normaliser is not None:
            positive, drawn = positive - self.log_normaliser, drawn - self.log_normaliser
        if examples.others is not None and self.settings.other_positives != "masked":
            corrected = self.settings.other_positives == "corrected"
            drawn, draw = with_other_positives(positive, drawn, draw, examples, corrected)
        losses = self.loss(positive, drawn, draw)
        if losses.shape != positive.shape:
            # A column [B, 1] would be multiplied with every weight.
            raise TrainingError(
                f"objective.loss = {self.settings.kind!r} returned {described(losses)}, and the losses of "
                f"{len(positive)} examples have the shape ({len(positive)},); return a number for each."
            )
        weights = examples.weights
        return StepLoss(weighted_mean(losses, weights), masked_count, weights.sum())

    def _blocked(self, examples: Examples, positive: Tensor, draw: Draw) -> StepLoss:
        """A softmax over candidates that the batch shares."""
        if self.settings.needs_probabilities:
            positive = positive - draw.positive_log_count
        hits = (~draw.valid).nonzero(as_tuple=True)
        shares = examples.shares
        # The log of the mass of all positives of the example, which is in the softmax for every draw.
        known = positive if examples.others is None else log_mass(positive, examples.others)
        vectors = _shared_vectors(examples, draw.ids, draw.stored)
        loss = blocked_softmax(
            examples.users,
            known,
            shares,
            (hits[0], hits[1]),
            vectors,
            draw.log_count,
            examples.scoring,
            self.products,
        )
        masked = examples.positives.new_tensor(len(hits[0]))
        return StepLoss(loss + shares @ (known - positive), masked, examples.weights.sum())

    def _draw(self, examples: Examples, random: np.random.Generator) -> Draw:
        """The candidates of a step, with those masked that the loss leaves out."""
        users, positives = examples.users.detach(), examples.positive_vectors.detach()
        context = DrawContext(
            random,
            examples.last_items,
            positives.float(),
            examples.items.current_vectors,
            examples.negatives,
            examples.gathered,
        )
        # Expected counts need float32, also where autocast computes the towers in bfloat16.
        with torch.autocast(users.device.type, enabled=False):
            draw = self.sampler.draw(users.float(), examples.positives, context)
        if examples.propensities is not None:
            draw = replace(draw, propensities=examples.propensities)
        if examples.seen is not None:
            draw = replace(draw, valid=draw.valid & ~examples.seen.among(draw.ids))
        if self.settings.keeps_hits:
            if examples.others is not None and draw.held is not None:
                raise TrainingError(
                    f"objective.loss = {self.settings.kind!r} counts accidental hits, and candidates from "
                    "the batch hold all positives of an example for certain; use samplers.uniform, or "
                    "remove_accidental_hits = true."
                )
            return draw.keeping_hits(examples.positives)
        return draw if examples.others is None else without_other_positives(draw, examples)


def described(value: Tensor) -> str:
    """The type and shape of a tensor."""
    return f"a {str(value.dtype).removeprefix('torch.')} tensor of the shape {tuple(value.shape)}"


def candidate_scores(examples: Examples, draw: Draw) -> Tensor:
    """The scores of the examples' user vectors with a draw's candidates: [B, K]."""
    if draw.ids.dim() == 2 and not draw.shared:
        return own_scores(examples, draw.ids)
    ids = draw.ids if draw.ids.dim() == 1 else draw.ids[0, : draw.shared]
    vectors = _shared_vectors(examples, ids, draw.stored)
    shared = cross_scores(examples.users, vectors, examples.scoring)
    if draw.ids.dim() == 1:
        return shared
    return torch.cat([shared, own_scores(examples, draw.ids[:, draw.shared :])], dim=1)


def own_scores(examples: Examples, ids: Tensor) -> Tensor:
    """The scores of each user with its own candidates `ids` [B, K]: [B, K]."""
    distinct, positions = torch.unique(ids, return_inverse=True)
    vectors = examples.items.item_vectors(distinct)
    # One product with all distinct candidates, of which each example takes its own, beats B x K x D gathered
    # floats as long as the candidates repeat often enough.
    if len(distinct) <= MOST_DISTINCT * ids.shape[1]:
        return cross_scores(examples.users, vectors, examples.scoring).gather(1, positions)
    return cross_scores(examples.users, gather_rows(vectors, positions), examples.scoring)


def _shared_vectors(examples: Examples, ids: Tensor, stored: Tensor | None) -> Tensor:
    """The vectors [K, D] of `ids` [K], of which the last may be `stored`."""
    if stored is None:
        return examples.items.item_vectors(ids)
    return torch.cat([examples.items.item_vectors(ids[: len(ids) - len(stored)]), stored])


class PairsObjective(Objective):
    """The weighted mean of a pair loss over B positives with label 1 and their M negatives with label 0.

    A negative is judged by the user vector of the example that it was given with.
    """

    merges = True

    def __init__(self, loss: PairLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, examples: Examples, random: np.random.Generator) -> StepLoss:
        """The loss of a step; nothing is drawn and nothing is masked."""
        assert examples.negatives is not None, "build_objective refuses data without negatives"
        assert examples.negative_weights is not None
        present = examples.negatives >= 0
        owners, rows = present.nonzero(as_tuple=True)[0], examples.negatives[present]
        users = torch.cat([examples.users, gather_rows(examples.users, owners)])
        items = torch.cat([examples.positive_vectors, examples.items.item_vectors(rows)])
        labels = torch.arange(len(users), device=users.device) < len(examples.positives)
        losses = self.loss(paired_scores(users, items, examples.scoring), labels)
        weights = torch.cat([examples.weights, examples.negative_weights[present]])
        masked = examples.positives.new_zeros(())
        return StepLoss(weighted_mean(losses, weights), masked, weights.sum())


# The probabilities of a user vector may sum to 1 within this error, as some are rounded to bfloat16.
MOST_ROUNDED = 0.01


def one_for_each_positive(batch: Examples, targets: Tensor | None) -> tuple[Examples, Tensor]:
    """One example for each positive of a probability above zero, which is a factor of its weight.

    Args:
        batch: examples with positives int64 [B, T], whose vectors are not read.
        targets: [B, T], the probability of each, zero where a row has fewer than T positives; None for 1 / T.

    Returns:
        The M examples, and int64 [M], ascending, the user vector of each.

    Raises:
        TrainingError: shapes that do not fit, a negative probability, a row whose probabilities do not sum to
            one, or an item that a row has twice.
    """
    positives = batch.positives
    if targets is None:
        targets = torch.full(positives.shape, 1.0 / max(positives.shape[1], 1), device=positives.device)
    _check(positives, targets)
    present = targets > 0.0
    owners, columns = present.nonzero(as_tuple=True)
    numbers = torch.full(positives.shape, -1, device=positives.device)
    numbers[present] = torch.arange(len(owners), device=positives.device)
    size = positives.shape[1]
    # A line of `rest` has all columns but its own.
    rest = torch.arange(size - 1, device=positives.device).expand(size, -1)
    rest = rest + (rest >= torch.arange(size, device=positives.device).unsqueeze(1))
    examples = replace(
        batch,
        users=gather_rows(batch.users, owners),
        positives=positives[present],
        weights=batch.weights[owners] * targets[present].to(batch.weights),
        last_items=None if batch.last_items is None else batch.last_items[owners],
        propensities=None if batch.propensities is None else batch.propensities[owners],
        others=numbers[owners].gather(1, rest[columns]),
        negatives=None if batch.negatives is None else batch.negatives[owners],
    )
    return examples, owners


def _check(positives: Tensor, targets: Tensor) -> None:
    if positives.shape != targets.shape:
        raise TrainingError(
            f"positives of shape {tuple(positives.shape)} and targets of shape {tuple(targets.shape)} don't "
            "fit each other; give [B, T] and [B, T]."
        )
    if not (targets >= 0.0).all():
        raise TrainingError("targets has a negative or missing probability; give numbers of at least zero.")
    sums = targets.float().sum(dim=1)
    wrong = (sums - 1.0).abs() > MOST_ROUNDED
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise TrainingError(
            f"row {row} of targets sums to {float(sums[row]):g}, and probabilities sum to 1; divide the row "
            "by its sum, put the rest into weights, and leave out a user vector without a positive."
        )
    # Absent positives get negative rows, which differ from each other.
    absent = -1 - torch.arange(positives.shape[1], device=positives.device)
    ordered = torch.where(targets > 0.0, positives, absent).sort(dim=1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(dim=1)
    if twice.any():
        raise TrainingError(
            f"row {int(twice.nonzero()[0])} of positives has an item twice; give it once, with the sum of "
            "its probabilities in targets."
        )


def without_other_positives(draw: Draw, examples: Examples) -> Draw:
    """The draw with every positive of an example's user vector masked."""
    assert examples.others is not None
    valid = draw.valid.clone()
    for other in examples.others.T:
        items = examples.positives[other].masked_fill(other < 0, -1)
        valid &= draw.ids != items.unsqueeze(1)
    return replace(draw, valid=valid)


def with_other_positives(
    positive: Tensor, drawn: Tensor, draw: Draw, examples: Examples, corrected: bool
) -> tuple[Tensor, Draw]:
    """Scores [B, K + T] and draw with the other positives as candidates that are there for certain.

    `corrected` gives them their own expected counts, as the positive has.
    """
    others = examples.others
    assert others is not None
    counts = draw.positive_log_count if corrected else torch.zeros_like(draw.positive_log_count)
    together = replace(
        draw,
        ids=torch.cat([draw.ids.expand(len(others), -1), examples.positives[others]], dim=1),
        log_count=torch.cat([draw.log_count.expand(len(others), -1), counts[others]], dim=1),
        valid=torch.cat([draw.valid, others >= 0], dim=1),
    )
    return torch.cat([drawn, positive[others]], dim=1), together


def log_mass(positive: Tensor, others: Tensor) -> Tensor:
    """log of the sum of exp s over the example's positive and the others: [B]."""
    rest = positive[others].masked_fill(others < 0, float("-inf"))
    return torch.cat([positive.unsqueeze(1), rest], dim=1).logsumexp(dim=1)
