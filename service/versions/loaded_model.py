"""A bundle in memory with its retriever. A request is answered by one of them from beginning to end."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from turret.service.versions.record import Routes
from turret.tower.bundle.bundle import Bundle, load
from turret.tower.errors import EncodingError, EngineError
from turret.tower.retrieval import Retriever

# Processor time of an answer, and of a batch, in the event loop. An answer of 27,000 items takes some .1 ms;
# an exact search of a million, or a large user tower, takes more than this: those run in a thread.
LOOP_SECONDS = 0.005
_LARGEST_BATCH = 16
_LOOP_SCAN = 200_000  # items that a filter reads in a millisecond or two
_WEIGHT = 0.1  # of each answer in the mean
# Reading the clock of a thread is a system call, which can cost a tenth of an answer.
_FIRST, _EACH = 16, 32


class LatencyEstimate:
    """The moving average of the processor time that one version's answers take.

    It decides what the event loop ranks, and how many answers at a time. Thread time counts, as on a busy
    machine every answer seems slow. That leaves out what a search waits for another process: answers of a
    version whose index `is_remote` are always long.
    """

    __slots__ = ("_answers", "_is_remote", "seconds")

    def __init__(self, is_remote: bool = False) -> None:
        self.seconds = 0.0
        self._is_remote = is_remote
        self._answers = 0

    def wants_sample(self) -> bool:
        """Whether to time the next answer: the first ones, all while they are slow, else some."""
        self._answers += 1
        return self._answers <= _FIRST or self.seconds > LOOP_SECONDS or self._answers % _EACH == 0

    def add(self, seconds: float) -> None:
        """Add the processor time of an answer, from any thread."""
        self.seconds += (seconds - self.seconds) * (_WEIGHT if self.seconds else 1.0)

    def is_long(self, scanned: int = 0) -> bool:
        """Whether an answer is likely to hold up the event loop; `scanned` items are read by a filter."""
        is_slow = self._is_remote or self.seconds > LOOP_SECONDS
        return is_slow or scanned > _LOOP_SCAN

    @property
    def batch_size(self) -> int:
        """How many answers fit into one batch; one until the first is timed."""
        return max(1, min(_LARGEST_BATCH, int(LOOP_SECONDS / self.seconds))) if self.seconds else 1


@dataclass(frozen=True)
class LoadedModel:
    """A bundle, its retriever, and the latency of its answers in this process.

    `since` is when it was loaded; `number` is that of its activation, 0 for a canary or a shadow.
    """

    bundle: Bundle
    retriever: Retriever
    since: datetime
    number: int = 0
    latency: LatencyEstimate = field(default_factory=LatencyEstimate, compare=False)

    @property
    def version(self) -> str:
        """The bundle's version."""
        return self.bundle.manifest.version


@dataclass(frozen=True)
class TrafficSplit:
    """The routes with their loaded versions; None for a version that can't be loaded."""

    routes: Routes
    canary: LoadedModel | None = None
    shadow: LoadedModel | None = None
    candidate: LoadedModel | None = None


def open_live(root: Path, version: str, manifest: str | None = None) -> LoadedModel:
    """Load a version, whose manifest has to have the SHA-256 `manifest`, if given.

    Raises BundleError if it can't be served.
    """
    bundle = load(root, version, manifest)
    latency = LatencyEstimate(bundle.manifest.index.is_remote)
    live = LoadedModel(bundle, Retriever(bundle), datetime.now(UTC), latency=latency)
    _warm_up(live)
    return live


def _warm_up(live: LoadedModel) -> None:
    """Warm up lazily built state so that the first request does not pay for it."""
    rows = np.arange(min(len(live.bundle.vocabulary), 10))
    # Other histories may be encodable, and an engine may be back by the first request.
    with suppress(EncodingError, EngineError):
        live.bundle.vocabulary.known_rows(live.bundle.vocabulary.ids(rows))
        live.retriever.recommend([rows], [{}], len(rows), [rows])
        live.bundle.encoder.encode_each([rows] * 2, [{}] * 2)
