"""Rules of pairs with settings to tune: EASE, item-kNN and RP3beta on the recent events of a log.

All read a matrix of users and items whose entries decay with the age of the newest event of the pair, and
rank by its product with a matrix of items; items without a score follow by their decayed popularity.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.data.ranges import ranges
from turret.training.baselines.pair_models import MOST_ITEMS, ease_weights
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.evaluation.ranking import ScoresOf

Numbers = NDArray[np.float32]
SHRINKAGE, BETA = 10.0, 0.6
_ITEMS_A_BLOCK = 512


@dataclass(frozen=True)
class Setting:
    """The setting of a rule's `own`, and those that all share.

    `window` and `half_life` are shares of the time of the log, 0 for none; `again` is the factor of a used
    item's own weight, the share of its users who have used it several times.
    """

    own: float
    window: float = 0.0
    half_life: float = 0.0
    again: float = 0.0


@dataclass(frozen=True)
class Pairs:
    """The pairs of users and items before a part of the data.

    Attributes:
        weights: sparse float32 [U, N], what is left of the newest event of each pair.
        repeaters: float32 [N], the share of an item's users who have used it several times.
    """

    weights: Any
    repeaters: Numbers

    @classmethod
    def before(cls, data: PreparedData, part: EvaluatedPart, setting: Setting) -> "Pairs":
        """The pairs of the events in the window of `setting`."""
        starts, ends = np.asarray(data.offsets[:-1]), data.history_ends(part)
        events = ranges(starts, ends - starts)
        log = pl.DataFrame(
            {
                "user": np.repeat(np.arange(len(starts)), ends - starts),
                "item": np.asarray(data.event_items[events]).astype(np.int64),
                "time": np.asarray(data.times[events]).astype(np.float64),
            }
        )
        newest, oldest = log["time"].max(), log["time"].min()
        assert isinstance(newest, float)
        assert isinstance(oldest, float)
        age = (newest - pl.col("time")) / max(newest - oldest, 1.0)
        if setting.window:
            log = log.filter(age <= setting.window)
        left = pl.lit(0.5) ** (age / setting.half_life) if setting.half_life else pl.lit(1.0)
        pairs = log.group_by("user", "item").agg(weight=left.max(), count=pl.len())
        shape = (len(starts), len(data.item_ids))
        entries = pairs["weight"].cast(pl.Float32).to_numpy()
        items, is_again = pairs["item"].to_numpy(), (pairs["count"] > 1).to_numpy()
        weights = csr_matrix((entries, (pairs["user"].to_numpy(), items)), shape=shape)
        counts = np.bincount(items, minlength=shape[1])
        again = np.bincount(items[is_again], minlength=shape[1]) / np.maximum(counts, 1)
        return cls(weights, again.astype(np.float32))

    @property
    def masses(self) -> Numbers:
        """The decayed number of users of each item: float32 [N]."""
        masses: Numbers = np.asarray(self.weights.sum(axis=0), dtype=np.float32)[0]
        return masses


def ease(pairs: Pairs, own: float) -> Any:
    """The weights of EASE (Steck 2019) on the most used items; `own` is the regularisation."""
    kept = np.sort(np.argsort(-pairs.masses, kind="stable")[:MOST_ITEMS])
    counts = (pairs.weights[:, kept].T @ pairs.weights[:, kept]).toarray().astype(np.float32)
    within = csr_matrix(ease_weights(counts, own).numpy())
    count = pairs.weights.shape[1]
    places = csr_matrix(
        (np.ones(len(kept), np.float32), (kept, np.arange(len(kept)))), shape=(count, len(kept))
    )
    return places @ within @ places.T


def item_knn(pairs: Pairs, own: float) -> Any:
    """The shrunk cosines of the `own` nearest items of each."""
    norms = np.sqrt(np.asarray(pairs.weights.multiply(pairs.weights).sum(axis=0)))[0]

    def cosines(rows: slice, products: Numbers) -> Numbers:
        near: Numbers = products / (norms[rows, None] * norms + SHRINKAGE)
        return near

    return _nearest(pairs.weights.T.tocsr(), pairs.weights, int(own), cosines)


def rp3beta(pairs: Pairs, own: float) -> Any:
    """Walks of three steps over users, with the end's popularity to the power of -.6 (Paudel et al. 2017).

    `own` is the power of the probabilities of a step; each item has its 200 likeliest ends.
    """
    by_user = _steps(pairs.weights, own)
    by_item = _steps(pairs.weights.T.tocsr(), own)
    damped = np.maximum(pairs.masses, np.float32(1e-3)) ** np.float32(-BETA)
    return _nearest(by_item, by_user, 200, lambda rows, products: products * damped)


def _steps(weights: Any, power: float) -> Any:
    """The probabilities of a step from each row, to a power."""
    sums = np.maximum(np.asarray(weights.sum(axis=1))[:, 0], 1e-12)
    steps = (diags(1.0 / sums) @ weights).tocsr().astype(np.float32)
    steps.data **= power
    return steps


def _nearest(left: Any, right: Any, most: int, weigh: Callable[[slice, Numbers], Numbers]) -> Any:
    """The `most` largest weights of each row of `left` @ `right`, without the diagonal, sparse [N, N]."""
    parts, count = [], right.shape[1]
    most = min(most, count - 1)
    for start in range(0, count, _ITEMS_A_BLOCK):
        rows = slice(start, min(start + _ITEMS_A_BLOCK, count))
        products = np.asarray((left[rows] @ right).todense(), dtype=np.float32)
        weights = weigh(rows, products)
        weights[np.arange(len(weights)), np.arange(rows.start, rows.stop)] = 0.0
        best = np.argpartition(-weights, most - 1, axis=1)[:, :most]
        largest = np.take_along_axis(weights, best, axis=1)
        owners = np.repeat(np.arange(len(best)), most)
        parts.append(csr_matrix((largest.ravel(), (owners, best.ravel())), shape=weights.shape))
    from scipy.sparse import vstack

    near = vstack(parts, format="csr")
    near.eliminate_zeros()
    return near


RULES: dict[str, tuple[Callable[[Pairs, float], Any], tuple[float, ...]]] = {
    "EASE": (ease, (30.0, 100.0, 300.0, 1000.0)),
    "item-kNN": (item_knn, (20.0, 50.0, 100.0, 300.0)),
    "RP3beta": (rp3beta, (0.6, 0.8, 1.0, 1.2)),
}
"""Each rule with the values of its own setting."""


def fitted(name: str, data: PreparedData, part: EvaluatedPart, setting: Setting) -> ScoresOf:
    """The scores of a rule that is fitted on all events before `part`."""
    pairs = Pairs.before(data, part, setting)
    near, masses = RULES[name][0](pairs, setting.own), pairs.masses
    behind = (masses / max(float(masses.max()), 1e-9) - 2.0).astype(np.float32)

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        histories = pairs.weights[users]
        own = histories @ diags(setting.again * pairs.repeaters)
        sums = np.asarray((histories @ near + own).todense(), dtype=np.float32)
        lowest = min(float(sums.min()), 0.0)  # EASE has weights below zero
        return torch.from_numpy(np.where(sums == 0.0, behind + lowest, sums))

    return scores_of
