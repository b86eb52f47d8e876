"""Live recall: a sample of answers is searched again exactly in the background."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from turret.service.observing.answer_record import AnswerRecord
from turret.service.observing.metrics import Metrics
from turret.service.thread_priority import lower_priority
from turret.tower.bundle.bundle import Bundle

RATE = 2.0  # samples a second, at most
_WAITING = 16
_SHARE_OF_A_CORE = 0.05
# Bounds the difference of two float32 sums of the same products.
_ROUNDING = 1e-5


class RecallSampler:
    """Measures `share` of the offered answers, at most `RATE` a second of `clock`.

    A low-priority thread searches them exactly in at most a twentieth of a core's time; samples beyond that
    are dropped and counted. The thread starts with the first sample, which comes after a fork.
    """

    def __init__(self, metrics: Metrics, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._share = share
        self._clock = clock
        self._not_before = float("-inf")
        self._room = threading.Semaphore(_WAITING)
        self._thread = ThreadPoolExecutor(1, "recall", initializer=lower_priority)

    def offer(self, bundle: Bundle, record: AnswerRecord) -> None:
        """Offer an answer; only unchanged results of the index are measured, without rows of fresh items.

        A sampled answer's arrays are copied, except `allowed`, which must not change.
        """
        if record.vector is None or random.random() >= self._share or self._clock() < self._not_before:
            return
        self._not_before = self._clock() + 1 / RATE
        if not self._room.acquire(blocking=False):
            self._metrics.recall_samples.labels("dropped").inc()
            return
        # The retriever may reuse its buffers for the next request.
        vector, rows = np.array(record.vector), np.array(record.rows)
        copied = record._replace(vector=vector, rows=rows, excluded=np.array(record.excluded, np.int64))
        self._thread.submit(self._measure, bundle, copied)

    def close(self) -> None:
        """Drop the waiting samples, and wait for the one that is measured."""
        self._thread.shutdown(cancel_futures=True)

    def _measure(self, bundle: Bundle, record: AnswerRecord) -> None:
        start = time.perf_counter()
        try:
            recall = recall_of(bundle, record)
        except Exception:  # counted: a failing sample is not a fault of the service
            self._metrics.recall_samples.labels("failed").inc()
        else:
            if recall is not None:
                self._metrics.recall.labels(size_of(record.requested)).observe(recall)
            self._metrics.recall_samples.labels("answered").inc()
        self._room.release()
        time.sleep(min(1.0, (time.perf_counter() - start) * (1 / _SHARE_OF_A_CORE - 1)))


def recall_of(bundle: Bundle, record: AnswerRecord) -> float | None:
    """The share of the k best allowed rows (by exact search) in a result; None without allowed rows.

    A row counts if its score reaches the k-th best, so any of tied rows counts.
    """
    assert record.vector is not None
    scores: NDArray[np.float32] = bundle.vectors @ record.vector
    if bundle.manifest.scoring.absolute:
        scores = np.abs(scores)
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


def size_of(k: int) -> str:
    """The label of a `k`: 10 up to 30, 100 up to 300, 1000 above."""
    return "10" if k <= 30 else "100" if k <= 300 else "1000"
