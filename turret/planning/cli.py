"""The command `turret plan`; it imports its dependencies when it runs."""

import os
import re
import shutil
from dataclasses import asdict
from typing import Annotated

import typer

from turret.data.errors import ConfigurationError
from turret.tower.cli import AsJson

# JSON has no infinity.
_MOST = 1e9
_COUNT = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[+]?[0-9]{1,2})?)([kMG]?)")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_LARGEST_COUNT = 10**13

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
    import json

    from turret.planning.figures import load_figures
    from turret.planning.parts import Machine, PlanRequest, experiment_defaults
    from turret.planning.plan import make_plan, plan_text

    defaults = experiment_defaults(experiment)
    request = PlanRequest(
        users=parse_count("--users", users),
        items=parse_count("--items", items),
        events=parse_count("--events", events),
        requests=parse_count("--requests", requests, least=0),
        machine=Machine(
            cores or os.cpu_count() or 1,
            _this_memory() if memory is None else 1e9 * memory,
            float(shutil.disk_usage(".").free) if disk is None else 1e9 * disk,
        ),
        dimension=dimension or defaults["dimension"],
        history=history or defaults["history"],
        experiment=experiment,
        epochs=epochs or defaults["epochs"],
        hours=hours,
    )
    plan = make_plan(request, load_figures())
    print(json.dumps(asdict(plan), indent=2) if as_json else plan_text(plan))


def _this_memory() -> float:
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def parse_count(option: str, text: str, least: float = 1) -> float:
    """Read a count such as 250000, 250,000, 250k, 2.5M or 1e8. Raises ConfigurationError for others."""
    match = _COUNT.fullmatch(text.strip())
    value = float(re.sub("[_,]", "", match[1])) * _FACTORS[match[2]] if match else -1.0
    if not least <= value <= _LARGEST_COUNT:
        raise ConfigurationError(
            f"{option} {text}: it must be a number from {least:g} to {_LARGEST_COUNT:.0e}, such as 250000, "
            "250k, 2.5M or 1e8"
        )
    return value
