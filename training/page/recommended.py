"""What a run's model recommends: the first k items of every user, examples, their spread, nearest items."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turret.data.kinds import Seen
from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.tower.towers.model import TwoTowers
from turret.training.evaluation.evaluation import EvaluatedPart, Relevant, hits_of, relevant_items
from turret.training.evaluation.ranking import ScoresOf, rank
from turret.training.randomness import stream
from turret.training.run import Run

Counts = NDArray[np.int64]
# An example has so many of the newest events, and at most so many targets.
EXAMPLES, NEWEST, MOST_TARGETS = 8, 6, 6
GROUPS = 10
ITEMS, NEAREST = 6, 5
TITLES = ("title", "name")
# Texts that several items share are no titles.
_DISTINCT, _SAMPLED = 0.5, 1000
_LONGEST, _MOST_DETAILS = 100, 3


@dataclass(frozen=True)
class Rankings:
    """What the model of a run recommends on one part.

    Attributes:
        model: the trained towers.
        relevant: the users and their targets.
        rows: int64 [U, K], the recommended item rows, -1 for none.
        hits: bool [U, K], which of them are targets.
        scores_of: the model's scores, for further rankings.
    """

    data: PreparedData
    part: EvaluatedPart
    exclude_seen: Seen
    model: TwoTowers
    relevant: Relevant
    rows: NDArray[np.int64]
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
    model, relevant = run.open_model(data), relevant_items(data, part)
    scores_of = run.open_ranker(data, part)
    exclude_seen, ranked = run.experiment.evaluation.exclude_seen, []
    with progress("listing recommendations", len(relevant.users)) as advance:
        for block in rank(scores_of, data, relevant.users, part, k, exclude_seen):
            ranked.append(block.rows)
            advance(len(block.users))
    rows = np.concatenate(ranked)
    hits = hits_of(rows, relevant, 0, len(data.item_ids))
    return Rankings(data, part, exclude_seen, model, relevant, rows, hits, scores_of)


def examples(rankings: Rankings, seed: int) -> list[dict[str, Any]]:
    """Draw users at random: half of them with a hit among the first k, as far as there are such users.

    Each has the rows of the newest items of the `history`, of the `recommended` items with their `hits`, and
    of the `targets`. `target_ranks` are ranks from 1 in the whole catalog, None for a target that is masked
    because the user had used it.
    """
    random, has_hit = stream(seed, "examples", 0), np.any(rankings.hits, axis=1)
    hit, missed = (random.permutation(np.flatnonzero(has_hit == wanted)) for wanted in (True, False))
    count = min(len(hit), max(EXAMPLES // 2, EXAMPLES - len(missed)))
    indices = np.concatenate([hit[:count], missed[: EXAMPLES - count]])
    order = rankings.order(rankings.relevant.users[indices])
    return [_example(rankings, int(index), ranked) for index, ranked in zip(indices, order, strict=True)]


def _example(rankings: Rankings, index: int, ranked: NDArray[np.int64]) -> dict[str, Any]:
    data = rankings.data
    user = int(rankings.relevant.users[index])
    history = data.history(user, rankings.part)
    targets = list(dict.fromkeys(data.targets(user, rankings.part).tolist()))
    rank_of = {int(row): rank for rank, row in enumerate(ranked, start=1) if row >= 0}
    exists = rankings.rows[index] >= 0
    return {
        "user": data.users.id(user),
        "history": history[-NEWEST:].tolist(),
        "history_length": len(history),
        "recommended": rankings.rows[index][exists].tolist(),
        "hits": rankings.hits[index][exists].tolist(),
        "has_hit": bool(rankings.hits[index].any()),
        "targets": targets[:MOST_TARGETS],
        "target_ranks": [rank_of.get(row) for row in targets[:MOST_TARGETS]],
        "target_count": len(targets),
    }


def exposure(rankings: Rankings) -> dict[str, dict[str, Any]]:
    """The `spread` of the recommended items of all users, of the targets, and of the training events."""
    popularity = rankings.data.item_counts("train")
    count = len(popularity)
    shown = rankings.rows[rankings.rows >= 0]
    return {
        "recommendations": spread(np.bincount(shown, minlength=count), popularity),
        "items that came": spread(np.bincount(rankings.relevant.rows, minlength=count), popularity),
        "training events": spread(popularity, popularity),
    }


def spread(counts: Counts, popularity: Counts) -> dict[str, Any]:
    """The distribution of occurrences `counts` [N] of items with `popularity` [N] training events.

    Returns:
        `shares` of occurrences in each tenth of the items, most popular ones first; `coverage`, the share of
        items that occur at all; `gini`, the Gini coefficient of occurrences: 0 if all items occur equally
        often, near 1 if one has all; `popularity`, the mean number of training events of an occurrence.
    """
    total = max(int(counts.sum()), 1)
    order = np.argsort(-popularity, kind="stable")
    groups = np.array_split(counts[order], min(GROUPS, len(counts)))
    return {
        "shares": [float(group.sum() / total) for group in groups],
        "coverage": float((counts > 0).mean()),
        "gini": gini(counts),
        "popularity": float((counts * popularity).sum() / total),
    }


def gini(counts: Counts) -> float:
    """The Gini coefficient of counts [N]: half the mean absolute difference over the mean; 0 of none."""
    total, size = int(counts.sum()), len(counts)
    if not total:
        return 0.0
    ranks = np.arange(1, size + 1)
    return float((2 * ranks - size - 1) @ np.sort(counts) / (size * total))


def nearest_items(rankings: Rankings, seed: int) -> dict[str, list[dict[str, Any]]]:
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
    with torch.no_grad():
        vectors: NDArray[np.float32] = rankings.model.eval().catalog_vectors().float().cpu().numpy()
    if rankings.model.config.scoring.item_bias:
        vectors = vectors[:, :-1]

    def neighbours(row: int) -> dict[str, Any]:
        products = vectors @ vectors[row]
        products[row] = -np.inf
        order = np.argsort(-products, kind="stable")[: min(NEAREST, len(products) - 1)]
        near = list(zip(order.tolist(), products[order].tolist(), strict=True))
        return {"row": row, "events": int(popularity[row]), "nearest": near}

    chosen = {"Of the most popular items": popular, "Of rare items": drawn}
    return {heading: [neighbours(row) for row in rows.tolist()] for heading, rows in chosen.items()}


def item_namer(data: PreparedData) -> Callable[[int], dict[str, Any]]:
    """Return a function that names an item row: its `id`, `title` (None without one) and `details`.

    Details are the first other fields as texts.
    """
    title_field = title_of(data.fields)

    def named(row: int) -> dict[str, Any]:
        texts = {name: _text(values[row]) for name, values in data.fields.items()}
        title = texts.pop(title_field, None) or None
        details = [text for text in texts.values() if text][:_MOST_DETAILS]
        return {"id": data.item_ids.id(row), "title": title, "details": details}

    return named


def title_of(fields: dict[str, list[Any]]) -> str:
    """A text field with the usual name of a title, else the first one with mostly distinct texts, else ""."""
    texts = {}
    for name, values in fields.items():
        known = [value for value in values[:_SAMPLED] if value is not None]
        if known and all(isinstance(value, str) for value in known):
            texts[name] = len(set(known)) / len(known)
    usual = [name for title in TITLES for name in texts if name.lower() == title]
    return next(iter([*usual, *(name for name, share in texts.items() if share > _DISTINCT)]), "")


def _text(value: Any) -> str:
    """A value of the catalog as one short line."""
    if value is None:
        return ""
    listed = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    line = " ".join(listed[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
