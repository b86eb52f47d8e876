"""A repeat term with random weights, a bundle that has it, and the gains once more, by loops."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.conftest import contents, golden_of
from turret.tower.bundle.publish import BundleContents
from turret.tower.repeats import RepeatTerm, RepeatWeights

SIZES = {"recency": 11, "share": 8, "length": 11, "age": 24, "due": 18}
SIZES |= {"recency of 0": 12, "recency of 1": 12, "age of 0": 25, "age of 1": 25}
TEMPERATURE = 0.5


def weights(seed: int, timed: bool) -> RepeatWeights:
    random = np.random.default_rng(seed)
    names = [name for name in SIZES if timed or not name.startswith(("age", "due"))]
    classes = {name: tuple(random.normal(size=SIZES[name]).tolist()) for name in names}
    return RepeatWeights(slope=-0.25, numbers={"count": 0.7, "popularity": 0.3}, classes=classes)


TERM = RepeatTerm(untimed=weights(1, False), timed=weights(2, True), kinds=2)


def gains(
    rows: Sequence[int],
    scores: NDArray[np.float64],
    popularity: NDArray[np.int64],
    times: Sequence[float] | None = None,
    asked: float = 0.0,
    kinds: Sequence[int] | None = None,
) -> dict[int, float]:
    """What each item of a history of `rows`, oldest first, gains by `TERM` over its score."""
    own = TERM.untimed if times is None else TERM.timed
    assert own is not None
    found = {}
    for row in set(rows):
        places = [place for place, one in enumerate(rows) if one == row]
        events = popularity[row] if row < len(popularity) else 0
        classes = {
            "recency": int(math.log2(len(rows) - places[-1])),
            "share": int(8 * (len(rows) - len(set(rows)) + 0.5) / (len(rows) + 1)),
            "length": int(math.log2(len(rows))),
        }
        if times is not None:
            first, last = times[places[0]], times[places[-1]]
            classes["age"] = int(math.log2(1 + (asked - last) / 60))
            classes["due"] = 0
            if last > first:
                between = (last - first) / (len(places) - 1)
                halves = math.floor(2 * math.log2((asked - last) / between)) if asked > last else -8
                classes["due"] = 9 + min(8, max(-8, halves))
        for kind in (0, 1) if kinds is not None else ():
            of_kind = [place for place in places if kinds and kinds[place] == kind]
            ago = 1 + int(math.log2(len(rows) - of_kind[-1])) if of_kind else 0
            classes[f"recency of {kind}"] = ago
            if times is not None:
                age = 1 + int(math.log2(1 + (asked - times[of_kind[-1]]) / 60)) if of_kind else 0
                classes[f"age of {kind}"] = age
        found[row] = (
            own.slope * scores[row]
            + own.numbers["count"] * math.log(len(places))
            + own.numbers["popularity"] * math.log(1 + events)
            + sum(own.classes[name][code] for name, code in classes.items())
        )
    return found


def ranking(
    bundle: Any, rows: Sequence[int], times: Sequence[float] | None = None, asked: float = 0.0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All items by their scores with gains, best first, for the mean of a history: rows and scores."""
    vectors = np.array(bundle.item_vectors, dtype=np.float64)
    mean = vectors[list(rows)[-bundle.card.history_length :]].mean(axis=0)
    scores = vectors @ (mean / np.linalg.norm(mean)) / TEMPERATURE
    for row, gain in gains(rows, scores.copy(), bundle.popularity, times, asked).items():
        scores[row] += gain
    order = np.argsort(-scores, kind="stable")
    return order, scores[order]


def repeating(version: str = "v1") -> BundleContents:
    """The usual bundle with `TERM`, which ranks used items too."""
    usual = contents(version, temperature=TEMPERATURE, repeats=TERM, exclude_seen=False)
    return replace(usual, golden=golden_of(usual.vocabulary, lambda rows: ranking(usual, rows)))
