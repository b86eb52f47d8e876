"""Draws that leave items out: without the example's positive, and of distinct items."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import CountingSampler, Draw, DrawContext, Sampler, drawn_from
from turret.training.samplers.fixed.alias import AliasTable, Weights, logs

Rows = NDArray[np.int64]


class ComplementSampler(Sampler):
    """K candidates an example, drawn with replacement from q_j / (1 - q_y), where y is its positive.

    The draw estimates the sum over the other items, and spends no candidate on the known term of the positive
    (Botev et al. 2017, eq. 16-19).
    """

    def __init__(self, weights: Weights, negatives: int, device: torch.device) -> None:
        """Take [N] weights. Raises TrainingError where fewer than two items have a weight."""
        check_others(int(np.count_nonzero(weights)))
        self.negatives = negatives
        self.table = AliasTable(weights)
        share = weights / weights.sum()
        # 1 - q_y cancels where the positive has nearly all the mass; so others are summed from both ends: the
        # first n rows, and the last n.
        self.firsts = np.concatenate([[0.0], np.cumsum(share)])
        self.lasts = np.concatenate([[0.0], np.cumsum(share[::-1])])
        self.log_q = logs(share).to(device)
        self.log_others = logs(self.firsts[:-1] + self.lasts[-2::-1]).to(device)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [B, K] ids, none of which is its example's positive."""
        avoided = np.repeat(positives.cpu().numpy(), self.negatives).reshape(-1, self.negatives)
        drawn = self.table.draw(avoided.size, context.random).reshape(avoided.shape)
        # The replacement of a hit has the same distribution as the draws that missed.
        hits = drawn == avoided
        drawn[hits] = self._others(avoided[hits], context.random)
        ids = torch.from_numpy(drawn).to(positives.device)
        log_q = self.log_q[ids] - self.log_others[positives, None]
        left_out = torch.full_like(log_q[:, 0], float("-inf"))
        return drawn_from(ids, log_q, left_out, positives)

    def _others(self, avoided: Rows, random: np.random.Generator) -> Rows:
        """An item for each of `avoided` [n], by inverting the distribution function without that row."""
        last = len(self.firsts) - 2
        before, after = self.firsts[avoided], self.lasts[last - avoided]
        position = random.random(len(avoided)) * (before + after)
        earlier: Rows = np.searchsorted(self.firsts, position, side="right") - 1
        later: Rows = last + 1 - np.searchsorted(self.lasts, position - before, side="right")
        # Rounding may put the position at the very end, which is the avoided item.
        return np.where(position < before, earlier, np.maximum(later, avoided + 1))

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """q [N] before the positive is left out, for each query: [B, N]."""
        return self.log_q.exp().expand(len(query), -1)


def check_others(item_count: int) -> None:
    """Raise TrainingError for a catalog in which nothing is left beside the positive."""
    if item_count < 2:
        raise TrainingError(
            "objective.sampler.exclude_positive: one item can be drawn, so without the positive nothing is "
            "left to draw; prepare data with more items, or set exclude_positive = false."
        )


