"""Live recall: a sample of answers is searched again exactly in the background."""

import queue
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.service.observing.answer_record import AnswerRecord
from turret.service.observing.metrics import Metrics
from turret.service.observing.sampling import Sampling
from turret.service.thread_priority import lower_priority
from turret.tower.bundle.bundle import Bundle

_WAITING = 16
_BLOCK = 8192  # rows scored at a time; other threads run in between
_SHARE_OF_A_CORE = 0.05
# Bounds the difference of two float32 sums of the same products.
_ROUNDING = 1e-5


class _Sample(NamedTuple):
    bundle: Bundle
    vector: NDArray[np.float32]
    record: AnswerRecord


class RecallSampler:
    """Measures `share` of the offered answers, at most `rate` a second of `clock`.

    A low-priority thread searches them exactly in at most a twentieth of a core's time; samples beyond that
    are dropped and counted.
    """

    def __init__(
        self, metrics: Metrics, share: float, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._share = share
        self._metrics = metrics
        self._clock = clock
        self._pause = 1.0 / rate if rate > 0 else float("inf")
        self._not_before = float("-inf")
        self._sampling = Sampling(share)
        self._waiting: queue.Queue[_Sample | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None

    def offer(self, bundle: Bundle, record: AnswerRecord) -> None:
        """Offer an answer; only unchanged results of the index are measured, without rows of fresh items.

        A sampled answer's arrays are copied, except `allowed`, which must not change.
        """
        if record.vector is not None and self._sampling.takes():
            self._take(bundle, record.vector, record)

    def start(self) -> None:
        """Start the thread; call it after a fork."""
        if self._share > 0:
            self._thread = threading.Thread(target=self._run, name="recall", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop; waiting samples are dropped."""
        if self._thread is not None:
            while True:
                try:
                    self._waiting.put_nowait(None)
                    break
                except queue.Full:
                    self._waiting.get_nowait()
            self._thread.join(5)

    def _take(self, bundle: Bundle, vector: NDArray[np.float32], record: AnswerRecord) -> None:
        now = self._clock()
        if now < self._not_before:
            return
        self._not_before = now + self._pause
        try:
            # The retriever may reuse its buffers for the next request.
            excluded = np.array(record.excluded, dtype=np.int64)
            copied = record._replace(excluded=excluded, rows=np.array(record.rows))
            self._waiting.put_nowait(_Sample(bundle, np.array(vector), copied))
        except queue.Full:
            self._metrics.recall_samples.labels("dropped").inc()

    def _run(self) -> None:
        lower_priority()
        while (sample := self._waiting.get()) is not None:
            start = time.perf_counter()
            try:
                recall = recall_of(sample)
            except Exception:  # a failing sample must not stop the thread
                self._metrics.recall_samples.labels("failed").inc()
            else:
                if recall is not None:
                    self._metrics.recall.labels(size_of(sample.record.requested)).observe(recall)
                self._metrics.recall_samples.labels("answered").inc()
            del sample  # else a replaced version would stay in memory until the next sample
            time.sleep(min(1.0, (time.perf_counter() - start) * (1 / _SHARE_OF_A_CORE - 1)))


def recall_of(sample: _Sample) -> float | None:
    """The share of the k best allowed rows (by exact search) in a sample's result; None without allowed rows.

    A row counts if its score reaches the k-th best, so any of tied rows counts.
    """
    scores, record = _scores(sample.bundle, sample.vector), sample.record
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


def _scores(bundle: Bundle, vector: NDArray[np.float32]) -> NDArray[np.float32]:
    vectors = bundle.vectors
    scores = np.empty(len(vectors), dtype=np.float32)
    for start in range(0, len(vectors), _BLOCK):
        np.dot(vectors[start : start + _BLOCK], vector, out=scores[start : start + _BLOCK])
    return np.abs(scores, out=scores) if bundle.manifest.scoring.absolute else scores
