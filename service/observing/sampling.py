"""Samples of the answers of a worker."""

import random


class Sampling:
    """Takes `share` of a sequence, at random gaps so that periodic traffic causes no bias."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._left = self._gap()

    def takes(self) -> bool:
        """Whether the next element belongs to the sample."""
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._gap()
        return True

    def _gap(self) -> float:
        if self._share <= 0:
            return float("inf")
        return 1.0 if self._share >= 1 else max(1.0, random.expovariate(self._share))
