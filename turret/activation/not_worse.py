"""Whether a version is not worse than another one: a test of non-inferiority over paired users."""

import re
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from turret.activation.held_out import HeldOut, held_out, metric_of_users
from turret.data.errors import TurretError
from turret.data.prepared import PreparedData
from turret.tower.bundle.bundle import load
from turret.training.evaluation.metrics import Values, bootstrap_interval

WORSE, UNCLEAR = 3, 4
METRIC, MARGIN = "ndcg@10", 0.1
# Resampled means of fewer users spread less than those of new users would.
LEAST_USERS = 30
_MOST_RANKS, _REPLICATES = 1000, 1000


class WorseError(TurretError):
    """The version is worse, with confidence."""

    exit_status = WORSE


class UnclearError(TurretError):
    """The users are too few to show that the version is not worse."""

    exit_status = UNCLEAR


@dataclass(frozen=True)
class Comparison:
    """The metric of a version (`new`) and of another one (`live`), and the difference of their means.

    `low` and `high` are the ends of the difference's 95 % bootstrap interval over paired users; `margin` is
    the accepted loss, as a share of the live version's metric. `users` counts them, `rule` and `warning` are
    those of `HeldOut`.
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

    @classmethod
    def of(
        cls, names: tuple[str, str], metric: str, margin: float, held: HeldOut, new: Values, live: Values
    ) -> "Comparison":
        """Compare the values [U] of the users of both versions."""
        low, high = bootstrap_interval(new - live, _REPLICATES, np.random.default_rng(0))
        users, means = len(held.users), (float(new.mean()), float(live.mean()))
        return cls(names, metric, margin, users, held.rule, *means, low, high, held.warning)

    def check(self) -> str:
        """Describe why the version is accepted.

        Raises:
            WorseError: the interval lies below zero, and below minus the margin at its lower end.
            UnclearError: it reaches from below minus the margin to zero, or the users are too few.
        """
        new, live = self.names
        figures = self._figures()
        if self.users < LEAST_USERS:
            raise UnclearError(self._with_note(f"{figures}; at least {LEAST_USERS} users are needed"))
        if not self.new and not self.live:
            raise UnclearError(self._with_note(f"{figures}; so it can't tell {new} from {live}"))
        if self.low >= -self.margin * self.live:
            accepted = (
                f"a loss of up to {100 * self.margin:g} % is accepted" if self.live else "no loss is accepted"
            )
            return self._with_note(f"{new} is not worse than {live}: {figures}; {accepted}")
        if self.high < 0:
            raise WorseError(self._with_note(f"{new} is worse than {live}: {figures}; {self._remedy()}"))
        raise UnclearError(
            self._with_note(
                f"{self.users:,} users are too few to show that {new} is not worse than {live}: {figures}; "
                f"{self._remedy()}"
            )
        )

    def _figures(self) -> str:
        mean = self.new - self.live
        share = f" ({mean / self.live:+.1%})" if self.live else ""
        return (
            f"{self.metric} is {self.new:.4f} against {self.live:.4f} for {self.users:,} users "
            f"with events {self.rule}, a difference of {mean:+.4f}{share}, 95 % interval over "
            f"paired users [{self.low:+.4f}, {self.high:+.4f}]"
        )

    def _remedy(self) -> str:
        """The margin that would accept the version, and the number of users that could tell.

        The half width of an interval falls with the square root of the number of users. A version is only
        refused where the live one has a metric above 0.
        """
        distance = self.new - self.live + self.margin * self.live
        needed = ceil(self.users * ((self.high - self.low) / 2 / distance) ** 2) if distance > 0 else 0
        accepting = ceil(-100 * self.low / self.live) / 100
        remedies = [f"--margin {accepting:g} would accept it"] if accepting <= 1 else []
        remedies += [f"about {needed:,} users could tell"] if needed > self.users else []
        return ", and ".join(remedies) or "train again, or compare on more users"

    def _with_note(self, sentence: str) -> str:
        return f"{sentence} ({self.warning})" if self.warning else sentence


def compare_versions(
    root: Path, new: str, live: str, data: PreparedData, metric: str = METRIC, margin: float = MARGIN
) -> Comparison:
    """Compare two versions of the folder `root` on events of `data` that neither was trained on.

    Raises:
        TurretError: there is no such metric.
        BundleError: a version is missing or damaged.
        DataError: there are no such events.
    """
    k = check_metric(metric)
    bundles = [load(root, version) for version in (new, live)]
    users = held_out(data, bundles[0].manifest, bundles[1].manifest)
    values = [metric_of_users(bundle, data, users, metric, k) for bundle in bundles]
    return Comparison.of((new, live), metric, margin, users, values[0], values[1])


def check_metric(metric: str) -> int:
    """Return the number behind the @ of a metric's name. Raises TurretError where there is no such metric."""
    found = re.fullmatch(r"(?:ndcg|recall|hr|mrr)@([1-9]\d{0,3})", metric)
    if found is None or int(found[1]) > _MOST_RANKS:
        raise TurretError(
            f"--metric {metric}: it must be ndcg, recall, hr or mrr at a number up to {_MOST_RANKS:,}, "
            "such as ndcg@10"
        )
    return int(found[1])
