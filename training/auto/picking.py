"""The rule by which `--experiment auto` chooses among the candidates that it has tried.

A slot is a half of an answer where used items are ranked, else the whole answer. Where candidates are below
the best rule of a slot, such as EASE or the most bought items, those below in the fewest slots are left. Of
these, the best one and all that are not clearly worse are tied. A tie goes to those that can serve an item
that was never trained on, then to the cheaper ones, then to the earliest. All comparisons are by the 95 %
interval over paired users.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from turret.training.evaluation.evaluation import means_of, summarise
from turret.training.evaluation.metrics import LEAST_USERS, Values, difference_interval

# Clocks are noisy, by a third on a busy machine: a training that takes less than so many times as long as the
# cheapest one is as cheap.
AS_CHEAP = 1.5
By = Literal["best", "serves_new", "cheaper", "earlier"]


@dataclass(frozen=True)
class Tried:
    """A candidate with its values [U] as of `values_of`, and the estimated seconds of its training."""

    values: Mapping[str, Values]
    serves_new: bool
    seconds: float


class Below(NamedTuple):
    """A candidate below the best rule of a slot: the means of both, and the interval of the difference."""

    candidate: str
    metric: str
    rule: str
    candidate_mean: float
    rule_mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Pick:
    """The picked candidate, the best one by the metric among those that are left, and why they differ.

    `below` has each candidate and slot that is below the best rule; `ahead` are the metrics of the slots in
    which every candidate is; `out` are the candidates that are not left for that.
    """

    name: str
    best: str
    by: By
    below: tuple[Below, ...]
    ahead: tuple[str, ...]
    out: tuple[str, ...]


def pick(tried: Mapping[str, Tried], rules: Mapping[str, Mapping[str, Values]], metric: str) -> Pick:
    """Choose among `tried`, in order of preference, by a metric that they and the `rules` have."""
    slots = [name for name in next(iter(rules.values())) if name != metric] or [metric]
    each = [_below(name, own.values, rules, slot) for slot in slots for name, own in tried.items()]
    below = [one for one in each if one is not None]
    counts = {name: sum(one.candidate == name for one in below) for name in tried}
    left = [name for name in tried if counts[name] == min(counts.values())]
    best = max(left, key=lambda name: means_of(tried[name].values)[metric])
    gains = {name: tried[best].values[metric] - tried[name].values[metric] for name in left}
    tied = [name for name, gain in summarise(gains, difference_interval).items() if gain["low"] <= 0]
    serving = [name for name in tied if tried[name].serves_new] or tied
    least = min(tried[name].seconds for name in serving)
    cheap = [name for name in serving if tried[name].seconds <= AS_CHEAP * least]
    by: By = "serves_new" if best not in serving else "cheaper" if best not in cheap else "earlier"
    ahead = (slot for slot in slots if sum(one.metric == slot for one in below) == len(tried))
    return Pick(
        name=cheap[0],
        best=best,
        by="best" if cheap[0] == best else by,
        below=tuple(below),
        ahead=tuple(ahead),
        out=tuple(name for name in tried if name not in left),
    )


def _below(
    name: str, own: Mapping[str, Values], rules: Mapping[str, Mapping[str, Values]], metric: str
) -> Below | None:
    """How far a candidate is clearly below the best rule by `metric`; None if it is not."""
    means = {rule: means_of(values)[metric] for rule, values in rules.items()}
    rule = max(reversed(means), key=lambda one: means[one])  # of equals EASE, not its variant before it
    difference = own[metric] - rules[rule][metric]
    if np.count_nonzero(~np.isnan(difference)) < LEAST_USERS:
        return None
    found = summarise({metric: difference}, difference_interval)[metric]
    if found["high"] >= 0:
        return None
    return Below(name, metric, rule, means_of(own)[metric], means[rule], found["low"], found["high"])
