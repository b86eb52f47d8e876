"""Ranking metrics of any model's vectors: `turret.evaluate`."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from turret.arguments import as_vectors, checked
from turret.data.errors import TurretError
from turret.tower.repeats import Slot
from turret.training.evaluation.evaluation import Relevant, measure, summarise
from turret.training.evaluation.ranking import USERS_A_BLOCK
from turret.training.evaluation.top_rows import top_rows

ItemRows = Sequence[Sequence[int]]


@checked
def evaluate(
    users: ArrayLike,
    items: ArrayLike,
    targets: ItemRows,
    *,
    seen: ItemRows | None = None,
    k: Sequence[int] = (10, 20, 50),
) -> dict[str, dict[str, float] | float]:
    """Rank the whole catalog for each user by inner product, and compare with the user's targets.

    Args:
        users: user vectors, float32 [U, D].
        items: item vectors, float32 [N, D].
        targets: for each user the item rows to find, at least one.
        seen: for each user the item rows to leave out of the ranking.
        k: the cut-offs.

    Returns:
        For each k: the metrics of a ranking, such as `ndcg@k`, as `{"mean", "low", "high"}`, with 95 %
        intervals over users, and `coverage@k`. The lower row wins ties. docs/evaluation.md defines all.

    Raises:
        TurretError: shapes don't fit, a vector or a score is not finite in float32, a user has no target,
            a row is outside of the catalog, or k below 1.
    """
    user_vectors, item_vectors = as_vectors("users", users), as_vectors("items", items)
    if user_vectors.shape[1] != item_vectors.shape[1] or not len(user_vectors):
        raise TurretError(
            f"users {user_vectors.shape} and items {item_vectors.shape} don't fit; give [U, D] and [N, D]"
        )
    wanted = _rows("targets", targets, len(user_vectors), len(item_vectors))
    used = None if seen is None else _rows("seen", seen, len(user_vectors), len(item_vectors))
    if (empty := next((user for user, rows in enumerate(wanted) if not len(rows)), None)) is not None:
        raise TurretError(f"targets[{empty}] is empty; leave out users without a target")
    if not len(k) or not 1 <= min(k) <= max(k) < 2**31:
        raise TurretError(f"k is {k}; give whole numbers of at least 1")
    lengths = [len(rows) for rows in wanted]
    relevant = Relevant(
        np.arange(len(user_vectors)), np.concatenate(wanted), np.concatenate([[0], np.cumsum(lengths)])
    )
    ranked: Iterator[dict[Slot, NDArray[np.int64]]] = (
        {"all": rows} for rows in _rank(user_vectors, item_vectors, used, max(k))
    )
    (values,), coverage = measure(ranked, [("all", relevant)], k, len(item_vectors), "ranking")
    return {**coverage, **summarise(values)}


def _rank(
    users: NDArray[np.float32], items: NDArray[np.float32], seen: list[NDArray[np.int64]] | None, k: int
) -> Iterator[NDArray[np.int64]]:
    """The k best rows of each user, in blocks of users."""
    for first in range(0, len(users), USERS_A_BLOCK):
        with np.errstate(over="ignore", invalid="ignore"):
            scores = users[first : first + USERS_A_BLOCK] @ items.T
        finite = np.isfinite(scores).all(axis=1)
        if not finite.all():
            user = first + int(np.argmin(finite))
            raise TurretError(
                f"users[{user}] has scores beyond float32, which would all tie; divide users or items by a "
                "constant, which changes no ranking"
            )
        for number, rows in enumerate(seen[first : first + len(scores)] if seen else ()):
            scores[number, rows] = -np.inf
        yield top_rows(torch.from_numpy(scores), k).numpy()


def _rows(name: str, lists: ItemRows, users: int, items: int) -> list[NDArray[np.int64]]:
    """The distinct rows of each user. Raises TurretError unless each user has one list of item rows."""
    user_lists = list(lists)
    if len(user_lists) != users:
        raise TurretError(f"{name} has {len(user_lists)} lists for {users} users; give one a user")
    distinct = []
    for user, rows in enumerate(user_lists):
        item_rows = list(rows) if np.iterable(rows) else [None]
        if not all(
            isinstance(row, int | np.integer) and not isinstance(row, bool) for row in item_rows
        ) or not all(0 <= row < items for row in item_rows):
            raise TurretError(f"{name}[{user}] needs rows of items: whole numbers from 0 to {items - 1}")
        distinct.append(np.unique(np.array(item_rows, dtype=np.int64)))
    return distinct
