"""Draws: candidates, their log expected counts, and which of them count."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draw:
    """Candidates with their log expected counts.

    Attributes:
        ids: int64 [K], shared by the batch, or [B, K].
        log_count: float [K] or [B, K], the log of the *expected number of times* the candidate appears in
            the draw: log(K q) when drawn with replacement, the log of the inclusion probability when unique,
            the log of the added counts in a union of draws.
        positive_log_count: float [B], the same for each example's positive; minus infinity where the draw
            leaves it out.
        valid: bool [B, K], False where a candidate is masked: the example's own positive, and items that its
            user has used.
        stored: float [S, D], vectors of the last S of the shared candidates, for scoring them without another
            pass through the item tower: those that they had in an earlier step, which no gradient reaches, or
            those that other processes have computed in this one.
        held: int64 [M] each, example and column of the candidates that are there because the example has them
            as its positive, as each example's own place in a batch; the expected counts are of all others.
        shared: of [B, K] `ids`, how many of the first are the same for every example, for scoring them by one
            product; all of [K] `ids` are.
    """

    ids: Tensor
    log_count: Tensor
    positive_log_count: Tensor
    valid: Tensor
    stored: Tensor | None = None
    held: tuple[Tensor, Tensor] | None = None
    shared: int = 0

    @property
    def masked_count(self) -> Tensor:
        """How many candidates of the batch were masked, an int64 scalar."""
        return (~self.valid).sum()

    def keeping_hits(self, positives: Tensor) -> "Draw":
        """The same draw in which candidates that are the positive of their example [B] count, unless held."""
        valid = self.valid | (self.ids == positives.unsqueeze(1))
        if self.held is not None:
            valid[self.held] = False
        return replace(self, valid=valid)


def without_accidental_hits(ids: Tensor, positives: Tensor) -> Tensor:
    """The mask [B, K] that is False where a candidate of `ids` ([K] or [B, K]) is the example's positive."""
    return ids != positives.unsqueeze(1)


def drawn_with_replacement(ids: Tensor, log_q: Tensor, positives: Tensor) -> Draw:
    """The draw of K shared candidates `ids` from the proposal whose log probabilities are `log_q` [N]."""
    log_size = math.log(len(ids))
    return Draw(
        ids=ids,
        log_count=log_q[ids] + log_size,
        positive_log_count=log_q[positives] + log_size,
        valid=without_accidental_hits(ids, positives),
    )


def drawn_by_example(ids: Tensor, log_q: Tensor, positive_log_q: Tensor, positives: Tensor) -> Draw:
    """The draw of K candidates for each example, with replacement and from a proposal of its own.

    Args:
        ids: int64 [B, K].
        log_q: [B, K], the log probability of each candidate under its example's proposal.
        positive_log_q: [B], that of each positive; minus infinity where the proposal leaves it out.
        positives: int64 [B].
    """
    log_size = math.log(ids.shape[1])
    return Draw(
        ids=ids,
        log_count=log_q + log_size,
        positive_log_count=positive_log_q + log_size,
        valid=without_accidental_hits(ids, positives),
    )


def relative(log_weights: Tensor) -> Tensor:
    """Shift log weights [B, N] in place so that the greatest of each row is zero."""
    return log_weights.sub_(log_weights.amax(dim=1, keepdim=True))


def invert(ends: Tensor, uniform: Tensor) -> Tensor:
    """The columns int64 [B, K] at shares `uniform` [B, K], in [0, 1), of running sums `ends` float64 [B, N].

    A column of mass zero is never drawn.
    """
    totals = ends[:, -1:]
    # Rounding must not carry a position to the end, behind the last item that has a weight.
    positions = torch.minimum(uniform * totals, torch.nextafter(totals, torch.zeros_like(totals)))
    return torch.searchsorted(ends, positions, right=True).clamp(max=ends.shape[1] - 1)


def draw_by_inversion(log_weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The items at shares `uniform` [B, K], in [0, 1), of distributions by `relative` log weights [B, N].

    An item of weight zero is never drawn. Weights are added up in float64: in float32 the sum over a large
    catalog would swallow the items at its end.

    Returns:
        The items, int64 [B, K], and the log of each row's sum of weights, float32 [B, 1].
    """
    ends = log_weights.exp().cumsum(dim=1, dtype=torch.float64)
    return invert(ends, uniform), ends[:, -1:].log().float()
