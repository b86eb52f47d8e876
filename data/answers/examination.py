"""The examination of places: how much likelier a user looks at one place of an answer than at another.

Position-based model: an item at place k has an outcome with the probability examination(k) · relevance of the
item to the user. Where exploration draws items, an item i is shown at different places for no reason of its
own. With p the propensity of an item at its place, w = 1 / p, W_ik = sum of w over the answers that show item
i at place k, and S_ik = the same sum over its outcomes there, S_ik / W_ik estimates examination(k) times the
mean relevance of item i to all requests that could show it there. The ratio of two places compares items with
themselves (Wang, Golbandi, Bendersky, Metzler and Najork, "Position bias estimation for unbiased learning to
rank in personal search", 2018; Agarwal, Zaitsev, Wang, Li, Najork and Joachims, "Estimating position bias
without intrusive interventions", 2019), put together over the items as Mantel and Haenszel do:

    examination(k) / examination(r) = sum_i S_ik W_ir / (W_ik + W_ir)  /  sum_i S_ir W_ik / (W_ik + W_ir)

where r is the first explored place. Items with the propensity 1 at their place tell nothing, and count
nowhere.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.answers.places import PLACE, PROPENSITY, shown_items

LEAST_OUTCOMES = 50
"""Places with fewer outcomes of explored items have no estimate of their own."""
WEIGHT, COUNT = "weight", "count"
_KEYS = ["item", PLACE]


@dataclass(frozen=True)
class Examination:
    """The examination of the places 1 to K.

    `relative` float64 [K] is relative to the first place with an estimate. A place that is not `is_estimated`
    [K] has the value of the nearest place that is. `outcomes` int64 [K] are those of explored items.
    """

    relative: NDArray[np.float64]
    is_estimated: NDArray[np.bool_]
    outcomes: NDArray[np.int64]

    def __str__(self) -> str:
        values = ", ".join(f"{value:.2f}" for value in self.relative[self.is_estimated])
        text = (
            f"examination of the places {_listed(self.is_estimated)}, from {self.outcomes.sum():,} outcomes "
            f"of explored items: {values}"
        )
        if self.is_estimated.all():
            return text
        return (
            f"{text}; the places {_listed(~self.is_estimated)} have fewer than {LEAST_OUTCOMES} such "
            "outcomes, and the value of the nearest place"
        )


def _listed(is_listed: NDArray[np.bool_]) -> str:
    """List places, such as "1 to 10" or "5, 7, 9"."""
    places = np.flatnonzero(is_listed) + 1
    if len(places) > 1 and places[-1] - places[0] == len(places) - 1:
        return f"{places[0]} to {places[-1]}"
    return ", ".join(map(str, places.tolist()))


def weights_of_shown(answers: pl.LazyFrame) -> pl.DataFrame:
    """Return the sum of 1 / propensity of each explored item at each place: `item`, PLACE and WEIGHT."""
    shown = shown_items(answers).filter(pl.col(PROPENSITY) < 1)
    return shown.group_by(_KEYS).agg((1 / pl.col(PROPENSITY)).sum().alias(WEIGHT)).collect()


def examination_of(shown: pl.DataFrame, outcomes: pl.DataFrame, places: int) -> Examination | None:
    """Estimate the examination of the places 1 to `places`; None with fewer than two places to compare.

    `shown` are `weights_of_shown`, and `outcomes` the same sums over the outcomes with their number, COUNT.
    """
    both = outcomes.select(*_KEYS, COUNT, of_outcomes=WEIGHT).join(
        shown.select(*_KEYS, of_shown=WEIGHT), on=_KEYS, how="full", coalesce=True
    )
    both = both.filter(pl.col(PLACE) <= places).fill_null(0)
    counts = np.bincount(both[PLACE].to_numpy(), both[COUNT].to_numpy(), places + 1)[1:].astype(np.int64)
    has_enough = counts >= LEAST_OUTCOMES
    first = both.filter(pl.col(PLACE) == int(has_enough.argmax()) + 1).drop(PLACE, COUNT)
    pairs = both.join(first, on="item", suffix="_first").with_columns(
        share=1 / (pl.col("of_shown") + pl.col("of_shown_first"))
    )
    sums = pairs.group_by(PLACE).agg(
        here=(pl.col("of_outcomes") * pl.col("of_shown_first") * pl.col("share")).sum(),
        there=(pl.col("of_outcomes_first") * pl.col("of_shown") * pl.col("share")).sum(),
    )
    relative = np.full(places, np.nan)
    for place, here, there in sums.filter(pl.col("here") > 0, pl.col("there") > 0).iter_rows():
        relative[place - 1] = here / there
    is_estimated = has_enough & np.isfinite(relative)
    known = np.flatnonzero(is_estimated)
    if len(known) < 2:
        return None
    nearest = known[np.abs(np.arange(places)[:, None] - known).argmin(axis=1)]
    return Examination(relative[nearest], is_estimated, counts)
