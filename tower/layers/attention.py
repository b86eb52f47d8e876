"""Pooling by attention: weighted means of the steps of a history, whose weights depend on each step alone."""

import torch
from torch import Tensor, nn

from turret.tower.layers.packed import PackedHistories
from turret.tower.layers.windows import weighted_means

# The bound of attention scores: weights then differ by e^16 at most, which leaves nine digits of double
# precision in a difference of running sums.
LARGEST_SCORE = 8.0


class AttentionPooling(nn.Sequential):
    """I weighted means of steps [..., W]: the self-attention of Lin et al. 2017, eq. 6-7, with I hops.

    ComiRec-SA (Cen et al. 2020, section 3.2) takes these means for the interests of a user. A weight does not
    depend on the window, so that the means of all windows come from running sums, in one pass over the steps.
    """

    def __init__(self, width: int, hidden: int, count: int) -> None:
        super().__init__(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, count, bias=False))

    def weights(self, steps: Tensor) -> Tensor:
        """The weights [..., I], above zero, of steps [..., W]."""
        return (LARGEST_SCORE * torch.tanh(self(steps) / LARGEST_SCORE)).exp()

    def packed(self, steps: Tensor, histories: PackedHistories) -> Tensor:
        """The means [B, I, W] of packed steps [P, W] in the windows of B examples."""
        return weighted_means(steps, self.weights(steps), histories)

    def padded(self, history: Tensor, length: Tensor) -> Tensor:
        """The means [B, I, W] of the first `length` [B] of padded steps [B, T, W]."""
        real = torch.arange(history.shape[1], device=history.device) < length.unsqueeze(1)
        weights = self.weights(history) * real.unsqueeze(2)
        return (weights.transpose(1, 2) @ history) / weights.sum(dim=1).unsqueeze(2)
