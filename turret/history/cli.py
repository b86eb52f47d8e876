"""The commands of `turret history`; each imports its dependencies when it runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from turret.data.cli import PREPARED
from turret.data.preparing.options import given_settings, with_settings

app = typer.Typer(
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
@with_settings("source_files", "on_bad", "format", "columns", "kinds", "filters", "sql", "since")
def load(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE]", help="Raw events, as `turret data prepare` reads them."),
    ] = None,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Prepared data, if no SOURCE is given.")
    ] = PREPARED,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A TOML file as for `turret data prepare`; options given here win."
        ),
    ] = None,
    store: Store = None,
    **options: Any,
) -> None:
    """Load the events of a log into the store, so that their users are recommended by `user_id`.

    The service may run meanwhile. Events that the store holds are skipped: a second call adds nothing, and a
    call after a kill continues. Of each user, the newest events that an answer reads are loaded
    (`TURRET_STORED_HISTORY_LIMIT`), if `TURRET_KEEP_DAYS` keeps them.

    Example: `turret history load --data var/prepared --store sqlite:///var/history.sqlite`
    """
    from turret.data.prepared import PreparedData
    from turret.history.loading import load_histories, prepared_log
    from turret.service.settings import read_settings

    settings = read_settings(store=store)
    given = given_settings(options)
    if source is None and config is None and given["source_files"] is None:
        report = load_histories(PreparedData.open(data), settings)
    else:
        with prepared_log(source, given, print, config) as (prepared, answers_of):
            report = load_histories(prepared, settings, answers_of)
    print(report.sentence(settings.store))


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
