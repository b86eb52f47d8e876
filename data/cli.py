"""The commands of `turret data`. polars is imported only when a command runs."""

from pathlib import Path
from typing import Annotated, ClassVar

import typer

from turret.data.commands.arguments import PREPARED, Overwrite, Settings
from turret.data.commands.group import ImportingGroup
from turret.data.errors import without_credentials


class _Group(ImportingGroup):
    names: ClassVar = {
        "fetch": None,
        "synth": None,
        "prepare": "turret.data.commands.preparing",
        "append": "turret.data.commands.preparing",
    }


app = typer.Typer(
    name="data",
    cls=_Group,
    help="Fetch or generate event logs, and convert them to the arrays that training reads.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


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
        print(synthesise_answers(load_configuration(AnswersConfig, overrides=overrides), target, overwrite))
        return
    kind: type[MessyConfig | SyntheticConfig] = MessyConfig if messy else SyntheticConfig
    config = load_configuration(kind, overrides=overrides)
    report = synthesise(config, target, overwrite, sources)
    print(
        f"{report.events:,} events of {report.users:,} users and {report.items:,} items, "
        f"{report.first:%Y-%m-%d} to {report.last:%Y-%m-%d}, in {report.folder}"
    )


@app.command()
def describe(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Prepared data.")] = PREPARED,
) -> None:
    """Describe prepared data: counts, period, parts, features, bad rows, histograms.

    Example: `turret data describe var/prepared`
    """
    from turret.data.preparing.describe import describe as describe_folder

    print(describe_folder(folder))
