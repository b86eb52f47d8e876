"""Whether a version is not worse than another one: a test of non-inferiority over paired users."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import cast

import numpy as np

from turret.activation.held_out import HeldOut, held_out
from turret.activation.ranking import values_of_users
from turret.data.errors import DataError, TurretError
from turret.data.prepared import PreparedData
from turret.tower.bundle.golden import load
from turret.tower.counted_kinds import CountedKinds
from turret.tower.repeats import Slot
from turret.tower.slots import SLOTS
from turret.training.config.metric import AUC, METRICS, RANKING_METRIC
from turret.training.evaluation.metrics import LEAST_USERS, Values, difference_interval


def compare_versions(
    root: Path, new: str, live: str, data: PreparedData, metric: str, margin: float
) -> "Comparison":
    """Compare two versions of the folder `root` on events of `data` that neither was trained on.

    Raises:
        TurretError: there is no such metric.
        BundleError: a version is missing or damaged.
        DataError: there are no such events.
    """
    slot, of_all = check_metric(metric)
    bundles = [load(root, version) for version in (new, live)]
    held, slots = held_out(data, bundles[0].manifest, bundles[1].manifest), [slot]
    if metric != AUC and not all(CountedKinds(bundle.manifest).leaves_out_all for bundle in bundles):
        slots = ["all", *SLOTS]
    news, lives = (values_of_users(bundle, data, held, of_all, slots) for bundle in bundles)
    if np.isnan(news[metric]).all():
        users = f"none of the {len(held.users):,} users with events {held.rule}"
        raise DataError(f"{data.folder}: {users} has a target of --metric {metric}")
    return Comparison.of((new, live), metric, margin, held, news, lives)


def check_metric(metric: str) -> tuple[Slot, str]:
    """The slot of a metric, and its name for all items. Raises TurretError where there is no such metric."""
    match = re.fullmatch(rf"(?:(again|new) )?({RANKING_METRIC})|{AUC}", metric)
    if match is None:
        *others, last = METRICS
        raise TurretError(
            f"--metric {metric}: it must be {', '.join(others)} or {last} at a number up to 9,999, "
            f"such as ndcg@10, that of used items or of others, such as 'new ndcg@10', or {AUC}"
        )
    return cast(Slot, match[1] or "all"), match[2] or AUC


class WorseError(TurretError):
    """The version is worse, with confidence."""

    exit_status = 3


class UnclearError(TurretError):
    """The users are too few to show that the version is not worse."""

    exit_status = 4


@dataclass(frozen=True)
class Comparison:
    """The metric of a version (`new`) and of another one (`live`), and the difference of their means.

    `low` and `high` are the ends of the difference's 95 % interval over paired users; `margin` is
    the accepted loss, as a share of the live version's metric. `users` is their number; `rule` and `warning`
    come from `HeldOut`. `slots` has both means of the other metrics that were measured, by their names.
    """

    names: tuple[str, str]
    metric: str
    margin: float
    users: int
    rule: str
    new: float
    live: float
    low: float
    high: float
    warning: str | None = None
    slots: dict[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        names: tuple[str, str],
        metric: str,
        margin: float,
        held: HeldOut,
        news: Mapping[str, Values],
        lives: Mapping[str, Values],
    ) -> "Comparison":
        """Compare two versions by the values [U] of their users, by metric."""
        known = ~np.isnan(news[metric])
        new, live = news[metric][known], lives[metric][known]
        low, high = difference_interval(new - live)
        means = float(new.mean()), float(live.mean())
        slots = {
            name: (float(np.nanmean(values)), float(np.nanmean(lives[name])))
            for name, values in news.items()
            if name != metric and not np.isnan(values).all()
        }
        return cls(names, metric, margin, len(new), held.rule, *means, low, high, held.warning, slots)

    def check(self) -> str:
        """Describe why the version is accepted.

        Raises:
            WorseError: the interval lies below zero, and below minus the margin at its lower end.
            UnclearError: the interval reaches from below minus the margin to zero, or the users are too few.
        """
        new, live = self.names
        mean, note = self.new - self.live, f" ({self.warning})" if self.warning else ""
        share = f" ({mean / self.live:+.1%})" if self.live else ""
        figures = (
            f"{self.metric} is {self.new:.4f} against {self.live:.4f} for {self.users:,} users "
            f"with events {self.rule}, a difference of {mean:+.4f}{share}, 95 % interval over "
            f"paired users [{self.low:+.4f}, {self.high:+.4f}]"
        )
        beside = [f"{name} is {means[0]:.4f} against {means[1]:.4f}" for name, means in self.slots.items()]
        figures += f" ({', '.join(beside)})" if beside else ""
        if self.users < LEAST_USERS:
            raise UnclearError(f"{figures}; at least {LEAST_USERS} users are needed{note}")
        if not self.new and not self.live:
            raise UnclearError(f"{figures}; so it can't tell {new} from {live}{note}")
        if self.low >= -self.margin * self.live:
            accepted = f"a loss of up to {100 * self.margin:g} %" if self.live else "no loss"
            return f"{new} is not worse than {live}: {figures}; {accepted} is accepted{note}"
        if self.high < 0:
            raise WorseError(f"{new} is worse than {live}: {figures}; {self._remedy()}{note}")
        raise UnclearError(
            f"{self.users:,} users are too few to show that {new} is not worse than {live}: {figures}; "
            f"{self._remedy()}{note}"
        )

    def _remedy(self) -> str:
        """The margin that would accept the version, and the number of users that could decide.

        The half width of an interval falls with the square root of the number of users. A version is only
        refused where the live one has a metric above 0.
        """
        distance = self.new - self.live + self.margin * self.live
        needed = ceil(self.users * ((self.high - self.low) / 2 / distance) ** 2) if distance > 0 else 0
        accepting = ceil(-100 * self.low / self.live) / 100
        remedies = [f"--margin {accepting:g} would accept it"] if accepting <= 1 else []
        remedies += [f"about {needed:,} users could tell"] if needed > self.users else []
        return ", and ".join(remedies) or "train again, or compare on more users"
