"""The commands `turret data prepare` and `append`, with the options of their settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from turret.data.commands.arguments import PREPARED, Overwrite, Settings
from turret.data.errors import without_credentials
from turret.data.preparing.options import given_settings, with_settings

QUERIES = ("sql", "items_sql", "users_sql", "since")

app = typer.Typer(rich_markup_mode="markdown")


@app.command()
@with_settings()
def prepare(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="Events as CSV, JSON or Parquet, also compressed; a folder of their parts, or of events, "
            "items and users files; or a MovieLens folder or zip. Also by URL: s3://..., gs://..., "
            "with --engine table://NAME of a catalog; with --sql a database.",
        ),
    ] = None,
    target: Annotated[
        str, typer.Option("--to", metavar="DIR", help="The new folder, or a URL: s3://..., gs://...")
    ] = str(PREPARED),
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file; options given here win.")
    ] = None,
    overwrite: Overwrite = False,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="MASTER",
            help="Read and sort by Spark: local, spark://HOST:PORT, yarn, ... Its workers share the files of "
            "the log and of DIR.",
        ),
    ] = None,
    settings: Settings = None,
    **options: Any,
) -> None:
    """Validate, filter and split a log, and write the memory-mapped form that training reads.

    Columns that are not named are looked for under their usual names. Bad rows are counted by kind.

    Example: `turret data prepare orders.csv --user customer --item sku --time ordered_at --on-bad drop`
    """
    from turret.data.configuration import load_configuration, parse_overrides
    from turret.data.object_stores import new_prepared
    from turret.data.preparing.describe import describe as describe_folder
    from turret.data.preparing.prepare import prepare as prepare_events
    from turret.data.reading.schema import PrepareConfig

    overrides = {"source": source, **given_settings(options), **parse_overrides(settings or [])}
    loaded = load_configuration(PrepareConfig, config, overrides)
    with new_prepared(target, overwrite) as folder:
        report = prepare_events(loaded, folder, overwrite, engine)
        description = describe_folder(folder)
    print("\n".join([*report.warnings, "", description]))


@app.command()
@with_settings(
    *("source_files", "on_bad", "format", "columns", "items", "users", "answers"),
    *(*QUERIES, "filters.default_kind"),
)
def append(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="New events, as `turret history dump` writes them, or as a log; also by URL, or a database.",
        ),
    ] = None,
    target: Annotated[
        str, typer.Option("--to", metavar="DIR", help="Prepared data, or its URL in an object store.")
    ] = str(PREPARED),
    **options: Any,
) -> None:
    """Add new events to prepared data, without reading the old log again.

    The result is that of preparing all events again with the settings of the first time. Events that the
    data has already are left out. Columns are those of the first log, or have usual names; a file of one of
    its [[sources]] is named by --source. Of a database, the query of the first time is run again unless --sql
    names another; :since is the newest event of the data.

    Example: `turret data append events.parquet --to var/prepared`
    """
    from turret.data.object_stores import changed_prepared, is_url
    from turret.data.preparing.append import append as append_events

    place = source if source is None or is_url(source) else Path(source)
    with changed_prepared(target) as folder:
        report = append_events(place, folder, given_settings(options))
    print("\n".join(report.prepared.warnings))
    print(report.sentence().replace(str(folder), without_credentials(target)))
