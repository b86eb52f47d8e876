"""The command `turret history load`, with the options of a log's settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from turret.data.commands.arguments import PREPARED
from turret.data.preparing.options import given_settings, with_settings
from turret.history.cli import Store

app = typer.Typer(rich_markup_mode="markdown")


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
