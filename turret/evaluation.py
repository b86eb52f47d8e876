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
        For each k: `hr@k`, `recall@k`, `ndcg@k`, `mrr@k` and `map@k` as `{"mean", "low", "high"}`, with 95 %
        intervals over users, and `coverage@k`. The lower row wins ties. docs/evaluation.md defines all.

    Raises:
        TurretError: shapes don't fit, a vector or a score is not finite in float32, a user has no target,
            a row is outside of the catalog, or k below 1.
    """
    user_vectors, item_vectors = as_vectors("users", users), as_vectors("items", items)
    _check(user_vectors, item_vectors, targets, seen)
    if not len(k) or not 1 <= min(k) <= max(k) < 2**31:
        raise TurretError(f"k is {k}; give whole numbers of at least 1")
    lengths = [len(set(rows)) for rows in targets]
    relevant = Relevant(
        np.arange(len(user_vectors)),
        np.concatenate([np.unique(np.asarray(rows, dtype=np.int64)) for rows in targets]),
        np.concatenate([[0], np.cumsum(lengths)]),
    )
    ranked: Iterator[dict[Slot, NDArray[np.int64]]] = (
        {"all": rows} for rows in _rank(user_vectors, item_vectors, seen, max(k))
    )
    (values,), coverage = measure(ranked, [("all", relevant)], k, len(item_vectors), "ranking")
    return {**coverage, **summarise(values)}


def _rank(
    users: NDArray[np.float32], items: NDArray[np.float32], seen: ItemRows | None, k: int
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
        for index, rows in enumerate(seen[first : first + len(scores)] if seen else ()):
            scores[index, list(rows)] = -np.inf
        yield top_rows(torch.from_numpy(scores), k).numpy()


def _check(
    users: NDArray[np.float32], items: NDArray[np.float32], targets: ItemRows, seen: ItemRows | None
) -> None:
    if users.shape[1] != items.shape[1] or not len(users):
        raise TurretError(f"users {users.shape} and items {items.shape} don't fit; give [U, D] and [N, D]")
    for name, lists in (("targets", targets), ("seen", seen)):
        if lists is None:
            continue
        if len(lists) != len(users):
            raise TurretError(f"{name} has {len(lists)} lists for {len(users)} users; give one a user")
        for user, rows in enumerate(lists):
            if not np.iterable(rows) or not all(
                isinstance(row, int | np.integer) and not isinstance(row, bool) and 0 <= row < len(items)
                for row in rows
            ):
                raise TurretError(
                    f"{name}[{user}] needs rows of items: whole numbers from 0 to {len(items) - 1}"
                )
            if name == "targets" and not len(rows):
                raise TurretError(f"targets[{user}] is empty; leave out users without a target")