class SharedComplementSampler(ComplementSampler):
    """S + S' draws from q, shared by the batch; each example takes the first S that miss its positive.

    These candidates are S independent draws from q_j / (1 - q_y), as if made for the example alone, but
    scoring them is one product for the batch. An example whose positive is drawn more than S' times has n < S
    candidates, each expected n q_j / (1 - q_y) times: given n they follow the same distribution, so the sum
    stays unbiased unless n = 0.

    Source: Botev et al. 2017: S + S' samples for a mini-batch, for the sum of eq. 16-19.
    """

    def __init__(self, weights: Weights, negatives: int, spare: int, device: torch.device) -> None:
        """Take [N] positive weights, S = `negatives` and S' = `spare`. Raises TrainingError for one item."""
        super().__init__(weights, negatives, device)
        self.spare = spare

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [S + S'] ids, all but S of them masked for each example."""
        drawn = self.table.draw(self.negatives + self.spare, context.random)
        ids = torch.from_numpy(drawn).to(positives.device)
        others = ids != positives.unsqueeze(1)
        valid = others & (others.cumsum(dim=1) <= self.negatives)
        taken = valid.sum(dim=1, keepdim=True).clamp(min=1)
        log_count = taken.log() + self.log_q[ids] - self.log_others[positives, None]
        left_out = torch.full_like(log_count[:, 0], float("-inf"))
        return Draw(ids=ids, log_count=log_count, positive_log_count=left_out, valid=valid)


Times = NDArray[np.float64]

# Rounds of 2 K tries before the missing items are drawn at once, in O(N).
ROUNDS = 4


class UniqueSampler(CountingSampler):
    """K different candidates a step, shared by the batch: items are drawn from q until K have come.

    The draws are made at the times of a Poisson process of rate one, so that item i first comes after an
    exponential time of rate q_i, independently of all others. Given the times of the others, i is among the K
    if it comes before the Kth of them, at time tau. The probability is 1 - exp(-q_i tau), which is its count.
    For a candidate, tau is the time of the (K+1)th item, for any other item the time of the Kth. The
    estimated sum is unbiased at every K (rank conditioning: Cohen & Kaplan 2007; Duffield, Lund & Thorup
    2007), and counts of several samplers can be added. TensorFlow's 1 - (1 - q)^tries takes the number of
    tries for given, although the last try always finds a new item, so its sum is too large. K = N takes the
    whole catalog; each item is expected once.
    """

    def __init__(self, weights: Weights, negatives: int, device: torch.device) -> None:
        """Take [N] positive weights. Raises TrainingError when K is larger than the catalog."""
        if negatives > len(weights):
            raise TrainingError(
                f"objective.sampler.negatives = {negatives} candidates can't all differ in a catalog of "
                f"{len(weights)} items; ask for at most {len(weights)}, or set unique = false."
            )
        self.negatives = negatives
        self.table = AliasTable(weights)
        self.q = weights / weights.sum()
        self.shares = torch.from_numpy(self.q).float().to(device)
        self.drawn = torch.empty(0, dtype=torch.int64, device=device)
        # The times at which the Kth and the (K+1)th item of the last draw came.
        self.times = (0.0, 0.0)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [K] different ids."""
        drawn = np.arange(len(self.q))
        if self.negatives < len(self.q):
            drawn, times = self._first(self.negatives + 1, context.random)
            drawn, self.times = drawn[:-1], (float(times[-2]), float(times[-1]))
        self.drawn = torch.from_numpy(drawn).to(positives.device)
        return self.counted(query, positives, self.drawn)

    def _first(self, count: int, random: np.random.Generator) -> tuple[Rows, Times]:
        """The `count` items that come first, in their order, and the time of each."""
        drawn, times = np.empty(0, dtype=np.int64), np.zeros(1)
        for _ in range(ROUNDS):
            drawn = np.concatenate([drawn, self.table.draw(2 * count, random)])
            later = times[-1] + random.exponential(size=2 * count).cumsum()
            times = np.concatenate([times, later])
            first = np.sort(np.unique(drawn, return_index=True)[1])[:count]
            if len(first) == count:
                return drawn[first], times[first + 1]
        # Missing items come after exponential times from now on, so that the draws need not be made.
        seen = drawn[first]
        clocks = times[-1] + random.exponential(size=len(self.q)) / self.q
        clocks[seen] = np.inf
        rest = np.argsort(clocks)[: count - len(seen)]
        return np.concatenate([seen, rest]), np.concatenate([times[first + 1], clocks[rest]])

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """The q [N] of each try, for each of the B queries: [B, N]."""
        return self.shares.expand(len(query), -1)

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """log(1 - exp(-q tau)) of `ids`."""
        if self.negatives == len(self.q):
            return torch.zeros(ids.shape, device=ids.device)
        of_others, of_drawn = self.times
        tau = torch.where(torch.isin(ids, self.drawn), of_drawn, of_others)
        return (-torch.expm1(-self.shares[ids] * tau)).log()
