"""How often an item is a positive: known from the data, or estimated from the stream of batches."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.errors import TrainingError
from training.samplers.contract import State


class Frequency(Protocol):
    """log p_i, the log share of examples whose positive is item i."""

    def observe(self, positives: Tensor) -> None:
        """Take in the positives [B] of a step, before their frequencies are asked for."""
        ...

    def log_share(self, rows: Tensor) -> Tensor:
        """Log p of the item `rows` [...]; minus infinity for one that was never a positive."""
        ...

    def state(self) -> State:
        """What a checkpoint must keep."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `state` gave."""
        ...


class KnownFrequency:
    """p_i = count_i / sum of counts, from the training part."""

    def __init__(self, counts: NDArray[np.int64], device: torch.device) -> None:
        """Take the [N] counts. Raises TrainingError when all of them are zero."""
        if not counts.any():
            raise TrainingError(
                "objective.sampler.frequencies: no item has a training event; use frequencies = 'streaming'."
            )
        shares = torch.from_numpy(counts / counts.sum())
        self.log_shares = shares.log().float().to(device)

    def observe(self, positives: Tensor) -> None:
        """Nothing to learn."""

    def log_share(self, rows: Tensor) -> Tensor:
        """Log p of `rows` [...]."""
        return self.log_shares[rows]

    def state(self) -> State:
        """Nothing to keep."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing to restore."""


class StreamingFrequency:
    """The streaming estimate of Yi et al. 2019, algorithm 2: p_i is one over the mean gap between hits of i.

    Time is counted in examples, not in batches: the gap's inverse is then p_i itself, also for an item
    that a batch holds several times. Items are hashed into `buckets` by several hash functions; a
    collision can only shorten a gap, so the longest one is believed (their section 4.2).
    """

    # A Mersenne prime larger than any row, as universal hashing (Carter & Wegman 1979) needs.
    _PRIME = 2**31 - 1

    def __init__(self, buckets: int, hashes: int, rate: float, random: np.random.Generator) -> None:
        """Set up `hashes` arrays of `buckets`.

        `rate` is the weight of the newest gap in the mean, once a bucket has been hit 1 / `rate` times;
        before that it is the plain mean of all gaps so far.
        """
        self.rate = rate
        self.buckets = buckets
        self.factors = random.integers(1, self._PRIME, size=(hashes, 1))
        self.shifts = random.integers(0, self._PRIME, size=(hashes, 1))
        self.now = 0
        self.last_hit = np.zeros((hashes, buckets), dtype=np.int64)
        self.gap = np.zeros((hashes, buckets))
        self.hits = np.zeros((hashes, buckets), dtype=np.int64)

    def _places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        hashed: NDArray[np.int64] = (self.factors * rows + self.shifts) % self._PRIME % self.buckets
        return hashed

    def observe(self, positives: Tensor) -> None:
        """Update the mean gaps with the positives [B], one after the other."""
        rows = positives.cpu().numpy()
        times = self.now + 1 + np.arange(len(rows))
        for number, places in enumerate(self._places(rows)):
            self._observe_hash(number, places, times)
        self.now += len(rows)

    def _observe_hash(self, number: int, places: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        # n hits of a place whose gaps sum to (last time - time before) move the mean n steps at once.
        hit, hits = np.unique(places, return_counts=True)
        latest = np.zeros(self.buckets, dtype=np.int64)
        latest[places] = times
        mean_gap = (latest[hit] - self.last_hit[number, hit]) / hits
        kept = self._kept(self.hits[number, hit], hits)
        self.gap[number, hit] = kept * self.gap[number, hit] + (1.0 - kept) * mean_gap
        self.last_hit[number, hit] = latest[hit]
        self.hits[number, hit] += hits

    def _kept(self, before: NDArray[np.int64], hits: NDArray[np.int64]) -> NDArray[np.float64]:
        """The weight that a mean over `before` gaps keeps when as many gaps as `hits` join it."""
        early = np.clip(int(1.0 / self.rate) - before, 0, hits)
        plain = before / np.maximum(before + early, 1)
        weights: NDArray[np.float64] = plain * (1.0 - self.rate) ** (hits - early)
        return weights

    def log_share(self, rows: Tensor) -> Tensor:
        """Log p of `rows` [...]; minus infinity for an item that was never observed."""
        places = self._places(rows.cpu().numpy().ravel())
        gaps = np.take_along_axis(self.gap, places, axis=1)
        unseen = (gaps == 0).any(axis=0)
        log_gaps = np.log(np.where(unseen, np.inf, gaps.max(axis=0)))
        return torch.from_numpy(-log_gaps).float().reshape(rows.shape).to(rows.device)

    def state(self) -> State:
        """The clock, the last hits, the mean gaps and how many they are of."""
        return {
            "now": torch.tensor(self.now),
            "last_hit": torch.from_numpy(self.last_hit),
            "gap": torch.from_numpy(self.gap),
            "hits": torch.from_numpy(self.hits),
        }

    def restore(self, state: State) -> None:
        """Go on from what `state` gave."""
        self.now = int(state["now"])
        self.last_hit = state["last_hit"].numpy().copy()
        self.gap = state["gap"].numpy().copy()
        self.hits = state["hits"].numpy().copy()
