"""The times of a history and of the request, as a user tower reads them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The inputs of a tower that reads times.
TIME_INPUTS = ("gaps", "clocks")
# Gaps and clocks have this value where times are unknown.
UNKNOWN = -1.0
WEEK = 7 * 24 * 3600.0

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Times:
    """The times of one history, in seconds since 1970 (UTC).

    Attributes:
        events: float64 [T], when each item was used, oldest first.
        request: when the request comes.
    """

    events: Seconds
    request: float

    def newest(self, count: int) -> "Times":
        """The times of the newest `count` items."""
        return Times(self.events[-count:], self.request)

    def inputs(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The gaps and clocks of `time_inputs`, float32 [T], up to the next item, or to the request."""
        return time_inputs(self.events, np.append(self.events[1:], self.request))


def time_inputs(events: Seconds, moments: Seconds) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The time inputs of events at `events` [T], each followed by another event at `moments` [T].

    Returns:
        gaps: float32 [T], seconds between the two events; zero where the difference is negative.
        clocks: float32 [T], seconds from the beginning of a week (a Thursday, UTC) to the later event.
    """
    gaps = np.maximum(moments - events, 0.0)
    return gaps.astype(np.float32), (moments % WEEK).astype(np.float32)
