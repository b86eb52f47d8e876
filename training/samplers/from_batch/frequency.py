"""Frequencies of items: known, smoothed, or estimated from the stream (Yi et al. 2019, algorithm 2)."""

from abc import ABC
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.samplers.core.contract import State
from turret.training.samplers.core.settings import BuildContext, SamplerSettings


class KnownFrequency:
    """The share p_i = count_i / total of examples with positive i; `smoothed` adds one to every count.

    With one added no item is out of reach, and p still sums to one, unlike with a floor under p.
    """

    def __init__(self, counts: NDArray[np.int64], device: torch.device, smoothed: bool = False) -> None:
        """Take the [N] counts. Raises TrainingError when all of them are zero and nothing is added."""
        counts = counts + smoothed
        if not counts.any():
            raise TrainingError(
                "objective.sampler.frequencies: no item has a training event; use frequencies = 'streaming'."
            )
        shares = torch.from_numpy(counts / counts.sum())
        self.log_shares = shares.log().float().to(device)
        self._has_zeros = bool((shares == 0).any())

    def observe(self, positives: Tensor) -> None:
        """Check the positives; counts that are known learn nothing. Raises TrainingError for a zero count."""
        if self._has_zeros and (impossible := self.log_shares[positives].isneginf()).any():
            row = int(positives[impossible][0])
            raise TrainingError(
                f"objective.sampler.frequencies = 'known': item row {row} is a positive, but "
                "never a target in the training part, so its count of zero can't correct anything; "
                "use frequencies = 'smoothed' or 'streaming'."
            )

    def log_share(self, rows: Tensor) -> Tensor:
        """Log p of the item `rows` [...]; minus infinity where the count is zero and nothing was added."""
        return self.log_shares[rows]

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


Gaps = NDArray[np.float64]
Counts = NDArray[np.int64]


