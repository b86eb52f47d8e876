"""The quality of live answers: recall against exact search, and drift from the recorded queries."""

import logging
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.service.observing.metrics import Metrics
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load_golden
from turret.tower.errors import BundleError
from turret.tower.retrieval import best_products

RATE = 2.0  # samples of recall a second, at most
_SHARE_OF_A_CORE = 0.05
_ROUNDING = 1e-5  # bounds the difference of two float32 sums of the same products
TOP = 10  # items of an answer whose popularity is counted
MIN_HITS = 100  # counts below which no distance is exported
WINDOW = 1800.0  # seconds
_log = logging.getLogger("turret.observation")

Scores = Sequence[float] | NDArray[np.floating[Any]]
# The number of answers ("scores") and of their items ("popularity") in each tenth.
Counts = dict[str, NDArray[np.float64]]


class AnswerRecord(NamedTuple):
    """An answer of `rows` from `source` to a request of `requested` items.

    `known` and `unknown` are the numbers of history items that the version has and lacks. `vector` [D] or
    [I, D] is the user's if `rows` and `scores` are the index's result for it, without `excluded` rows and
    among the rows that are `allowed` [N]; None if they were selected in any other way.
    """

    source: str
    requested: int
    known: int
    unknown: int
    vector: NDArray[np.float32] | None
    excluded: NDArray[np.integer[Any]]
    allowed: NDArray[np.bool_] | None
    rows: NDArray[np.integer[Any]]
    scores: NDArray[np.floating[Any]]


