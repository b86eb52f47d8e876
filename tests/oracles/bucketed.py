"""Slow statements of cross entropy inside buckets, with literal exp and log, one example at a time."""

import math
from collections.abc import Sequence

Numbers = Sequence[float]


def losses(
    scores: Sequence[Numbers],
    positives: Sequence[int],
    buckets: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> list[float | None]:
    """Each example's greatest loss over the buckets (examples, items) that hold it, None in no bucket."""
    found: list[float | None] = []
    for example, (line, positive) in enumerate(zip(scores, positives, strict=True)):
        values = []
        for examples, items in buckets:
            if example in examples:
                others = sum(math.exp(line[item]) for item in items if item != positive)
                values.append(math.log(math.exp(line[positive]) + others) - line[positive])
        found.append(max(values) if values else None)
    return found


def largest(values: Numbers, size: int) -> set[int]:
    """The places of the `size` largest."""
    return set(sorted(range(len(values)), key=lambda place: -values[place])[:size])
