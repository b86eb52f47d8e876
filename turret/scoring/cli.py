"""The commands `turret score` and `turret vectors`; each imports its dependencies when it runs."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from turret.scoring.run import Run
    from turret.tower.bundle.bundle import Bundle

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


_Target = Annotated[Path, typer.Option("--to", metavar="FILE", help="The Parquet file.")]
_K = Annotated[int, typer.Option("-k", "--k", help="How many items a user.")]
_Filter = Annotated[
    str | None,
    typer.Option("--filter", metavar="JSON", help="A condition on the items' fields (docs/filters.md)."),
]
_Rules = Annotated[
    list[str] | None, typer.Option("--rule", metavar="NAME", help="A stored rule; repeatable.")
]
_Boosts = Annotated[
    list[str] | None,
    typer.Option("--boost", metavar="JSON", help="A boost, as in a request (docs/rules.md); repeatable."),
]
_Pins = Annotated[
    list[str] | None,
    typer.Option("--pin", metavar="JSON", help='A pin, as {"item": "a", "position": 1}; repeatable.'),
]
_Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="ID", help="An item to leave out; repeatable.")
]
_ExcludeSeen = Annotated[
    str | None,
    typer.Option(
        "--exclude-seen",
        metavar="JSON",
        help='Leave out items of the history: true, false, or kinds such as ["buy"] (as the bundle).',
    ),
]
_MinScore = Annotated[float | None, typer.Option(help="The least score by the towers.")]
_Diversity = Annotated[float, typer.Option(help="The weight of differences among the items, 0 to 1.")]
_Cap = Annotated[
    str | None, typer.Option(metavar="JSON", help='Items that share a value of a field, as {"brand": 2}.')
]
_Among = Annotated[
    Literal["all", "new", "again"],
    typer.Option(help="All items, those without a use in the history, or those with one."),
]
_Features = Annotated[
    str | None, typer.Option(metavar="JSON", help="Features of all users, before those of the data.")
]
_Context = Annotated[
    str | None, typer.Option(metavar="JSON", help='The context of all requests, as {"device": "mobile"}.')
]
_At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The time of the lists, in ISO 8601 (the begin of the run)."),
]
_By = Annotated[
    Literal["user", "item"],
    typer.Option(help="The items of each user, or the users of each item who have not had it."),
]
_Items = Annotated[
    Path | None,
    typer.Option("--items", metavar="FILE", help="With --by item: only these (column item_id)."),
]
_Candidates = Annotated[
    Literal["validation", "test"] | None,
    typer.Option(
        help="With --data: the lists before this part, with fields, features, and whether the user then took "
        "the item.",
    ),
]
_ByIndex = Annotated[
    bool, typer.Option("--by-index", help="Search the bundle's index, with its recall, as over HTTP.")
]


@app.command()
def score(
    bundle: _Bundle,
    target: _Target,
    data: _Data = None,
    store: _Store = None,
    users: _Users = None,
    k: _K = 20,
    where: _Filter = None,
    rules: _Rules = None,
    boost: _Boosts = None,
    pin: _Pins = None,
    exclude: _Exclude = None,
    exclude_seen: _ExcludeSeen = None,
    min_score: _MinScore = None,
    diversity: _Diversity = 0.0,
    cap: _Cap = None,
    among: _Among = "all",
    features: _Features = None,
    context: _Context = None,
    at: _At = None,
    by: _By = "user",
    items: _Items = None,
    candidates: _Candidates = None,
    by_index: _ByIndex = False,
) -> None:
    """Write the recommendations of every user into a Parquet file: user_id, rank, item_id, score, source.

    The answers are those of the service. A run that was killed goes on after its complete parts when the same
    command is given again.

    Example: `turret score var/bundles --data var/prepared -k 20 --to var/scores.parquet`
    """
    from turret.scoring.conditions import parsed
    from turret.scoring.run import Run, Users

    texts = {"filter": where, "exclude_seen": exclude_seen, "cap": cap}
    texts |= {"features": features, "context": context}
    conditions = {"k": k, "rules": rules, "exclude": exclude, "min_score": min_score, "at": at}
    conditions |= {"diversity": diversity, "among": among}
    conditions |= {name: parsed(name.replace("_", "-"), text) for name, text in texts.items()}
    repeated = {"boost": boost or [], "pin": pin or []}
    conditions |= {name: [parsed(name, text) for text in texts] for name, texts in repeated.items()}
    run = Run(_opened(bundle), Users(data, store, users), target, conditions, by_index)
    print(_scored(run, by, items, candidates))


def _opened(bundle: Path) -> "Bundle":
    from turret.tower.bundle.golden import load
    from turret.tower.format.listing import bundle_folder

    folder = bundle_folder(bundle).resolve()
    return load(folder.parent, folder.name)


def _scored(run: "Run", by: str, items: Path | None, candidates: Literal["validation", "test"] | None) -> str:
    """Make the table of a run; return a sentence. Raises ConfigurationError for contradictory options."""
    from turret.data.errors import ConfigurationError
    from turret.scoring.by_item import score_items
    from turret.scoring.candidates import score_candidates
    from turret.scoring.run import score as score_users

    if candidates is not None:
        if by == "item" or items is not None or run.by_index:
            raise ConfigurationError("--candidates goes without --by, --items and --by-index; leave them out")
        return score_candidates(run, candidates).sentence(run.target)
    if by == "user":
        if items is not None:
            raise ConfigurationError("--items goes with --by item; add it, or leave --items out")
        return score_users(run).sentence(run.target)
    usual = {"k": run.conditions["k"], "among": "all", "diversity": 0.0, "boost": [], "pin": []}
    others = [name for name, value in run.conditions.items() if value != usual.get(name)]
    others += ["by_index"] * run.by_index
    if others:
        option = "rule" if others[0] == "rules" else others[0].replace("_", "-")
        raise ConfigurationError(f"--{option} doesn't go with --by item; leave it out")
    return score_items(replace(run, conditions={}), run.conditions["k"], items)


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

    source = Users(data, store, users) if any((data, store, users)) else None
    print(write_vectors(_opened(bundle), of, target, source))