class RecallSampler:
    """Measures answers by exact search, one at a time in a low-priority thread.

    It measures at most `RATE` answers a second of `clock`, in at most a twentieth of a core's time. The
    thread starts with the first sample, which comes after a fork.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._next = float("-inf")
        self._thread = ThreadPoolExecutor(1, "recall", os.nice, (10,))  # Linux: only this thread is nice

    def offer(self, bundle: Bundle, record: AnswerRecord) -> None:
        """Offer an answer; only unchanged results of the index are measured, without rows of fresh items.

        A sampled answer's arrays are copied, except `allowed`, which must not change.
        """
        if record.vector is None or self._clock() < self._next:
            return
        self._next = float("inf")  # until this sample is measured
        # The retriever may reuse its buffers for the next request.
        vector, rows = np.array(record.vector), np.array(record.rows)
        copied = record._replace(vector=vector, rows=rows, excluded=np.array(record.excluded, np.int64))
        self._thread.submit(self._measure, bundle, copied)

    def close(self) -> None:
        """Wait for the sample that is being measured."""
        self._thread.shutdown()

    def _measure(self, bundle: Bundle, record: AnswerRecord) -> None:
        begun = self._clock()
        try:
            recall = recall_of(bundle, record)
        except Exception:  # counted: a failing sample is not a fault of the service
            self._metrics.recall_samples.labels("failed").inc()
        else:
            if recall is not None:
                self._metrics.recall.labels(_size_of(record.requested)).observe(recall)
            self._metrics.recall_samples.labels("answered").inc()
        now = self._clock()
        self._next = now + max(1 / RATE, (now - begun) * (1 / _SHARE_OF_A_CORE - 1))


def recall_of(bundle: Bundle, record: AnswerRecord) -> float | None:
    """The share of the k best allowed rows (by exact search) in a result; None without allowed rows.

    A row counts if its score reaches the k-th best score, so each of tied rows counts.
    """
    assert record.vector is not None
    scores = best_products(bundle.vectors, record.vector, bundle.manifest.scoring.absolute)
    count = len(scores)
    result = record.rows[record.rows < count]
    slack = _ROUNDING * float(np.abs(scores).max())
    scores[record.excluded[record.excluded < count]] = -np.inf
    if record.allowed is not None:
        scores[~record.allowed[:count]] = -np.inf
    # Ranks of fresh items are not judged.
    k = record.requested if len(result) == len(record.rows) else len(result)
    k = min(k, int(np.isfinite(scores).sum()))
    if k == 0:
        return None
    worst = np.partition(scores, -k)[-k]
    return min(1.0, int(np.count_nonzero(scores[result] >= worst - slack)) / k)


def _size_of(k: int) -> str:
    return "10" if k <= 30 else "100" if k <= 300 else "1000"


class Reference:
    """Histograms of the answers to a bundle's recorded queries.

    `scores`: the best score of each answer, sorted. `popularity` float32 [N]: for each row, the share of
    training events of more popular items. Raises BundleError when the recorded queries can't be read.
    """

    def __init__(self, bundle: Bundle) -> None:
        bundle.check_unchanged()  # the file may have been replaced since the gate
        queries = load_golden(bundle.folder).queries
        self.scores = sorted(query.scores[0] for query in queries if query.scores)
        self.popularity = _popularity(bundle.popularity)
        self.counts = _no_counts()
        for query in queries:
            self.count(self.counts, query.scores, bundle.vocabulary.known_rows(query.items)[0])

    def rank(self, score: float) -> float:
        """The share of recorded best scores below `score`, counting equal scores half."""
        below, up_to = bisect_left(self.scores, score), bisect_right(self.scores, score)
        return (below + up_to) / 2 / len(self.scores) if self.scores else 0.0

    def count(self, counts: Counts, scores: Scores, rows: NDArray[np.integer[Any]]) -> None:
        """Count an answer: the rank of its best score, and the popularity of its best items."""
        ranks = [self.rank(float(score)) for score in scores[:1]]
        known = rows[:TOP][rows[:TOP] < len(self.popularity)]
        for of, shares in (("scores", ranks), ("popularity", self.popularity[known].tolist())):
            for share in shares:
                counts[of][min(int(10 * share), 9)] += 1


class Drift:
    """Measures the distance of the towers' answers from the reference of a bundle.

    It compares this worker's answers in the last one to two windows, and none of an earlier bundle. `clock`
    is monotonic, in seconds.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._live: Bundle | None = None
        self._reference: Reference | None = None
        self._before, self._counts = _no_counts(), _no_counts()  # of the last window and of this window
        self._next = clock() + WINDOW

    def follow(self, live: Bundle | None) -> None:
        """Export the distances; begin a window if the last is over, and forget all windows of another bundle.

        Any thread may call it, as it reads the reference of a bundle from files.
        """
        if live is not self._live:
            self._live, self._reference = live, None
            self._before, self._counts, self._next = _no_counts(), _no_counts(), self._clock() + WINDOW
            try:
                self._reference = Reference(live) if live is not None else None
            except BundleError as error:
                _log.warning("drift of the live version is not measured: %s", error)
        elif self._clock() >= self._next:
            self._before, self._counts, self._next = self._counts, _no_counts(), self._clock() + WINDOW
        recorded = _no_counts() if self._reference is None else self._reference.counts
        for of, expected in recorded.items():
            counts = self._before[of] + self._counts[of]
            is_enough = counts.sum() >= MIN_HITS and expected.any()
            self._metrics.drift.labels(of).set(divergence(counts, expected) if is_enough else 0.0)
            self._metrics.drift_noise.labels(of).set(noise_of(counts, expected) if is_enough else 0.0)

    def offer(self, live: object, rows: NDArray[np.integer[Any]], scores: NDArray[np.floating[Any]]) -> None:
        """Offer an answer of the towers, best first, to a request without filters."""
        reference = self._reference
        if live is self._live and reference is not None:
            reference.count(self._counts, scores, rows)


def _no_counts() -> Counts:
    return {of: np.zeros(10) for of in ("scores", "popularity")}


def divergence(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Jensen-Shannon divergence of two histograms in bits (Lin 1991, Divergence measures based on the Shannon
    entropy, eq. 3.1-3.4): 0 for equal shapes, 1 for disjoint ones. Unlike the population stability index it
    needs no smoothing of empty bins.
    """
    p, q = first / first.sum(), second / second.sum()
    return float(max(0.0, _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2))


def noise_of(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The expected divergence of two samples of one distribution.

    The second-order expansion of the divergence is the chi-square distance / (8 ln 2), whose mean is (bins -
    1) (1/n + 1/m) for samples of n and m.
    """
    bins = np.count_nonzero(first + second)
    return float((bins - 1) * (1 / first.sum() + 1 / second.sum()) / (8 * np.log(2)))


def _popularity(events: NDArray[np.int64]) -> NDArray[np.float32]:
    """The share of all events of more popular items; ties are in the order of rows."""
    order = np.argsort(-events, kind="stable")
    sorted_events = events[order].astype(np.float64)
    shares = np.empty(len(events), dtype=np.float32)
    shares[order] = (np.cumsum(sorted_events) - sorted_events) / max(1.0, float(sorted_events.sum()))
    return shares


def _entropy(p: NDArray[np.float64]) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log2(positive)).sum())
