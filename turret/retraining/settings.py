"""The settings of a retraining."""

from dataclasses import dataclass, field
from pathlib import Path

from turret.activation.not_worse import MARGIN, METRIC, check_metric
from turret.data.errors import ConfigurationError
from turret.retraining.rule import RuleSettings


@dataclass(frozen=True)
class RetrainSettings:
    """The folders, the store, the service and the rules of `turret retrain`.

    `work` holds the records, the state of a run in progress, dumped events and runs. `store` is an address,
    None for that of the service's settings. `url` is the admin port of a running service to activate in.
    `at_least` is the number of new events to train on. `late` are the days before the newest known event from
    which on the store is read again. `experiment` is that of a training anew (None: the live version's);
    `overrides` are its `section.key=value` settings. `items` and `users` are the files of the catalog and of
    the users, if they differ from those of the first preparation. `canary` is the share of users that a new
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
    rule: RuleSettings = field(default_factory=RuleSettings)

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
