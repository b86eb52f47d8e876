"""Examples with several positives: each is an example of its own, which knows the others.

With probabilities pi_t of the positives y_t of a user vector, the loss is the sum of pi_t times that of y_t.
In a softmax the other positives are terms that are known: kept in the sum and masked in the draw, so that the
loss is the cross-entropy of the distribution pi: with pi_t = 1 / T that of `num_true` of TensorFlow's
`sampled_softmax_loss`. A loss that judges candidates one by one leaves them out, whereas TensorFlow's
`nce_loss` counts each positive as a negative too, with the weight 1 - 1 / T.
"""

from dataclasses import replace

import torch
from torch import Tensor

from turret.tower.layers.packed import gather_rows
from turret.training.errors import TrainingError
from turret.training.objectives.contract import Examples
from turret.training.samplers.core.contract import Draw

# How far the probabilities of a user vector may be from 1: some are rounded to bfloat16.
MOST_ROUNDED = 0.01


def one_for_each_positive(given: Examples, targets: Tensor | None) -> tuple[Examples, Tensor]:
    """One example for each positive of a probability above zero, which is a factor of its weight.

    Args:
        given: with positives int64 [B, T]; its vectors of positives are not read.
        targets: [B, T], the probability of each, zero where a row has fewer than T positives; None for 1 / T.

    Returns:
        The M examples, and int64 [M], ascending, the user vector of each.

    Raises:
        TrainingError: shapes that do not fit, a negative probability, a row whose probabilities do not sum to
            one, or an item that a row has twice.
    """
    positives = given.positives
    if targets is None:
        targets = torch.full(positives.shape, 1.0 / max(positives.shape[1], 1), device=positives.device)
    _check(positives, targets)
    present = targets > 0.0
    owners, columns = present.nonzero(as_tuple=True)
    numbers = torch.full(positives.shape, -1, device=positives.device)
    numbers[present] = torch.arange(len(owners), device=positives.device)
    size = positives.shape[1]
    # Of each column all columns but itself.
    rest = torch.arange(size - 1, device=positives.device).expand(size, -1)
    rest = rest + (rest >= torch.arange(size, device=positives.device).unsqueeze(1))
    examples = replace(
        given,
        users=gather_rows(given.users, owners),
        positives=positives[present],
        weights=given.weights[owners] * targets[present].to(given.weights),
        last_items=None if given.last_items is None else given.last_items[owners],
        others=numbers[owners].gather(1, rest[columns]),
        negatives=None if given.negatives is None else given.negatives[owners],
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
    # Absent positives get rows of their own below zero, which differ from each other.
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


def log_mass(positive: Tensor, others: Tensor | None) -> Tensor:
    """log of the sum of exp s over the example's positive and the others: [B]."""
    if others is None:
        return positive
    rest = positive[others].masked_fill(others < 0, float("-inf"))
    return torch.cat([positive.unsqueeze(1), rest], dim=1).logsumexp(dim=1)
