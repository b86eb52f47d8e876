"""The commands of `turret history`; each imports its dependencies when it runs."""

from pathlib import Path
from typing import Annotated, ClassVar

import typer

from turret.data.commands.group import ImportingGroup


class _Group(ImportingGroup):
    names: ClassVar = {"load": "turret.history.load_cli"}


app = typer.Typer(
    name="history",
    cls=_Group,
    help="Fill the service's store of histories from a log, and write stored events back into one.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Store = Annotated[
    str | None,
    typer.Option(
        help="The store of the service: sqlite:///PATH or redis://HOST (TURRET_STORE, or "
        "sqlite:///var/history.sqlite)."
    ),
]


@app.command()
def dump(
    target: Annotated[Path, typer.Option("--to", metavar="FILE", help="The Parquet file.")],
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="The earliest time of an event (all).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only events before this time (now).")
    ] = None,
    store: Store = None,
) -> None:
    """Write the stored events to a file that `turret data prepare` and `turret data append` read.

    A time is a date or a time in UTC, or seconds or milliseconds since 1970.

    Example: `turret history dump --since 2024-05-01 --to events.parquet`
    """
    from turret.history.dumping import TimeRange, dump_histories
    from turret.service.settings import read_settings

    settings = read_settings(store=store)
    print(dump_histories(settings, TimeRange.of(since, until), target).sentence(target))
