"""A clock that a test moves by hand."""


class Clock:
    """Tells `now`, in seconds; for classes that take a clock."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
