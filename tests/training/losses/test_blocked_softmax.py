import itertools

import pytest
import torch
from torch import Tensor

from tower.config import ScoringConfig
from tower.scoring import cross_scores
from training.losses.blocked_softmax import blocked_softmax
from training.losses.full_softmax import full_softmax

SIGNED = ScoringConfig(kind="dot", temperature=0.3)
ABSOLUTE = ScoringConfig(kind="dot", temperature=0.3, absolute=True)
POSITIVES = torch.tensor([0, 3, 36, 3])


def vectors(scale: float = 1.0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    users = torch.randn(4, 5, generator=random, dtype=torch.float64) * scale
    items = torch.randn(37, 5, generator=random, dtype=torch.float64)
    return users.requires_grad_(), items.requires_grad_()


def results(blocked: int | None, scoring: ScoringConfig, scale: float = 1.0) -> list[Tensor]:
    """The losses and both gradients, under slopes that differ; None for the plain form."""
    users, items = vectors(scale)
    if blocked is None:
        losses = full_softmax(cross_scores(users, items, scoring), POSITIVES)
    else:
        losses = blocked_softmax(users, items, POSITIVES, scoring, blocked)
    slopes = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    return [losses.detach(), *torch.autograd.grad((losses * slopes).sum(), (users, items))]


@pytest.mark.parametrize("scoring", [SIGNED, ABSOLUTE], ids=["signed", "absolute"])
@pytest.mark.parametrize("held", [1, 4 * 10, 4 * 37, 10**6])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1000.0])
def test_it_is_the_plain_full_softmax(scoring: ScoringConfig, held: int, scale: float) -> None:
    """Losses and gradients, whatever the block; with scores in the thousands too."""
    for ours, plain in zip(results(held, scoring, scale), results(None, scoring, scale), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)


def test_gradients_are_finite_differences() -> None:
    users, items = vectors()
    assert torch.autograd.gradcheck(lambda u, i: blocked_softmax(u, i, POSITIVES, SIGNED, 40), (users, items))


def test_no_more_scores_are_held_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the way forward nor back."""
    seen: list[int] = []

    def watched(users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
        scores = cross_scores(users, items, scoring)
        seen.append(scores.numel())
        return scores

    monkeypatch.setattr("training.losses.blocked_softmax.cross_scores", watched)
    results(40, SIGNED)
    assert max(seen) == 40
    assert list(itertools.accumulate(seen))[-1] == 2 * 4 * 37
