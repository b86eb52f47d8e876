"""Recommendations of a run's model: the first k items of each user, examples, spread, and nearest items."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.tower.towers.model import TwoTowers
from turret.training.evaluation.evaluation import EvaluatedPart, hits_of, relevant_items
from turret.training.evaluation.ranking import rank
from turret.training.randomness import stream
from turret.training.run import Run

Counts = NDArray[np.int64]
# The number of examples, and for each the most of its newest events and of its targets that are shown.
EXAMPLES, NEWEST, MOST_TARGETS = 8, 6, 6
GROUPS = 10
ITEMS, NEAREST = 6, 5
TITLES = ("title", "name")
# Texts that several items share are no titles.
_DISTINCT, _SAMPLED = 0.5, 1000
_LONGEST, _MOST_DETAILS = 100, 3


def recommendations(run: Run, data: PreparedData, part: EvaluatedPart, k: int) -> dict[str, Any]:
    """Rank the catalog as `turret evaluate` does, and describe the first `k` items of every user.

    Returns:
        `examples`: users drawn at random, half of them with a hit among the first k, as far as there are
        such users. Each has the rows of the newest items of the `history`, of the `recommended` items with
        their `hits`, and of the `targets`. `target_ranks` are ranks from 1 in the whole catalog, None for a
        target that is masked because the user had used it.
        `spread`: the result of `spread` for the recommended items of all users, the targets, and the training
        events. `neighbours`: the result of `nearest_items`.

    Raises:
        TrainingError: the run has no model yet, or the part is empty.
    """
    relevant, scores_of = relevant_items(data, part), run.open_ranker(data, part)
    count, seed = len(data.item_ids), run.experiment.training.seed
    seen = run.experiment.evaluation.exclude_seen
    blocks = []
    with progress("listing recommendations", len(relevant.users)) as advance:
        for block in rank(scores_of, data, relevant.users, part, k, seen):
            blocks.append(block["all"])
            advance(len(blocks[-1]))
    rows = np.concatenate(blocks)
    hits = hits_of(rows, relevant, 0, count)

    random, has_hit = stream(seed, "examples", 0), np.any(hits, axis=1)
    hit, missed = (random.permutation(np.flatnonzero(has_hit == wanted)) for wanted in (True, False))
    with_hit = min(len(hit), max(EXAMPLES // 2, EXAMPLES - len(missed)))
    drawn = np.concatenate([hit[:with_hit], missed[: EXAMPLES - with_hit]])
    # The whole catalog is ranked; -1 stands behind the items that are not masked.
    ranked = rank(scores_of, data, relevant.users[drawn], part, count, seen)
    whole = np.concatenate([block["all"] for block in ranked])
    popularity = data.item_counts("train")
    return {
        "examples": [
            _example(data, part, int(relevant.users[index]), rows[index], hits[index], order)
            for index, order in zip(drawn, whole, strict=True)
        ],
        "spread": {
            "recommendations": spread(np.bincount(rows[rows >= 0], minlength=count), popularity),
            "items that came": spread(np.bincount(relevant.rows, minlength=count), popularity),
            "training events": spread(popularity, popularity),
        },
        "neighbours": nearest_items(run.open_model(data), popularity, seed),
    }


def _example(
    data: PreparedData,
    part: EvaluatedPart,
    user: int,
    rows: NDArray[np.int64],
    hits: NDArray[np.bool_],
    order: NDArray[np.int64],
) -> dict[str, Any]:
    history = data.history(user, part)
    targets = list(dict.fromkeys(data.targets(user, part).tolist()))
    rank_of = {int(row): place for place, row in enumerate(order, start=1) if row >= 0}
    return {
        "user": data.users.id(user),
        "history": history[-NEWEST:].tolist(),
        "history_length": len(history),
        "recommended": rows[rows >= 0].tolist(),
        "hits": hits[rows >= 0].tolist(),
        "has_hit": bool(hits.any()),
        "targets": targets[:MOST_TARGETS],
        "target_ranks": [rank_of.get(row) for row in targets[:MOST_TARGETS]],
        "target_count": len(targets),
    }


def spread(counts: Counts, popularity: Counts) -> dict[str, Any]:
    """The distribution of occurrences `counts` [N] of items with `popularity` [N] training events.

    Returns:
        `shares` of occurrences in each tenth of the items, most popular ones first; `coverage`, the share of
        items that occur at all; `gini`, the Gini coefficient of occurrences: 0 if all items occur equally
        often, near 1 if one has all; `popularity`, the mean number of training events of an occurrence.
    """
    total, size = max(int(counts.sum()), 1), len(counts)
    order = np.argsort(-popularity, kind="stable")
    groups = np.array_split(counts[order], min(GROUPS, size))
    ranks = np.arange(1, size + 1)
    return {
        "shares": [float(group.sum() / total) for group in groups],
        "coverage": float((counts > 0).mean()),
        # The Gini coefficient is half the mean absolute difference over the mean.
        "gini": float((2 * ranks - size - 1) @ np.sort(counts) / (size * total)),
        "popularity": float((counts * popularity).sum() / total),
    }


def nearest_items(model: TwoTowers, popularity: Counts, seed: int) -> dict[str, list[dict[str, Any]]]:
    """The nearest items of the most popular items, and of some of the rarest tenth of those with an event.

    The similarity is the inner product of item vectors without biases, which is the cosine for towers that
    score by it, as in `GET /v1/items/{id}/similar`.
    """
    used = np.argsort(-popularity, kind="stable")[: int((popularity > 0).sum())]
    popular, rest = used[:ITEMS], used[ITEMS:]
    rarest = rest[-max(ITEMS, len(used) // 10) :]
    drawn = stream(seed, "rare items", 0).permutation(rarest)[:ITEMS]
    with torch.no_grad():
        vectors: NDArray[np.float32] = model.eval().catalog_vectors().float().cpu().numpy()
    if model.config.scoring.item_bias:
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

    The title is the field that `data prepare --title` named, else a text field with the usual name, else the
    first one with mostly distinct texts. Details are the first other fields as texts.
    """
    distinct = {}
    for name, values in data.fields.items():
        known = [value for value in values[:_SAMPLED] if value is not None]
        if known and all(isinstance(value, str) for value in known):
            distinct[name] = len(set(known)) / len(known)
    usual = [name for title in TITLES for name in distinct if name.lower() == title]
    named_field = [data.display.title] if data.display.title else []
    title_field = next(
        iter([*named_field, *usual, *(name for name, share in distinct.items() if share > _DISTINCT)]), ""
    )

    def named(row: int) -> dict[str, Any]:
        texts = {name: _text(values[row]) for name, values in data.fields.items()}
        title = texts.pop(title_field, None) or None
        details = [text for text in texts.values() if text][:_MOST_DETAILS]
        return {"id": data.item_ids.id(row), "title": title, "details": details}

    return named


def _text(value: Any) -> str:
    """A value of the catalog as one short line."""
    if value is None:
        return ""
    listed = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    line = " ".join(listed[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
