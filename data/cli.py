"""The commands of `turret data`. polars is imported only when a command runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from turret.data.errors import without_credentials
from turret.data.preparing.options import given_settings, with_settings

PREPARED = Path("var/prepared")
QUERIES = ("sql", "items_sql", "users_sql", "since")

app = typer.Typer(
    help="Fetch or generate event logs, and convert them to the arrays that training reads.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting by its name in the file; repeatable."),
]


@app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="movielens-100k, movielens-1m, movielens-32m or online-retail; or the URL of prepared data, "
            "such as s3://bucket/prepared.",
        ),
    ],
    target: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder for data sets.")] = Path(
        "var/data"
    ),
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="The folder of a mirror; checksums stay the publisher's."),
    ] = None,
) -> None:
    """Download, verify and unpack a public data set, or prepared data of an object store.

    Example: `turret data fetch movielens-1m --to var/data`
    """
    from turret.data.fetching.datasets import DATASETS
    from turret.data.fetching.datasets import fetch as fetch_dataset
    from turret.data.object_stores import fetch_prepared, is_url

    if is_url(name):
        print(f"{without_credentials(name)} is in {fetch_prepared(name, target)}")
        return
    folder = fetch_dataset(name, target, base_url)
    print(f"{DATASETS[name].title} is in {folder}\nterms: {DATASETS[name].terms}")


@app.command()
def synth(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder.")] = Path("var/shop"),
    messy: Annotated[
        bool, typer.Option("--messy", help="A log as people bring it: kinds, repeats, strangers, robots.")
    ] = False,
    sources: Annotated[
        bool,
        typer.Option("--sources", help="The messy log in two files, a web log and orders, with settings."),
    ] = False,
    answers: Annotated[
        bool,
        typer.Option(
            "--answers", help="Also a log of answers of two versions, with outcomes and true values."
        ),
    ] = False,
    users: Annotated[int | None, typer.Option(help="Number of users (5,000; others 4,000).")] = None,
    items: Annotated[
        int | None, typer.Option(help="Number of items (2,000; messy 1,500; with answers 300).")
    ] = None,
    events_per_user: Annotated[
        float | None, typer.Option(help="Mean length of a history (40; messy about 80; with answers 12).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed; the same seed gives the same files (0).")] = None,
    settings: Settings = None,
    overwrite: Overwrite = False,
) -> None:
    """Generate a synthetic shop: Zipf popularity, genres, series, drifting tastes, new items over time.

    With `--messy` it has views, carts, purchases and returns, goods that are bought again, sessions without a
    user, logins, accounts that are no people, double clicks and bad rows. With `--answers` it has two weeks
    of answers of a live version and a canary, and purchases by a known click model (docs/outcomes.md).

    Example: `turret data synth var/shop --users 1000 --items 600 --seed 7`
    """
    from turret.data.configuration import load_configuration, parse_overrides
    from turret.data.errors import ConfigurationError
    from turret.data.synthetic.synthesis import (
        AnswersConfig,
        MessyConfig,
        SyntheticConfig,
        synthesise,
        synthesise_answers,
    )

    options = {"users": users, "items": items, "events_per_user": events_per_user, "seed": seed}
    overrides = {**options, **parse_overrides(settings or [])}
    if answers:
        if messy or sources:
            raise ConfigurationError("--messy and --answers make different shops; leave one of them out")
        config_of_answers = load_configuration(AnswersConfig, overrides=overrides)
        print(synthesise_answers(config_of_answers, target, overwrite))
        return
    config = (
        load_configuration(MessyConfig, overrides=overrides)
        if messy
        else load_configuration(SyntheticConfig, overrides=overrides)
    )
    report = synthesise(config, target, overwrite, sources)
    print(
        f"{report.events:,} events of {report.users:,} users and {report.items:,} items, "
        f"{report.first:%Y-%m-%d} to {report.last:%Y-%m-%d}, in {report.folder}"
    )


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


@app.command()
def describe(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Prepared data.")] = PREPARED,
) -> None:
    """Describe prepared data: counts, period, parts, features, bad rows, histograms.

    Example: `turret data describe var/prepared`
    """
    from turret.data.preparing.describe import describe as describe_folder

    print(describe_folder(folder))
