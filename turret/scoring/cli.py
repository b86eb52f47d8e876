"""The commands `turret score` and `turret vectors`; each imports its dependencies when it runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(rich_markup_mode="markdown")


_Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, or a folder with a current one.")]
_Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Prepared data with the users and their histories."),
]
_Store = Annotated[
    str | None, typer.Option(help="The store of the service with them: sqlite:///PATH or redis://HOST.")
]
_Users = Annotated[
    Path | None,
    typer.Option(
        "--users",
        metavar="FILE",
        help="The users of --data or --store that count (column user_id; all by default); without these, "
        "also their histories (column history).",
    ),
]


@app.command()
def score(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="A bundle, or a folder with a current one.")
    ],
    target: Annotated[Path, typer.Option("--to", metavar="FILE", help="The Parquet file.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Prepared data with the users and their histories."),
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="The store of the service with them: sqlite:///PATH or redis://HOST.")
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(
            "--users",
            metavar="FILE",
            help="The users of --data or --store to score (column user_id; all by default); without these, "
            "also their histories (column history).",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="How many items a user.")] = 20,
    where: Annotated[
        str | None,
        typer.Option("--filter", metavar="JSON", help="A condition on the items' fields (docs/filters.md)."),
    ] = None,
    rules: Annotated[
        list[str] | None, typer.Option("--rule", metavar="NAME", help="A stored rule; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="ID", help="An item to leave out; repeatable.")
    ] = None,
    exclude_seen: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='Leave out items of the history: true, false, or kinds such as ["buy"] (as the bundle).',
        ),
    ] = None,
    min_score: Annotated[float | None, typer.Option(help="The least score by the towers.")] = None,
    diversity: Annotated[
        float, typer.Option(help="The weight of differences among the items, 0 to 1.")
    ] = 0.0,
    cap: Annotated[
        str | None, typer.Option(metavar="JSON", help='Items that share a value of a field, as {"brand": 2}.')
    ] = None,
    among: Annotated[
        Literal["all", "new", "again"],
        typer.Option(help="All items, those without a use in the history, or those with one."),
    ] = "all",
    features: Annotated[
        str | None, typer.Option(metavar="JSON", help="Features of all users, before those of the data.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The time of the lists, in ISO 8601 (the begin of the run)."),
    ] = None,
    by: Annotated[
        Literal["user", "item"],
        typer.Option(help="The items of each user, or the users of each item who have not had it."),
    ] = "user",
    items: Annotated[
        Path | None,
        typer.Option("--items", metavar="FILE", help="With --by item: only these (column item_id)."),
    ] = None,
    candidates: Annotated[
        Literal["validation", "test"] | None,
        typer.Option(
            help="With --data: the lists before this part, with fields, features, and whether the user then "
            "took the item.",
        ),
    ] = None,
    by_index: Annotated[
        bool, typer.Option("--by-index", help="Search the bundle's index, with its recall, as over HTTP.")
    ] = False,
) -> None:
    """Write the recommendations of every user into a Parquet file: user_id, rank, item_id, score, source.

    The answers are those of the service. A run that was killed goes on after its complete parts when the same
    command is given again.

    Example: `turret score var/bundles --data var/prepared -k 20 --to var/scores.parquet`
    """
    from dataclasses import replace

    from turret.data.errors import ConfigurationError
    from turret.scoring.by_item import score_items
    from turret.scoring.candidates import score_candidates
    from turret.scoring.conditions import parsed
    from turret.scoring.run import Run, Users
    from turret.scoring.run import score as score_users
    from turret.tower.bundle.golden import load
    from turret.tower.format.listing import bundle_folder

    conditions = {
        "k": k,
        "filter": parsed("filter", where),
        "rules": rules,
        "exclude": exclude,
        "exclude_seen": parsed("exclude-seen", exclude_seen),
        "min_score": min_score,
        "diversity": diversity,
        "cap": parsed("cap", cap),
        "among": among,
        "features": parsed("features", features),
        "at": at,
    }
    folder = bundle_folder(bundle).resolve()
    opened = load(folder.parent, folder.name)
    run = Run(opened, Users(data, store, users), target, conditions, by_index)
    if candidates is not None and by == "user" and items is None and not by_index:
        print(score_candidates(run, candidates).sentence(target))
        return
    if candidates is not None:
        raise ConfigurationError("--candidates goes without --by, --items and --by-index; leave them out")
    if by == "item":
        others = [name for name, value in conditions.items() if value and name not in ("k", "among")]
        if others or among != "all" or by_index:
            name = (others or ["among" if among != "all" else "by_index"])[0].replace("_", "-")
            raise ConfigurationError(f"--{name} doesn't go with --by item; leave it out")
        print(score_items(replace(run, conditions={}), k, items))
        return
    if items is not None:
        raise ConfigurationError("--items goes with --by item; add it, or leave --items out")
    print(score_users(run).sentence(target))


@app.command()
def vectors(
    bundle: _Bundle,
    target: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="A .parquet file, or a .npy file with ids beside it.")
    ],
    of: Annotated[
        Literal["items", "users"], typer.Option(help="The vectors of items or of users.")
    ] = "items",
    data: _Data = None,
    store: _Store = None,
    users: _Users = None,
) -> None:
    """Write the float32 vectors whose inner product is the score of a user and an item.

    The file names the temperature and the normalisation. With --store, new items are among the items.

    Example: `turret vectors var/bundles --of users --data var/prepared --to var/users.npy`
    """
    from turret.scoring.run import Users
    from turret.scoring.vectors import write_vectors
    from turret.tower.bundle.golden import load
    from turret.tower.format.listing import bundle_folder

    folder = bundle_folder(bundle).resolve()
    opened = load(folder.parent, folder.name)
    source = Users(data, store, users) if any((data, store, users)) else None
    print(write_vectors(opened, of, target, source))
