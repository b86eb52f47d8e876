"""A circuit breaker: failures in a row open it, and after a pause a trial call decides.

The package purgatory is not used: it goes by a clock that can be set, and admits every call while half open.
"""

import time
from collections.abc import Callable
from typing import Literal

CircuitState = Literal["closed", "open", "half_open"]


class Circuit:
    """Opens for `seconds` after `failures` in a row, then admits one trial call at a time.

    A successful trial closes it, a failed trial opens it again. `clock` is monotonic, in seconds.

    Attributes:
        state: open becomes half open at the first call after the pause.
        in_a_row: how many calls have failed since the last success, up to the limit.
    """

    def __init__(
        self, failures: int = 5, seconds: float = 2.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self.state: CircuitState = "closed"
        self.in_a_row = 0
        self._until = 0.0
        self._trial: object | None = None

    def wait(self) -> float:
        """Seconds until the next trial call, as far as known; 0 if a call is admitted now."""
        if self.state == "closed" or (self._trial is None and self._clock() >= self._until):
            return 0.0
        return max(self._until - self._clock(), 0.0)

    def admit(self) -> object | None:
        """Admit a call and return a token to release exactly once, or None while the circuit is open."""
        token = object()
        if self.state != "closed":
            if self._trial is not None or self._clock() < self._until:
                return None
            self.state, self._trial = "half_open", token
        return token

    def succeed(self, token: object) -> None:
        """Release the token of a call that succeeded."""
        if self.state == "closed" or token is self._trial:  # calls from before the opening are ignored
            self.state, self.in_a_row, self._trial = "closed", 0, None

    def fail(self, token: object) -> None:
        """Release the token of a call that failed or timed out."""
        if self.state == "closed":
            self.in_a_row += 1
        elif token is not self._trial:
            return
        if self.in_a_row >= self._limit:
            self.state, self._trial, self._until = "open", None, self._clock() + self._seconds

    def cancel(self, token: object) -> None:
        """Release the token of a call without a result; after a trial, the next call is the trial."""
        if token is self._trial:
            self._trial = None
