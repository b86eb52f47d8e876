"""Examples of histories, with the recommended items and those that came."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.training.inspection.rankings import Rankings
from turret.training.randomness import stream

EXAMPLES, NEWEST, MOST_TARGETS = 8, 6, 6


@dataclass(frozen=True)
class Example:
    """One user: rows of the newest items of the history, of the recommended items, and of the targets.

    `hits` says which recommended items came. `target_ranks` are ranks from 1 in the whole catalog, None for a
    target that is masked because the user had used it. `history_length` and `target_count` count all.
    """

    user: int | str
    history: list[int]
    history_length: int
    recommended: list[int]
    hits: list[bool]
    targets: list[int]
    target_ranks: list[int | None]
    target_count: int


def examples(rankings: Rankings, seed: int, most: int = EXAMPLES) -> list[Example]:
    """Draw users at random: half of them with a hit among the first k, as far as there are such users."""
    indices = _drawn(np.any(rankings.hits, axis=1), seed, most)
    order = rankings.order(rankings.relevant.users[indices])
    return [_example(rankings, int(index), ranked) for index, ranked in zip(indices, order, strict=True)]


def _drawn(has_hit: NDArray[np.bool_], seed: int, most: int) -> NDArray[np.int64]:
    random = stream(seed, "examples", 0)
    hit, missed = (random.permutation(np.flatnonzero(has_hit == wanted)) for wanted in (True, False))
    hits = min(len(hit), max(most // 2, most - len(missed)))
    return np.concatenate([hit[:hits], missed[: most - hits]])


def _example(rankings: Rankings, index: int, ranked: NDArray[np.int64]) -> Example:
    data, relevant = rankings.data, rankings.relevant
    user = int(relevant.users[index])
    history = data.history(user, rankings.part)
    targets = list(dict.fromkeys(data.targets(user, rankings.part).tolist()))
    shown = targets[:MOST_TARGETS]
    rank_of = {int(row): rank for rank, row in enumerate(ranked, start=1) if row >= 0}
    recommended = rankings.rows[index]
    exists = recommended >= 0
    return Example(
        user=data.users.id(user),
        history=history[-NEWEST:].tolist(),
        history_length=len(history),
        recommended=recommended[exists].tolist(),
        hits=rankings.hits[index][exists].tolist(),
        targets=shown,
        target_ranks=[rank_of.get(row) for row in shown],
        target_count=len(targets),
    )
