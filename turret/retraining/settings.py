"""The settings of `turret retrain`, each with its option of the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from turret.activation.cli import MARGIN, METRIC
from turret.data.commands.arguments import PREPARED
from turret.data.errors import ConfigurationError
from turret.data.moments import milliseconds_of
from turret.tower.cli import BUNDLES, Bundles


@dataclass(frozen=True)
class RetrainSettings:
    """The options of `turret retrain`; docs/retraining.md describes the rules."""

    data: Annotated[
        Path, Option("--data", metavar="DIR", help="The prepared data, to which events are added.")
    ] = PREPARED
    bundles: Bundles = BUNDLES
    work: Annotated[
        Path, Option("--work", metavar="DIR", help="The folder of records, runs and temporary files.")
    ] = Path("var/retrain")
    store: Annotated[
        str | None, Option(help="The store of the service (TURRET_STORE, or sqlite:///var/history.sqlite).")
    ] = None
    events: Annotated[
        str | None,
        Option(
            "--events",
            metavar="DATABASE",
            help="Read the new events from a database and not from the store, as turret data append does.",
        ),
    ] = None
    sql: Annotated[
        str | None,
        Option("--sql", metavar="QUERY", help="The query of --events (that of the first preparation)."),
    ] = None
    since: Annotated[
        str | None,
        Option(
            "--since",
            metavar="TIME",
            help="The value of :since in the query (the newest event of the data, less --late days).",
        ),
    ] = None
    url: Annotated[
        str | None,
        Option(help="A running service to activate in, by its admin port, such as http://HOST:8001."),
    ] = None
    at_least: Annotated[
        int, Option(metavar="N", min=1, help="The number of new events that a training needs.")
    ] = 1
    late: Annotated[
        float, Option(metavar="DAYS", min=0.0, help="Read the store again for late events of so many days.")
    ] = 1.0
    mode: Annotated[
        Literal["rule", "warm", "anew"],
        Option(help="warm: from the live version; anew: from scratch; rule: by the limits below."),
    ] = "rule"
    anew_share: Annotated[
        float,
        Option(min=0.0, max=1.0, help="Train anew beyond this share of events or items since the last time."),
    ] = 0.3
    warm_starts: Annotated[
        int, Option(metavar="N", min=0, help="Train anew after so many warm starts in a row.")
    ] = 7
    experiment: Annotated[
        str | None,
        Option(
            "--experiment",
            "-e",
            metavar="NAME|FILE|auto",
            help="The experiment of a training anew (that of the live version).",
        ),
    ] = None
    overrides: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="Override a setting of each training; repeatable."),
    ] = None
    sources: Annotated[
        list[str] | None,
        Option(
            "--source",
            metavar="NAME:FILE",
            help="A file of one of the data's [[sources]], added with the stored events; repeatable.",
        ),
    ] = None
    items: Annotated[
        str | None,
        Option(metavar="FILE", help="The file of items, or its URL (that of the first preparation)."),
    ] = None
    users: Annotated[
        str | None,
        Option(metavar="FILE", help="The file of users, or its URL (that of the first preparation)."),
    ] = None
    metric: Annotated[
        str,
        Option(
            metavar="NAME@K",
            help="The compared metric, one of turret evaluate, such as 'new recall@20' or auc.",
        ),
    ] = METRIC
    margin: Annotated[float, Option(min=0.0, max=1.0, help="The accepted loss, a share of the metric.")] = (
        MARGIN
    )
    canary: Annotated[
        float | None,
        Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="This share of users tries the version until the next run.",
        ),
    ] = None
    promote_on_outcome: Annotated[
        str | None,
        Option(
            metavar="KIND", help="With --canary: outcomes, events of a kind such as purchase, decide on it."
        ),
    ] = None
    outcome_within: Annotated[
        str, Option(metavar="PAUSE", help="For outcomes without an answer id: the longest time after it.")
    ] = "24h"
    outcome_value: Annotated[
        str | None, Option(metavar="FIELD", help="The field of items with their value, such as price.")
    ] = None
    keep: Annotated[
        int, Option(metavar="N", min=1, help="The number of newest bundles and runs that stay.")
    ] = 5

    def check(self) -> None:
        """Raise ConfigurationError for an impossible canary or pause, or a query without its database."""
        if self.events is None and (self.sql is not None or self.since is not None):
            raise ConfigurationError(
                "--sql and --since are of a database; name it with --events, such as postgresql://HOST/NAME"
            )
        if self.events is not None and self.sources:
            raise ConfigurationError(
                "--events reads a database in place of the store, to which --source adds files; give one of "
                "the two"
            )
        if self.canary == 0.0:
            raise ConfigurationError("--canary 0: a canary needs users; give a share above 0")
        if self.promote_on_outcome is not None and self.canary is None:
            raise ConfigurationError(
                f"--promote-on-outcome {self.promote_on_outcome}: the outcomes of a canary decide; give it "
                "users with --canary 0.1"
            )
        try:
            milliseconds_of(self.outcome_within)
        except ValueError as error:
            raise ConfigurationError(f"--outcome-within {error}") from None
        if self.canary is not None and self.url is None:
            raise ConfigurationError(
                f"--canary {self.canary:g}: only a running service routes users; name its admin port with "
                "--url http://HOST:8001"
            )

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.work / "runs"
