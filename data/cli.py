"""`turret data`: the command line of this package. Polars is imported only when a command runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

PREPARED = Path("var/prepared")

app = typer.Typer(
    help="Get event logs, and turn them into the arrays that training reads.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any other setting, by its name in the file; repeatable."
    ),
]
Columns = list[str] | None


def _column(role: str) -> Any:
    return typer.Option(metavar="COLUMN", help=f"The column of the {role}; looked for if not named.")


def _feature(text: str) -> Any:
    return typer.Option(metavar="COLUMN", help=text + "; repeatable.")


@app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="movielens-100k, movielens-1m, movielens-32m or online-retail."),
    ],
    target: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where to put it.")] = Path("var/data"),
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="The folder of a mirror; checksums stay the publisher's.")
    ] = None,
) -> None:
    """Download a public data set, check it and unpack it. A download that was cut off goes on.

    Example: `turret data fetch movielens-1m --to var/data`
    """
    from data.datasets import fetch as fetch_dataset
    from data.sources import DATASETS

    folder = fetch_dataset(name, target, base_url)
    dataset = DATASETS[name]
    print(
        f"{dataset.title} is in {folder}\nchecked against: {dataset.checksum_source}\nterms: {dataset.terms}"
    )


@app.command()
def synth(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder.")] = Path("var/shop"),
    users: Annotated[int | None, typer.Option(help="How many users there are (5,000).")] = None,
    items: Annotated[int | None, typer.Option(help="How many items there are (2,000).")] = None,
    events_per_user: Annotated[
        float | None, typer.Option(help="How long a history is in the mean (40).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same files (0).")] = None,
    settings: Settings = None,
    overwrite: Overwrite = False,
) -> None:
    """Invent a shop: popularity by Zipf, genres, series, drifting tastes, items that appear over time.

    Example: `turret data synth var/shop --users 1000 --items 600 --seed 7`
    """
    from data.configuration import load_configuration, parse_overrides
    from data.synthetic import SyntheticConfig, synthesise

    given = {"users": users, "items": items, "events_per_user": events_per_user, "seed": seed}
    config = load_configuration(SyntheticConfig, overrides={**given, **parse_overrides(settings or [])})
    report = synthesise(config, target, overwrite)
    print(
        f"{report.events:,} events of {report.users:,} users and {report.items:,} items, "
        f"{report.first:%Y-%m-%d} to {report.last:%Y-%m-%d}, in {report.folder}"
    )


@app.command()
def prepare(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="Events as CSV, Parquet or JSON lines; a folder with events, items and users files; "
            "or a MovieLens folder or zip.",
        ),
    ] = None,
    target: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where to put it.")] = PREPARED,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file; options given here win.")
    ] = None,
    items: Annotated[Path | None, typer.Option(metavar="FILE", help="What is known of the items.")] = None,
    users: Annotated[Path | None, typer.Option(metavar="FILE", help="What is known of the users.")] = None,
    user: Annotated[str | None, _column("user id")] = None,
    item: Annotated[str | None, _column("item id")] = None,
    time: Annotated[str | None, _column("time or order")] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column of the weight; zero and below (returns) is a bad row."
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of the event's kind.")
    ] = None,
    time_unit: Annotated[
        str | None,
        typer.Option(help="What times count: auto, seconds, milliseconds, microseconds or number."),
    ] = None,
    in_file_order: Annotated[
        bool, typer.Option("--in-file-order", help="Take the order of the rows; there is no time column.")
    ] = False,
    file_format: Annotated[
        str | None, typer.Option("--format", help="auto, csv, parquet, jsonl or movielens.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between CSV fields; found out if not given.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Of text files, such as utf-8 or latin-1.")] = None,
    split: Annotated[str | None, typer.Option(help="last (item of each user out), time, or files.")] = None,
    test_fraction: Annotated[
        float | None, typer.Option(help="By time: the newest share of events (.1).")
    ] = None,
    validation_fraction: Annotated[
        float | None, typer.Option(help="By time or files: the share held out for validation (.1).")
    ] = None,
    validation_from: Annotated[
        str | None, typer.Option(help="By time: where validation begins, a date or a number.")
    ] = None,
    test_from: Annotated[str | None, typer.Option(help="By time: where the test begins.")] = None,
    train_file: Annotated[Path | None, typer.Option("--train", help="By files: the training events.")] = None,
    validation_file: Annotated[
        Path | None, typer.Option("--validation", help="By files: the validation events, if there are any.")
    ] = None,
    test_file: Annotated[Path | None, typer.Option("--test", help="By files: the test events.")] = None,
    keep_kind: Annotated[Columns, typer.Option(help="Keep events of this kind only; repeatable.")] = None,
    min_weight: Annotated[float | None, typer.Option(help="Drop events below this weight.")] = None,
    duplicates: Annotated[
        str | None, typer.Option(help="Of a user and an item: keep, exact, first or last.")
    ] = None,
    min_user_events: Annotated[int | None, typer.Option(help="Drop users with fewer events.")] = None,
    min_item_events: Annotated[int | None, typer.Option(help="Drop items with fewer events.")] = None,
    text: Annotated[Columns, _feature("Item feature: a text, read as letter trigrams")] = None,
    category: Annotated[Columns, _feature("Item feature: one of several values")] = None,
    multi: Annotated[Columns, _feature("Item feature: a list of values")] = None,
    number: Annotated[Columns, _feature("Item feature: a number")] = None,
    user_category: Annotated[Columns, _feature("User feature: one of several values")] = None,
    user_multi: Annotated[Columns, _feature("User feature: a list of values")] = None,
    user_number: Annotated[Columns, _feature("User feature: a number")] = None,
    on_bad: Annotated[
        str | None, typer.Option(help="Rows that can't be events: error (default) or drop.")
    ] = None,
    settings: Settings = None,
    overwrite: Overwrite = False,
) -> None:
    """Validate, filter and split a log, and write the memory-mapped form that training reads.

    Columns that are not named are looked for under their usual names. Bad rows are counted by kind.

    Example: `turret data prepare orders.csv --user customer --item sku --time ordered_at --on-bad drop`
    """
    from data.configuration import load_configuration, parse_overrides
    from data.prepare import prepare as prepare_events
    from data.schema import PrepareConfig

    by_files = {"train": train_file, "validation": validation_file, "test": test_file}
    by_time = {"test_fraction": test_fraction, "validation_from": validation_from, "test_from": test_from}
    given = {
        "source": source,
        "items": items,
        "users": users,
        "columns.user": user,
        "columns.item": item,
        "columns.time": time,
        "columns.weight": weight,
        "columns.kind": kind,
        "columns.time_unit": time_unit,
        "columns.in_file_order": in_file_order or None,
        "format.kind": file_format,
        "format.delimiter": delimiter,
        "format.encoding": encoding,
        "split.kind": split or _split_kind(by_files, by_time, validation_fraction),
        "split.validation_fraction": validation_fraction,
        **{f"split.{name}": value for name, value in {**by_files, **by_time}.items()},
        "filters.kinds": keep_kind,
        "filters.min_weight": min_weight,
        "filters.duplicates": duplicates,
        "filters.min_user_events": min_user_events,
        "filters.min_item_events": min_item_events,
        "item_features.text": text,
        "item_features.category": category,
        "item_features.multi": multi,
        "item_features.number": number,
        "user_features.category": user_category,
        "user_features.multi": user_multi,
        "user_features.number": user_number,
        "on_bad": on_bad,
        **parse_overrides(settings or []),
    }
    report = prepare_events(load_configuration(PrepareConfig, config, given), target, overwrite)
    print(report)


@app.command()
def describe(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Prepared data.")] = PREPARED,
) -> None:
    """Print what prepared data holds: counts, period, parts, features, bad rows, histograms.

    Example: `turret data describe var/prepared`
    """
    from data.describe import describe as describe_folder

    print(describe_folder(folder))


def _split_kind(by_files: dict[str, Any], by_time: dict[str, Any], fraction: float | None) -> str | None:
    """The kind of split that the given options are of; None leaves it to the file or the default."""
    if any(value is not None for value in by_files.values()):
        return "files"
    if fraction is not None or any(value is not None for value in by_time.values()):
        return "time"
    return None
