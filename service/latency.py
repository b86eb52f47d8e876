"""Expected processor time: which work runs in the event loop, how much at a time, and which in a thread.

Every decision between the loop and a thread is made here: the reader of bodies asks whether a body is short,
the recommender whether an answer is long, the batcher how many answers fit into a batch. Connections are
balanced by their number and histories are encoded together for equal bits; neither depends on a time.
"""

# An answer of 27,000 items takes a tenth of this; an exact search of a million, or a large user tower, more:
# those run in a thread.
LOOP_SECONDS = 0.005
# Processor time of one batch, and its largest size.
_BATCH_SECONDS, _LARGEST_BATCH = 0.002, 16
# Bytes of any content that are parsed in a millisecond or two, and lists and objects within 3 ms.
SHORT_BODY, _FEW_CONTAINERS = 32_768, 1_000
# A longer answer takes longer to write than most take to be found; a longer history, to encode.
_LOOP_ITEMS, _LOOP_HISTORY = 100, 1_000
# Items that a filter is compared with in a millisecond or two. An item that was put counts for many: its
# fields are read from JSON.
_LOOP_SCAN, _SCANS_PER_CHANGE = 200_000, 500
_WEIGHT = 0.1  # of each answer in the mean
# Reading the clock of a thread is a system call, which can cost a tenth of an answer.
_FIRST, _EACH = 16, 32


class LatencyEstimate:
    """The moving average of the processor time that one version's answers take.

    Thread time counts, as on a busy machine every answer seems slow. That leaves out what a search waits for
    another process: answers of a version whose index `is_remote` are always long.
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

    def is_long(self, scanned: int = 0, changed: int = 0) -> bool:
        """Whether an answer is likely to hold up the event loop.

        `scanned` and `changed`: how many items of the bundle and of its overlay a filter is compared with.
        """
        is_slow = self._is_remote or self.seconds > LOOP_SECONDS
        return is_slow or scanned + _SCANS_PER_CHANGE * changed > _LOOP_SCAN

    @property
    def batch_size(self) -> int:
        """How many answers fit into one batch; one until the first is timed."""
        return max(1, min(_LARGEST_BATCH, int(_BATCH_SECONDS / self.seconds))) if self.seconds else 1


def is_large(items: int, history: int = 0) -> bool:
    """Whether an answer of so many items, for a history of so many, takes longer than most of its version."""
    return items > _LOOP_ITEMS or history > _LOOP_HISTORY


def is_short(body: bytes) -> bool:
    """Whether a body may be parsed in the event loop."""
    return len(body) <= SHORT_BODY and body.count(b"{") + body.count(b"[") <= _FEW_CONTAINERS