class StreamingFrequency:
    """The streaming estimate of Yi et al. 2019, algorithm 2: p_i is one over the mean gap between hits of i.

    Time is counted in examples, not in batches: the gap's inverse is then p_i itself, also for an item
    that a batch holds several times. Items are hashed into `buckets` by several hash functions; a
    collision can only shorten a gap, so the longest one is used (section 4.2).

    The current gap of an item that is absent for longer than its mean gap counts as if it ended now. The
    published algorithm keeps the old mean, which is harmless while only current positives are looked up; but
    a union of draws also looks up items without recent events.

    The mean starts again when the newest hits contradict it. The likelihood ratio of two Poisson rates to one
    common rate (Wilks 1938) compares h hits in the t examples since the last batch with a hit, and the
    n = min(hits, 1 / rate) hits in n mean gaps that the mean stands for. A silence has h = 0. The published
    mean forgets a popular item only after some 1 / rate more hits, which an item out of use never gets.
    """

    # The limit of the log likelihood ratio. Twice that ratio follows a chi-square distribution with one
    # degree of freedom while nothing changes, so that one batch in 130,000 exceeds it by chance.
    _EVIDENCE = 10.0
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

    def _buckets_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        hashed: NDArray[np.int64] = (self.factors * rows + self.shifts) % self._PRIME % self.buckets
        return hashed

    def observe(self, positives: Tensor) -> None:
        """Update the mean gaps with the positives [B], one after the other."""
        rows = positives.cpu().numpy()
        times = self.now + 1 + np.arange(len(rows))
        for number, positions in enumerate(self._buckets_of(rows)):
            hit, from_end, hits = np.unique(positions[::-1], return_index=True, return_counts=True)
            latest = times[::-1][from_end]
            before, gaps = self.hits[number, hit], self.gap[number, hit]
            spans = latest - self.last_hit[number, hit]
            kept = np.where(self._changed(gaps, before, hits, spans), 0, before)
            self.gap[number, hit] = self._joined(gaps, kept, hits, spans)
            self.last_hit[number, hit] = latest
            self.hits[number, hit] = kept + hits
        self.now += len(rows)

    def _joined(self, gaps: Gaps, before: Counts, hits: Counts, spans: Gaps | Counts) -> Gaps:
        """The mean of `before` gaps, after `hits` more that sum to `spans`, in one step."""
        early = np.clip(int(1.0 / self.rate) - before, 0, hits)
        plain = before / np.maximum(before + early, 1)
        old_weight: Gaps = plain * (1.0 - self.rate) ** (hits - early)
        return old_weight * gaps + (1.0 - old_weight) * spans / hits

    def _changed(self, gaps: Gaps, before: Counts, hits: Counts, spans: Counts) -> NDArray[np.bool_]:
        """Whether `hits` in `spans` examples contradict the mean `gaps` of `before` hits."""
        remembered = np.minimum(before, int(1.0 / self.rate))
        # A mean gap is one example or more; buckets without a hit and silences of no length give zero.
        gaps, spans = np.maximum(gaps, 1.0), np.maximum(spans, 1)
        together = (hits + remembered) / (spans + remembered * gaps)
        log_ratio = (
            hits * np.log(np.maximum(hits, 1) / spans)
            - remembered * np.log(gaps)
            - (hits + remembered) * np.log(np.where(together > 0.0, together, 1.0))
        )
        return np.asarray(log_ratio > self._EVIDENCE)

    def log_share(self, rows: Tensor) -> Tensor:
        """Log p of `rows` [...]; minus infinity for an item that was never observed."""
        positions = self._buckets_of(rows.cpu().numpy().ravel())
        gaps = np.take_along_axis(self.gap, positions, axis=1)
        hits = np.take_along_axis(self.hits, positions, axis=1)
        open_gaps = self.now - np.take_along_axis(self.last_hit, positions, axis=1)
        # A gap that is longer than the mean counts as though it ended now.
        ended = np.maximum(open_gaps, gaps)
        is_silent = self._changed(gaps, hits, np.zeros_like(hits), open_gaps)
        current = np.where(is_silent, ended, self._joined(gaps, hits, np.ones_like(hits), ended))
        log_gaps = np.log(np.where((hits == 0).any(axis=0), np.inf, current.max(axis=0)))
        return torch.from_numpy(-log_gaps).float().reshape(rows.shape).to(rows.device)

    def state(self) -> State:
        """The clock, the last hits, the mean gaps and the numbers of hits in them."""
        return {
            "now": torch.tensor(self.now),
            "last_hit": torch.from_numpy(self.last_hit),
            "gap": torch.from_numpy(self.gap),
            "hits": torch.from_numpy(self.hits),
        }

    def restore(self, state: State) -> None:
        self.now = int(state["now"])
        self.last_hit = state["last_hit"].numpy().copy()
        self.gap = state["gap"].numpy().copy()
        self.hits = state["hits"].numpy().copy()


Frequency = KnownFrequency | StreamingFrequency

# A stream has two hash functions: a collision has to happen in both to make an item too frequent.
HASHES = 2


class FrequencySettings(SamplerSettings, ABC):
    """The source of the frequencies of positives.

    Args:
        frequencies: "known" from the training part, "smoothed" with one added to each count, or "streaming",
            estimated from the positives as they come.
        streaming_rate: the weight of the newest gap in the mean gap of a streaming estimate.
    """

    reads_batch: ClassVar[bool] = True

    frequencies: Literal["known", "smoothed", "streaming"] = "known"
    streaming_rate: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.01

    def frequency(self, context: BuildContext) -> Frequency:
        """Build the estimate of the settings. Raises TrainingError where no item has a count."""
        if self.frequencies != "streaming":
            smoothed = self.frequencies == "smoothed"
            return KnownFrequency(context.statistics.positive_counts(), context.device, smoothed)
        # Four times as many buckets as items keep collisions of both hash functions rare.
        buckets = 4 * context.item_count
        random = stream(context.seed, "streaming frequency", 0)
        return StreamingFrequency(buckets, HASHES, self.streaming_rate, random)
