"""What a run's model recommends: the first k items of every user, examples, their spread, nearest items."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.tower.towers.model import TwoTowers
from turret.training.evaluation.evaluation import EvaluatedPart, Relevant, hits_of, relevant_items
from turret.training.evaluation.ranking import ScoresOf, rank, tower_scores
from turret.training.randomness import stream
from turret.training.run import Run

Counts = NDArray[np.int64]
# An example has so many of the newest events, and at most so many targets.
EXAMPLES, NEWEST, MOST_TARGETS = 8, 6, 6
GROUPS = 10
ITEMS, NEAREST = 6, 5


@dataclass(frozen=True)
class Rankings:
    """What the model of a run recommends on one part.

    Attributes:
        model: the trained towers.
        relevant: the users and their targets.
        rows: int32 [U, K], the recommended item rows, -1 for none.
        hits: bool [U, K], which of them are targets.
        scores_of: the model's scores, for further rankings.
    """

    data: PreparedData
    part: EvaluatedPart
    exclude_seen: bool
    model: TwoTowers
    relevant: Relevant
    rows: NDArray[np.int32]
    hits: NDArray[np.bool_]
    scores_of: ScoresOf

    def order(self, users: NDArray[np.int64]) -> NDArray[np.int64]:
        """The whole catalog ranked for a few user rows [V]: item rows [V, N], -1 behind masked ones."""
        count = len(self.data.item_ids)
        ranked = rank(self.scores_of, self.data, users, self.part, count, self.exclude_seen)
        return np.concatenate([block.rows for block in ranked])


def rankings_of(run: Run, data: PreparedData, part: EvaluatedPart, k: int) -> Rankings:
    """Rank the catalog as `turret evaluate` does, and keep the first `k` items of every user.

    Raises:
        TrainingError: the run has no model yet, or the part is empty.
    """
    model, relevant = run.map_model(data), relevant_items(data, part)
    scores_of = tower_scores(model, data, part, data.item_counts("train"), run.open_scores(data))
    exclude_seen, item_count = run.experiment.evaluation.exclude_seen, len(data.item_ids)
    rows = np.full((len(relevant.users), k), -1, dtype=np.int32)
    hits = np.zeros((len(relevant.users), k), dtype=bool)
    done = 0
    with progress("listing recommendations", len(relevant.users)) as advance:
        for block in rank(scores_of, data, relevant.users, part, k, exclude_seen):
            place = (slice(done, done + len(block.users)), slice(block.rows.shape[1]))
            rows[place] = block.rows
            hits[place] = hits_of(block.rows, relevant, done, item_count)
            done += len(block.users)
            advance(len(block.users))
    return Rankings(data, part, exclude_seen, model, relevant, rows, hits, scores_of)


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

    @property
    def has_hit(self) -> bool:
        """Whether a recommended item came."""
        return any(self.hits)


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


@dataclass(frozen=True)
class Spread:
    """The distribution of some item occurrences over the catalog.

    Attributes:
        shares: the share of occurrences in each tenth of the items, most popular items first.
        coverage: the share of items that occur at all.
        gini: the Gini coefficient of occurrences: 0 if all items occur equally often, near 1 if one has all.
        popularity: the mean number of training events of an occurring item.
    """

    shares: list[float]
    coverage: float
    gini: float
    popularity: float


@dataclass(frozen=True)
class Exposure:
    """The spread of training events, of targets and of the recommended items of all users."""

    events: Spread
    targets: Spread
    recommended: Spread


def exposure(rankings: Rankings) -> Exposure:
    """Count how often each item is recommended among the first k, and compare with the data."""
    popularity = rankings.data.item_counts("train")
    count = len(popularity)
    shown = rankings.rows[rankings.rows >= 0]
    return Exposure(
        events=spread(popularity, popularity),
        targets=spread(np.bincount(rankings.relevant.rows, minlength=count), popularity),
        recommended=spread(np.bincount(shown, minlength=count), popularity),
    )


def spread(counts: Counts, popularity: Counts) -> Spread:
    """The spread of occurrences `counts` [N] of items with `popularity` [N] training events."""
    total = max(int(counts.sum()), 1)
    order = np.argsort(-popularity, kind="stable")
    groups = np.array_split(counts[order], min(GROUPS, len(counts)))
    return Spread(
        shares=[float(group.sum() / total) for group in groups],
        coverage=float((counts > 0).mean()),
        gini=gini(counts),
        popularity=float((counts * popularity).sum() / total),
    )


def gini(counts: Counts) -> float:
    """The Gini coefficient of counts [N]: half the mean absolute difference over the mean; 0 of none."""
    total, size = int(counts.sum()), len(counts)
    if not total:
        return 0.0
    ranks = np.arange(1, size + 1)
    return float((2 * ranks - size - 1) @ np.sort(counts) / (size * total))


@dataclass(frozen=True)
class Neighbours:
    """An item row, its training events, and the rows of its nearest items with their similarity."""

    row: int
    events: int
    nearest: list[int]
    similarities: list[float]


def nearest_items(rankings: Rankings, seed: int) -> tuple[list[Neighbours], list[Neighbours]]:
    """The nearest items of the most popular items, and of some of the rarest tenth of those with an event.

    The similarity is the inner product of item vectors without biases, which is the cosine for towers that
    score by it, as in `GET /v1/items/{id}/similar`.
    """
    popularity = rankings.data.item_counts("train")
    used = np.argsort(-popularity, kind="stable")[: int((popularity > 0).sum())]
    popular = used[:ITEMS]
    rest = used[len(popular) :]
    rarest = rest[-max(ITEMS, len(used) // 10) :]
    drawn = stream(seed, "rare items", 0).permutation(rarest)[:ITEMS]
    vectors = _vectors(rankings)
    return _neighbours(popular, vectors, popularity), _neighbours(drawn, vectors, popularity)


def _vectors(rankings: Rankings) -> NDArray[np.float32]:
    """Item vectors [N, D] without the column of biases."""
    with torch.no_grad():
        vectors: NDArray[np.float32] = rankings.model.eval().catalog_vectors().float().cpu().numpy()
    return vectors[:, :-1] if rankings.model.config.scoring.item_bias else vectors


def _neighbours(
    rows: NDArray[np.int64], vectors: NDArray[np.float32], popularity: NDArray[np.int64]
) -> list[Neighbours]:
    found = []
    for row in rows.tolist():
        products = vectors @ vectors[row]
        products[row] = -np.inf
        order = np.argsort(-products, kind="stable")[: min(NEAREST, len(products) - 1)]
        found.append(Neighbours(row, int(popularity[row]), order.tolist(), products[order].tolist()))
    return found
