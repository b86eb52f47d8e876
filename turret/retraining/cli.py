"""The command `turret retrain`; it imports its dependencies when it runs."""

import inspect
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turret.data.errors import TurretError
from turret.retraining.settings import RetrainSettings
from turret.tower.cli import AsJson
from turret.training.process import set_up_process

if TYPE_CHECKING:
    from turret.retraining.state import Retraining

app = typer.Typer(rich_markup_mode="markdown")


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of RetrainSettings in place of its `**options`."""
    *command_parameters, _ = inspect.signature(command, eval_str=True).parameters.values()
    settings_parameters = inspect.signature(RetrainSettings, eval_str=True).parameters.values()
    signature = inspect.Signature(
        [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in (*settings_parameters, *command_parameters)
        ]
    )
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return command


@app.command()
@_options
def retrain(
    history: Annotated[
        bool, typer.Option("--history", help="Only list the decisions of earlier runs.")
    ] = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Train on the events since the last time, of the store or a database; activate what is not worse.

    The command adds new events to the prepared data, trains from the live version or anew, compares both
    versions on the newest events as `turret activate --not-worse-than live` does, activates, deletes old
    bundles and runs, and records the decision. A killed run is continued by the next one. docs/retraining.md
    describes the schedule. Exit statuses: 0 activated, canary, or no new events; 1 an error or refused by the
    gate, 3 worse, 4 too few users to tell, 5 waiting for the outcomes of the canary.

    Example: `turret retrain --data var/prepared --url http://127.0.0.1:8001`
    """
    set_up_process()
    from turret.retraining.retrain import retrain as retrain_once
    from turret.retraining.state import read_records

    settings = RetrainSettings(**options)
    if history:
        _print_history(settings.work, read_records(settings.work), as_json)
        return
    record = retrain_once(settings)
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
