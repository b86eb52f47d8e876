"""A circuit breaker: failures in a row open it, and after a pause a trial call decides.

Not purgatory's: that goes by a clock that can be set, and admits every call while half open.
"""

import time
from collections.abc import Callable
from typing import Literal

CircuitState = Literal["closed", "open", "half_open"]


class Circuit:
    """Opens for `seconds` after `failures` in a row, then admits one trial call at a time.

    A successful trial closes it, a failed one opens it again. `clock` is monotonic, in seconds. `on_change`
    is called with every new state.
    """

    def __init__(
        self, failures: int = 5, seconds: float = 2.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._state: CircuitState = "closed"
        self._in_a_row = 0
        self._until = 0.0
        self._trial: object | None = None
        self.on_change: Callable[[CircuitState], None] | None = None

    @property
    def state(self) -> CircuitState:
        """The state; open becomes half open at the first call after the pause."""
        return self._state

    @property
    def in_a_row(self) -> int:
        """How many calls have failed since the last success, up to the limit."""
        return self._in_a_row

    def wait(self) -> float:
        """Seconds until the next trial call, as far as known; 0 if a call is admitted now."""
        if self._state == "closed" or (self._trial is None and self._clock() >= self._until):
            return 0.0
        return max(self._until - self._clock(), 0.0)

    def admit(self) -> object | None:
        """Admit a call and return a token to release exactly once, or None while the circuit is open."""
        token = object()
        if self._state == "closed":
            return token
        if self._trial is not None or self._clock() < self._until:
            return None
        self._set_state("half_open")
        self._trial = token
        return token

    def succeed(self, token: object) -> None:
        """Release the token of a call that succeeded."""
        if self._state == "closed":
            self._in_a_row = 0
        elif token is self._trial:  # calls from before the opening are ignored
            self._trial = None
            self._in_a_row = 0
            self._set_state("closed")

    def fail(self, token: object) -> None:
        """Release the token of a call that failed or timed out."""
        if token is self._trial:
            self._trial = None
            self._open()
        elif self._state == "closed":
            self._in_a_row += 1
            if self._in_a_row >= self._limit:
                self._open()

    def cancel(self, token: object) -> None:
        """Release the token of a call without a result; after a trial, the next call is the trial."""
        if token is self._trial:
            self._trial = None

    def _open(self) -> None:
        self._until = self._clock() + self._seconds
        self._set_state("open")

    def _set_state(self, state: CircuitState) -> None:
        if state != self._state:
            self._state = state
            if self.on_change is not None:
                self.on_change(state)
