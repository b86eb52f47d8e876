"""Metrics with one value per user, their intervals, and the groups of users that they are reported for too.

The gate of activations imports this module, so it imports no torch.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from turret.training.config.metric import METRICS

Values = NDArray[np.float64]

# An interval over fewer users decides nothing: their values may not even show how they spread.
LEAST_USERS = 30
HISTORY_EDGES = (0, 1, 10, 50, 200)
HEAD_SHARE, TORSO_SHARE = 1 / 3, 2 / 3
# The group of users without a history, who get popular items.
STRANGERS = "history 0"
USED, NEW = "item used before", "item new to the user"


def metrics_at(hits: NDArray[np.bool_], relevant: NDArray[np.int64], ks: Sequence[int]) -> dict[str, Values]:
    """Every metric of `METRICS` at every k, by name such as `ndcg@10`.

    Args:
        hits: bool [U, K], whether the item at each rank is relevant; ranks beyond K count as misses.
        relevant: int64 [U], the number of relevant items of each user, at least 1.
        ks: the cut-offs.

    Returns:
        float64 [U] for each name.
    """
    return {f"{name}@{k}": metric(hits[:, :k], relevant, k) for k in ks for name, metric in METRICS.items()}


def mean_interval(values: Values, ends: tuple[float, float] = (0.0, 1.0)) -> tuple[float, float]:
    """The 95 % interval of the mean over users, by Student's t.

    Two values are added to those of the users [U], one at each of the `ends` of the values' range, as few
    users may show none of the rare values, such as hits (Agresti & Coull 1998). Without the two, and by the
    percentiles of a bootstrap, the interval of 30 users with a rate of 0.05 covers the rate in 80 % of cases.
    """
    padded = np.append(values, ends)
    half_width = _t_quantile(len(padded) - 1) * float(padded.std(ddof=1)) / sqrt(len(padded))
    mean = float(padded.mean())
    return max(mean - half_width, ends[0]), min(mean + half_width, ends[1])


def difference_interval(values: Values) -> tuple[float, float]:
    """The 95 % interval of the mean of paired differences [U].

    The two added values are a gain and a loss as large as the largest difference (Bonett & Price 2012).
    """
    largest = float(np.abs(values).max())
    return mean_interval(values, (-largest, largest))


def _t_quantile(degrees: int) -> float:
    """The 0.975 quantile of Student's t, expanded around the normal's (Abramowitz & Stegun 1964, 26.7.5)."""
    z = 1.959963984540054
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return float(sum(term / degrees**power for power, term in enumerate(terms)))


def slices(
    history_lengths: NDArray[np.int64],
    popularity: NDArray[np.int64],
    targets: NDArray[np.int64],
    used_before: NDArray[np.bool_],
) -> dict[str, NDArray[np.bool_]]:
    """Group users by the length of their history, the popularity of their first target, and its earlier use.

    Args:
        history_lengths: int64 [U].
        popularity: int64 [N], training events of each item.
        targets: int64 [U], an item row for each user.
        used_before: bool [U], whether that item is in the user's history.

    Returns:
        bool [U] for each group with members, by a name such as `history 10-49` or `target tail`.
    """
    groups = {}
    for low, high in zip(HISTORY_EDGES, [*HISTORY_EDGES[1:], None], strict=True):
        end = "+" if high is None else "" if high == low + 1 else f"-{high - 1}"
        members = (history_lengths >= low) & (history_lengths < (np.inf if high is None else high))
        groups[f"history {low}{end}"] = members
    kinds = popularity_kinds(popularity)[targets]
    for kind, name in enumerate(("head", "torso", "tail", "cold")):
        groups[f"target {name}"] = kinds == kind
    if used_before.any():
        groups |= {USED: used_before, NEW: ~used_before}
    return {name: members for name, members in groups.items() if members.any()}


def popularity_kinds(popularity: NDArray[np.int64]) -> NDArray[np.int64]:
    """The kind of each item: 0 for head, 1 for torso, 2 for tail, 3 for cold items: int64 [N]."""
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]
    share = before / max(int(popularity.sum()), 1)
    kinds = np.empty(len(popularity), dtype=np.int64)
    kinds[order] = np.searchsorted([HEAD_SHARE, TORSO_SHARE], share, side="right")
    kinds[popularity == 0] = 3
    return kinds
