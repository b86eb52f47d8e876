"""Groups of users by their history and their first target, for which metrics are reported too."""

import numpy as np
from numpy.typing import NDArray

HISTORY_EDGES = (0, 1, 10, 50, 200)
HEAD_SHARE, TORSO_SHARE = 1 / 3, 2 / 3
USED, NEW = "item used before", "item new to the user"


def slices(
    history_lengths: NDArray[np.int64],
    popularity: NDArray[np.int64],
    targets: NDArray[np.int64],
    used_before: NDArray[np.bool_],
) -> dict[str, NDArray[np.bool_]]:
    """Group users by the length of their history, the popularity of their first target, and its earlier use.

    Head, torso and tail items each have about a third of the training events; a cold item has none. Where
    nobody has used the target before, there is no group of earlier use.

    Args:
        history_lengths: int64 [U].
        popularity: int64 [N], training events of each item.
        targets: int64 [U], an item row for each user.
        used_before: bool [U], whether it is in the user's history.

    Returns:
        bool [U] for each group with members, by a name such as `history 10-49` or `target tail`.
    """
    groups = {}
    for low, high in zip(HISTORY_EDGES, [*HISTORY_EDGES[1:], None], strict=True):
        members = (history_lengths >= low) & (history_lengths < (np.inf if high is None else high))
        groups[_history_name(low, high)] = members
    kinds = popularity_kinds(popularity)[targets]
    for kind, name in enumerate(("head", "torso", "tail", "cold")):
        groups[f"target {name}"] = kinds == kind
    if used_before.any():
        groups |= {USED: used_before, NEW: ~used_before}
    return {name: members for name, members in groups.items() if members.any()}


def popularity_kinds(popularity: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 for head, 1 for torso, 2 for tail, 3 for cold items: int64 [N]."""
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]
    share = before / max(int(popularity.sum()), 1)
    kinds = np.empty(len(popularity), dtype=np.int64)
    kinds[order] = np.searchsorted([HEAD_SHARE, TORSO_SHARE], share, side="right")
    kinds[popularity == 0] = 3
    return kinds


def _history_name(low: int, high: int | None) -> str:
    if high is None:
        return f"history {low}+"
    return f"history {low}" if high == low + 1 else f"history {low}-{high - 1}"
