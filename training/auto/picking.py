"""The rule by which `--experiment auto` chooses among the candidates that it has tried.

A slot is a half of an answer where used items are ranked, else the whole answer. A candidate may be below the
best rule of a slot, such as EASE or the most bought items: the candidates that are below in the fewest slots
are kept. The best of the kept candidates and all that are not clearly worse are tied. A tie goes to
candidates that can serve an item that was never trained on, then to cheaper ones, then to the earliest. All
comparisons are by the 95 % interval over paired users.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from turret.training.config.experiment import ExperimentConfig
from turret.training.evaluation.evaluation import means_of, summarise
from turret.training.evaluation.metrics import LEAST_USERS, Values, difference_interval

# Clocks are noisy, by a third on a busy machine: a training that takes at most AS_CHEAP times as long as the
# cheapest counts as equally cheap.
AS_CHEAP = 1.5
By = Literal["best", "serves_new", "cheaper", "earlier"]


@dataclass(frozen=True)
class Tried:
    """A candidate with its values [U] from `values_of`, and the estimated seconds of its training."""

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
    """The `name` of the picked candidate, the `best` kept candidate by the metric, and why they differ: `by`.

    `below` has each case of a candidate that is below the best rule of a slot; `ahead` are the metrics of the
    slots in which every candidate is below; `out` are the candidates that are not kept.
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
    each = [_below(name, trial.values, rules, slot) for slot in slots for name, trial in tried.items()]
    below = [case for case in each if case is not None]
    counts = {name: sum(case.candidate == name for case in below) for name in tried}
    left = [name for name in tried if counts[name] == min(counts.values())]
    best = max(left, key=lambda name: means_of(tried[name].values)[metric])
    alike = tied({name: tried[name].values for name in left}, best, metric)
    serving = [name for name in alike if tried[name].serves_new] or alike
    least = min(tried[name].seconds for name in serving)
    cheap = [name for name in serving if tried[name].seconds <= AS_CHEAP * least]
    by: By = "serves_new" if best not in serving else "cheaper" if best not in cheap else "earlier"
    ahead = (slot for slot in slots if sum(case.metric == slot for case in below) == len(tried))
    return Pick(
        name=cheap[0],
        best=best,
        by="best" if cheap[0] == best else by,
        below=tuple(below),
        ahead=tuple(ahead),
        out=tuple(name for name in tried if name not in left),
    )


def serves_new(experiment: ExperimentConfig) -> bool:
    """Whether the item tower has learned to do without ids, which items that are added later lack."""
    item = experiment.tower.item
    return bool(item.features) and (item.id_dropout > 0 or not item.id)


def tied(values: Mapping[str, Mapping[str, Values]], best: str, metric: str) -> list[str]:
    """The names whose values by user are not clearly below those of the `best`, itself among them."""
    gains = {name: values[best][metric] - of_users[metric] for name, of_users in values.items()}
    return [name for name, gain in summarise(gains, difference_interval).items() if gain["low"] <= 0]


def _below(
    name: str, values: Mapping[str, Values], rules: Mapping[str, Mapping[str, Values]], metric: str
) -> Below | None:
    """How far a candidate is clearly below the best rule by `metric`; None if it is not."""
    means = {rule: means_of(by_rule)[metric] for rule, by_rule in rules.items()}
    rule = max(reversed(means), key=lambda other: means[other])  # a tie goes to EASE, not to its variant
    difference = values[metric] - rules[rule][metric]
    if np.count_nonzero(~np.isnan(difference)) < LEAST_USERS:
        return None
    summary = summarise({metric: difference}, difference_interval)[metric]
    if summary["high"] >= 0:
        return None
    return Below(name, metric, rule, means_of(values)[metric], means[rule], summary["low"], summary["high"])
