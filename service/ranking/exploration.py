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

# The places are drawn from so many of the best items that no other place shows, or of the new ones.
CANDIDATES = 50
LARGEST_SPREAD = 100.0  # of weights; a candidate that is less likely by exp(100) is never drawn
# log t rises by such steps from the first value on, before which nothing rings with a probability of 1e-10.
_STEP, _EARLIEST = 0.35, -23.0
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


def place_chances(weights: Numbers, order: Rows) -> Numbers:
    """The probability that the candidate order[j] [S] is drawn as number j, over all draws: [S].

    Drawing without replacement is the race of exponential clocks with the rates exp(weight): the item of
    rate r wins place j + 1 at the time t if j of the others have rung before, with the density

        r exp(-r t) P(j of the others before t),

    where the number of others is a sum of independent Bernoulli variables. The integral over log t is a sum
    over equal steps, whose error falls exponentially with the step (Trefethen & Weideman 2014): to 1e-8 here.
    """
    spread = float(np.ptp(weights))
    if spread == 0.0:
        return np.full(len(order), 1.0 / len(weights))
    rates = np.exp(weights - weights.max())
    rates /= rates.sum()
    times = np.exp(np.arange(_EARLIEST, spread + np.log(len(weights)) + 4.0, _STEP))
    waits = np.exp(-rates[:, None] * times)  # the probability [C, Q] of no ring before a time
    rings = -np.expm1(-rates[:, None] * times)
    counts = np.zeros((len(order), len(times)))  # the probability of so many rings before a time
    counts[0] = 1.0
    drawn = order.tolist()
    for item in {*range(len(weights))} - {*drawn}:
        _include(counts, waits[item], rings[item])
    chances = np.empty(len(order))
    for place, item in enumerate(drawn):
        others = counts.copy()
        for other in {*drawn} - {item}:
            _include(others, waits[other], rings[other])
        chances[place] = _STEP * float((rates[item] * times * waits[item] * others[place]).sum())
    return chances


def _include(counts: Numbers, waits: Numbers, rings: Numbers) -> None:
    """Let another clock ring, or wait, in the probabilities [S, Q] of the numbers of rings."""
    later = counts[:-1] * rings
    counts *= waits
    counts[1:] += later


def propensities(weights: Numbers, candidates: Rows, shown: Rows, usual: Rows, share: float) -> Numbers:
    """The probability of each row `shown` [S] at its place, over all draws that the answer may have: [S].

    With the probability `share`, rows are drawn from the `candidates` [C] with these `weights` [C]; otherwise
    the rows are the `usual` ones [S]. Rows that are no candidates were not drawn.
    """
    place_of = {row: place for place, row in enumerate(candidates.tolist())}
    places = [place_of.get(row, -1) for row in shown.tolist()]
    chances = np.zeros(len(shown))
    if -1 not in places:
        chances = place_chances(weights, np.array(places, dtype=np.int64))
    else:  # each place by itself, as the others have rows that are never drawn
        for place in (place for place, position in enumerate(places) if position >= 0):
            rest = [position for position in range(len(weights)) if position != places[place]]
            order = np.array([*rest[:place], places[place]], dtype=np.int64)
            chances[place] = place_chances(weights, order)[place]
    mixed: Numbers = (1.0 - share) * (shown == usual) + share * chances
    return mixed
