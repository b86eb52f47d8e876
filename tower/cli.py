"""The command `turret index`, and the options that all commands on bundles share."""

from pathlib import Path
from typing import Annotated

import typer

BUNDLES = Path("var/bundles")

Bundles = Annotated[Path, typer.Option("--bundles", metavar="DIR", help="The folder of the bundles.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
_Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, or a folder with a current one.")]
_Recall = Annotated[float, typer.Option(help="The minimum recall at every k and selectivity.")]
_Version = Annotated[
    str | None, typer.Option(help="The new bundle's name (the old one's and the kind or the engine).")
]

app = typer.Typer(rich_markup_mode="markdown")


@app.command()
def publish(
    bundle: _Bundle = BUNDLES,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="TURRET_ENGINE",
            help="redis://HOST:PORT or milvus://HOST:PORT; the variable may hold a password.",
        ),
    ] = None,
    recall: _Recall = 0.99,
    version: _Version = None,
    as_json: AsJson = False,
) -> None:
    """Load a bundle's items into a running vector engine, and publish a new version that searches there.

    The engine's search effort is tuned and its recall measured on user vectors; a version that misses the
    recall is not published. The served version does not change. docs/engines.md explains the engines.

    Example: `turret publish var/bundles/spring --engine redis://127.0.0.1:6379`
    """
    from turret.tower.commands import print_note, print_version
    from turret.tower.engines.publishing import publish_to_engine
    from turret.tower.errors import EngineError
    from turret.tower.format.listing import bundle_folder

    if not engine:
        raise EngineError(
            "no engine is named: add --engine redis://HOST:6379 or --engine milvus://HOST:19530, or set "
            "TURRET_ENGINE"
        )
    print_version(publish_to_engine(bundle_folder(bundle), engine, recall, version, print_note), as_json)


@app.command()
def index(
    bundle: _Bundle = BUNDLES,
    kind: Annotated[str, typer.Option(help="flat, ivf_pq, ivf, hnsw; auto measures and chooses.")] = "auto",
    recall: _Recall = 0.99,
    version: _Version = None,
    as_json: AsJson = False,
) -> None:
    """Publish a new version of a bundle with another index, with its recall measured on user vectors.

    An index that misses the recall is not published. The served version does not change. docs/vector_index.md
    explains the kinds.

    Example: `turret index var/bundles/spring --kind auto --recall 0.99`
    """
    from turret.tower.bundle.publish import reindex
    from turret.tower.commands import print_note, print_version
    from turret.tower.format.listing import bundle_folder
    from turret.tower.tuning.choice import IndexRequest

    request = IndexRequest(kind, recall)
    print_version(reindex(bundle_folder(bundle), request, version, print_note), as_json)
