"""The command `turret plan`; it imports its dependencies when it runs."""

from typing import Annotated

import typer

from turret.tower.cli import AsJson

# JSON has no infinity.
_MOST = 1e9

app = typer.Typer(rich_markup_mode="markdown")


@app.command()
def plan(
    users: Annotated[str, typer.Option(metavar="N", help="Users with events, such as 250k or 2.5M.")],
    items: Annotated[str, typer.Option(metavar="N", help="Items of the catalog.")],
    events: Annotated[str, typer.Option(metavar="N", help="Events of the log.")],
    requests: Annotated[str, typer.Option(metavar="N", help="Recommendations a second at the peak.")] = "10",
    experiment: Annotated[
        str,
        typer.Option("--experiment", "-e", metavar="NAME", help="youtubednn or transformer."),
    ] = "youtubednn",
    dimension: Annotated[
        int | None, typer.Option(metavar="D", min=1, help="Width of the vectors (the experiment's).")
    ] = None,
    history: Annotated[
        int | None,
        typer.Option(metavar="T", min=1, help="Events that the user tower reads (the experiment's)."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Epochs of a training (the experiment's).")
    ] = None,
    cores: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Cores of a machine (this one's).")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(metavar="GB", min=0.1, max=_MOST, help="Memory of a machine (this one's).")
    ] = None,
    disk: Annotated[
        float | None,
        typer.Option(metavar="GB", min=0.1, max=_MOST, help="Disk of a machine (free on this one)."),
    ] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=_MOST, help="How long a training may take.")] = 8.0,
    as_json: AsJson = False,
) -> None:
    """Compute memory, disk, time and machines for a shop, and where one machine ends.

    Every figure is computed from measured ones; sizes beyond those measured are named. docs/scale.md says
    what was measured, and how far plans were from measured runs.

    Example: `turret plan --users 2M --items 500k --events 100M --requests 200`
    """
    from turret.planning.commands import GivenPlan, plan_shop

    plan_shop(
        GivenPlan(
            users, items, events, requests, experiment, dimension, history, epochs, cores, memory, disk, hours
        ),
        as_json,
    )
