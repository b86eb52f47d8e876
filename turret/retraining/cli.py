"""The command `turret retrain`; it imports its dependencies when it runs."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from turret.data.cli import PREPARED
from turret.data.errors import TurretError
from turret.tower.cli import BUNDLES, AsJson, Bundles
from turret.training.process import set_up_process

if TYPE_CHECKING:
    from turret.retraining.state import Retraining

WORK = Path("var/retrain")

app = typer.Typer(rich_markup_mode="markdown")


@app.command()
def retrain(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The prepared data, to which events are added.")
    ] = PREPARED,
    bundles: Bundles = BUNDLES,
    work: Annotated[
        Path, typer.Option("--work", metavar="DIR", help="The folder of records, runs and temporary files.")
    ] = WORK,
    store: Annotated[
        str | None,
        typer.Option(help="The store of the service (TURRET_STORE, or sqlite:///var/history.sqlite)."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="A running service to activate in, by its admin port, such as http://HOST:8001."),
    ] = None,
    at_least: Annotated[
        int, typer.Option(metavar="N", min=1, help="The number of new events that a training needs.")
    ] = 1,
    late: Annotated[
        float,
        typer.Option(metavar="DAYS", min=0.0, help="Read the store again for late events of so many days."),
    ] = 1.0,
    mode: Annotated[
        Literal["rule", "warm", "anew"],
        typer.Option(help="warm: from the live version; anew: from scratch; rule: by the limits below."),
    ] = "rule",
    anew_share: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Train anew beyond this share of events or items since the last time.",
        ),
    ] = 0.3,
    warm_starts: Annotated[
        int, typer.Option(metavar="N", min=0, help="Train anew after so many warm starts in a row.")
    ] = 7,
    experiment: Annotated[
        str | None,
        typer.Option(
            "--experiment",
            "-e",
            metavar="NAME|FILE|auto",
            help="The experiment of a training anew (that of the live version).",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of each training; repeatable."),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file of items (that of the first preparation)."),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file of users (that of the first preparation)."),
    ] = None,
    metric: Annotated[
        str, typer.Option(metavar="NAME@K", help="The compared metric: ndcg, recall, hr or mrr.")
    ] = "ndcg@10",
    margin: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The accepted loss, a share of the metric.")
    ] = 0.1,
    canary: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="This share of users tries the version until the next run.",
        ),
    ] = None,
    keep: Annotated[
        int, typer.Option(metavar="N", min=1, help="The number of newest bundles and runs that stay.")
    ] = 5,
    history: Annotated[
        bool, typer.Option("--history", help="Only list the decisions of earlier runs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train on the events stored since the last time, and activate the version if it is not worse.

    The command adds new events to the prepared data, trains from the live version or anew, compares both
    versions on the newest events as `turret activate --not-worse-than live` does, activates, deletes old
    bundles and runs, and records the decision. A killed run is continued by the next one. docs/retraining.md
    describes the schedule. Exit statuses: 0 activated, canary, or no new events; 1 an error or refused by the
    gate, 3 worse, 4 too few users to tell.

    Example: `turret retrain --data var/prepared --url http://127.0.0.1:8001`
    """
    set_up_process()
    from turret.retraining.retrain import retrain as retrain_once
    from turret.retraining.state import RetrainSettings, read_records

    if history:
        _print_history(work, read_records(work), as_json)
        return
    record = retrain_once(
        RetrainSettings(
            data=data,
            bundles=bundles,
            work=work,
            store=store,
            url=url,
            at_least=at_least,
            late=late,
            experiment=experiment,
            overrides=tuple(settings or ()),
            items=items,
            users=users,
            metric=metric,
            margin=margin,
            canary=canary,
            keep=keep,
            mode=mode,
            anew_share=anew_share,
            warm_starts=warm_starts,
        )
    )
    if as_json:
        print(record.model_dump_json(indent=2, exclude_none=True))
    if record.status:
        refused = TurretError(record.message)
        refused.exit_status = record.status  # that of `turret activate`
        raise refused
    if not as_json:
        print(f"{record.decision}: {record.message}")


def _print_history(work: Path, records: "Sequence[Retraining]", as_json: bool) -> None:
    """Print the records of the work folder, oldest first."""
    from turret.data.text import text_table

    if as_json:
        print(json.dumps([record.model_dump(mode="json", exclude_none=True) for record in records], indent=2))
        return
    if not records:
        print(f"{work} has no records yet; `turret retrain` writes them", file=sys.stderr)
    headings = ("run", "decision", "new events", "mode", "version", "new", "live", "difference", "s")
    print(text_table(headings, map(_row, records), width=140, right=("new events", "s")))


def _row(record: "Retraining") -> list[str]:
    compared, figures = ["", "", ""], record.figures
    if figures is not None:
        difference = f"{figures.new - figures.live:+.4f} [{figures.low:+.4f}, {figures.high:+.4f}]"
        compared = [f"{figures.metric} {figures.new:.4f}", f"{figures.live:.4f}", difference]
    return [
        record.run,
        f"{record.decision}" + (f" ({record.step})" if record.step else ""),
        "" if record.new_events is None else f"{record.new_events:,}",
        record.mode or "",
        record.version or "",
        *compared,
        f"{record.seconds:,.0f}",
    ]
