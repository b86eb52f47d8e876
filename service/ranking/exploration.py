"""The draws of exploration, and the exact probability of each item that was shown."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from turret.data.vocabulary import Id
from turret.tower.bundle.bundle import Bundle
from turret.tower.retrieval import Ranking

# From so many of the best items the places are drawn: so many items behind the first place, or new ones.
CANDIDATES = 50
Rows = NDArray[np.integer[Any]]
Numbers = NDArray[np.float64]


class Explored(NamedTuple):
    """The `usual` ranking, without exploration, the rows that were drawn, and the propensities [K] shown."""

    usual: Ranking
    drawn: frozenset[int]
    propensities: Numbers


class Explorer:
    """The random numbers of a process, and how often its exploration has shown each new item.

    Each of the `workers` has its part of the views that a new item may have.
    """

    def __init__(self, workers: int = 1, seed: int | None = None) -> None:
        self.random = np.random.default_rng(seed)
        self._workers = workers
        self._views: WeakKeyDictionary[Bundle, Counter[Id]] = WeakKeyDictionary()

    def count(self, bundle: Bundle, items: Sequence[Id]) -> None:
        """Count a view of each of these new items."""
        self._views.setdefault(bundle, Counter()).update(items)

    def may_show(self, bundle: Bundle, item: Id, most: int) -> bool:
        """Whether a new item has had fewer views than this worker's part of `most`."""
        views = self._views.get(bundle)
        return views is None or views[item] < max(1, most // self._workers)


def draw_order(weights: Numbers, noise: Numbers) -> NDArray[np.int64]:
    """Order candidates as if each was drawn with a probability in proportion to exp(weight) among those left.

    `weights` are [C], and `noise` [..., C] is from the standard Gumbel distribution: sorting by their sum
    draws from the Plackett-Luce distribution (Yellott 1977; Kool et al. 2019, section 2.3). Equal weights
    draw uniformly. Returns [..., C].
    """
    order: NDArray[np.int64] = np.argsort(-(weights + noise), axis=-1)
    return order


def draw_chances(weights: Numbers, order: Rows) -> Numbers:
    """The probability of each of the candidates `order` [S] as the next one, given those before it: [S]."""
    others = np.ones(len(weights), dtype=np.bool_)
    others[order] = False
    ordered = np.concatenate([weights[order], weights[others]])
    left = np.logaddexp.accumulate(ordered[::-1])[::-1]  # of the candidates from each place on
    chances: Numbers = np.exp(ordered - left)[: len(order)]
    return chances


def propensities(weights: Numbers, candidates: Rows, shown: Rows, usual: Rows, share: float) -> Numbers:
    """The probability of each row `shown` [S] at its place, given the rows of the places before it: [S].

    With the probability `share`, rows are drawn from the `candidates` [C] with these `weights` [C]; otherwise
    the rows are the `usual` ones [S]. Rows that differ from the usual ones can only have been drawn; rows
    that are no candidates were not.
    """
    place_of = {row: place for place, row in enumerate(candidates.tolist())}
    places = [place_of.get(row, -1) for row in shown.tolist()]
    drawable = places.index(-1) if -1 in places else len(places)
    chances = np.zeros(len(shown))
    chances[:drawable] = draw_chances(weights, np.array(places[:drawable], dtype=np.int64))
    is_usual = np.cumprod(shown == usual).astype(np.bool_)
    joint = share * np.cumprod(chances) + (1.0 - share) * is_usual
    may_be_usual = np.concatenate([[True], is_usual[:-1]])
    before = np.concatenate([[1.0], joint[:-1]])
    # Behind a row that was certainly drawn, all are: without the division, nothing underflows.
    return np.where(may_be_usual & (share < 1.0), joint / np.where(before > 0.0, before, 1.0), chances)
