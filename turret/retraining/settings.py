"""The settings of a retraining, and the rule that chooses between a warm start and a training anew."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turret.activation.not_worse import MARGIN, METRIC, check_metric
from turret.data.errors import ConfigurationError
from turret.data.progress import counted

Mode = Literal["warm", "anew"]


@dataclass(frozen=True)
class RetrainSettings:
    """The folders, the store, the service and the rules of `turret retrain`.

    `work` holds the records, the state of a run in progress, dumped events and runs. `store` is an address,
    None for that of the service's settings. `url` is the admin port of a running service to activate in.
    `at_least` is the number of new events to train on. `late` are the days before the newest known event from
    which on the store is read again. `experiment` is that of a training anew (None: the live version's);
    `overrides` are its `section.key=value` settings. `items` and `users` are the files of the catalog and of
    the users, if they differ from those of the first preparation. `mode` is that of each training, or "rule":
    anew when more than the share `anew_share` of the events or of the items is newer than the last full
    training, and after `warm_starts` warm starts in a row. `canary` is the share of users that a new
    version answers first. `keep` is the number of newest bundles and runs of retrainings that stay.
    """

    data: Path
    bundles: Path
    work: Path
    store: str | None = None
    url: str | None = None
    at_least: int = 1
    late: float = 1.0
    experiment: str | None = None
    overrides: tuple[str, ...] = ()
    items: Path | None = None
    users: Path | None = None
    metric: str = METRIC
    margin: float = MARGIN
    canary: float | None = None
    keep: int = 5
    mode: Literal["rule", "warm", "anew"] = "rule"
    anew_share: float = 0.3
    warm_starts: int = 7

    def check(self) -> None:
        """Raise ConfigurationError, or TurretError for the metric, before any work."""
        check_metric(self.metric)
        if self.canary == 0.0:
            raise ConfigurationError("--canary 0: a canary needs users; give a share above 0")
        if self.canary is not None and self.url is None:
            raise ConfigurationError(
                f"--canary {self.canary:g}: only a running service routes users; name its admin port with "
                "--url http://HOST:8001"
            )

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.work / "runs"


@dataclass(frozen=True)
class Situation:
    """The state that the rule looks at.

    `data_changed`: another command has written the prepared data since the last training. `warm_starts`: the
    number of them between the last full training and the live version. `new_events` and `new_items`: the
    shares of the data that are newer than that full training.
    """

    has_live: bool
    data_changed: bool
    warm_starts: int
    new_events: float
    new_items: float


def choose_mode(situation: Situation, settings: RetrainSettings) -> tuple[Mode, str]:
    """Choose the mode of a training, with the reason as a clause; without a live version, it is anew."""
    if not situation.has_live:
        return "anew", "no version is live"
    if settings.mode != "rule":
        return settings.mode, f"--mode {settings.mode}"
    if situation.data_changed:
        return "anew", "another command has changed the prepared data since the last training"
    if situation.warm_starts >= settings.warm_starts:
        return "anew", f"{counted(situation.warm_starts, 'warm start')} since the last full training"
    for name, share in (("events", situation.new_events), ("items", situation.new_items)):
        if share > settings.anew_share:
            return (
                "anew",
                f"{share:.1%} of the {name} are newer than the last full training, and the limit is "
                f"{settings.anew_share:.1%}",
            )
    return (
        "warm",
        f"{counted(situation.warm_starts, 'warm start')} and {situation.new_events:.1%} new events since the "
        "last full training are within the limits",
    )
