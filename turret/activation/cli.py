"""The commands `activate` and `rollback`; each imports its dependencies when it runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from turret.data.commands.arguments import PREPARED
from turret.data.errors import TurretError
from turret.tower.cli import BUNDLES, Bundles

ADMIN_URL = "http://127.0.0.1:8001"
METRIC, MARGIN = "ndcg@10", 0.1

app = typer.Typer(rich_markup_mode="markdown")


@app.command()
def activate(
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="The bundle's name; see `turret versions`.")
    ],
    bundles: Bundles = BUNDLES,
    url: Annotated[
        str | None,
        typer.Option(help="A running service to swap, by its admin port, such as http://127.0.0.1:8001."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also if it was never evaluated, its recorded metric is far below that of the live version, "
            "or its answers have too little in common with the live ones.",
        ),
    ] = False,
    not_worse_than: Annotated[
        str | None,
        typer.Option(
            metavar="live|VERSION", help="Only if its metric is not worse than that of the live version."
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME@K", help="With --not-worse-than: as 'new recall@20' or auc (ndcg@10)."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="With --not-worse-than: the accepted loss, a share of the metric (0.1)."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --not-worse-than: prepared data (var/prepared)."),
    ] = None,
) -> None:
    """Make a bundle the current one, after it has passed the gate.

    With `--url` the running service swaps it in between two requests; its key is read from
    `TURRET_ADMIN_KEY`, or from `admin.key` among the bundles (or where `TURRET_ADMIN_KEY_FILE` says).
    Without it, only the folder's pointer moves, and the next service that starts reads it. The gate is the
    same: files, memory, golden queries, recall, the recorded metric, and the overlap of the answers with
    those of the current version. A version with no metric, or a fifth below the live one's, needs `--force`.

    With `--not-worse-than live` both versions also rank the events of `--data` that neither was trained on,
    on the first day those of the test part. The new one is activated if the 95 % interval of the difference
    excludes a loss of more than `--margin`. Exit statuses: 0 activated, 1 an error or refused by the gate,
    3 worse, 4 too few users to tell.

    Example: `turret activate spring --not-worse-than live --data var/prepared`
    """
    from turret.activation.live import activate_version

    options: dict[str, Any] = {"metric": metric, "margin": margin, "data": data}
    comparison_options = {name: value for name, value in options.items() if value is not None}
    if not_worse_than is not None:
        print(_compared(version, not_worse_than, bundles, url, **comparison_options), flush=True)
    elif comparison_options:
        name, value = next(iter(comparison_options.items()))
        raise TurretError(f"--{name} {value} belongs to --not-worse-than; add --not-worse-than live")
    print(activate_version(version, bundles, url, force, compared=not_worse_than is not None))


def _compared(
    version: str,
    than: str,
    bundles: Path,
    url: str | None,
    metric: str = METRIC,
    margin: float = MARGIN,
    data: Path = PREPARED,
) -> str:
    """The reason why a version may go live. Raises WorseError or UnclearError for one that may be worse."""
    from turret.activation.live import live_version
    from turret.activation.non_inferiority import compare_versions
    from turret.data.prepared import PreparedData

    other = live_version(bundles, url) if than == "live" else than
    if other is None:
        return f"No version is live, so {version} is compared with none."
    if other == version:
        return f"{version} is live already, so it is compared with none."
    return compare_versions(bundles, version, other, PreparedData.open(data), metric, margin).check()


@app.command()
def rollback(
    url: Annotated[str, typer.Option(help="The running service, by its admin port.")] = ADMIN_URL,
    bundles: Bundles = BUNDLES,
) -> None:
    """Bring back the version that a running service served before this one.

    Example: `turret rollback --url http://127.0.0.1:8001`
    """
    from turret.activation.live import roll_back

    print(roll_back(bundles, url))
