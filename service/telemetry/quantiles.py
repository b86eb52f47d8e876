"""Quantiles of histograms."""

from collections.abc import Sequence


def quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float | None:
    """Estimate a quantile from the counts of buckets with upper `bounds`, and of one bucket above them.

    Linear within a bucket, and the highest bound for the last one, as Prometheus' `histogram_quantile`. None
    without any count.
    """
    total = sum(counts)
    if not total:
        return None
    wanted, below = share * total, 0.0
    for position, upper in enumerate(bounds):
        if counts[position] and below + counts[position] >= wanted:
            lower = bounds[position - 1] if position else 0.0
            return lower + (upper - lower) * (wanted - below) / counts[position]
        below += counts[position]
    return bounds[-1]
