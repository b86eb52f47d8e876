"""The commands `serve` and `versions`; each imports its dependencies when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from turret.tower.cli import BUNDLES, AsJson, Bundles

URL = "http://127.0.0.1:8000"

app = typer.Typer(rich_markup_mode="markdown")


@app.command()
def serve(
    bundles: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of the bundles (var/bundles).")
    ] = None,
    wait: Annotated[
        bool | None,
        typer.Option("--wait", help="Begin without a version, and serve the first that becomes current."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on (127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="The port (8000); 0 takes a free one.")] = None,
    admin_port: Annotated[
        int | None, typer.Option(help="Of the admin calls, on 127.0.0.1 (the one after --port).")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that answer (1).")] = None,
    store: Annotated[
        str | None, typer.Option(help="Of histories and items: sqlite:///PATH, redis://HOST or memory://.")
    ] = None,
) -> None:
    """Serve the current bundle over HTTP; the calls are described at /docs.

    Other settings are read from the environment: `TURRET_BUNDLES`, `TURRET_PORT`, ...

    Example: `turret serve --bundles var/bundles --port 8000`
    """
    from turret.service.process.launch import serve as serve_bundles
    from turret.service.settings import read_settings

    options = {"bundles": bundles, "wait": wait, "host": host, "port": port, "store": store}
    options |= {"admin_port": admin_port, "workers": workers}
    serve_bundles(read_settings(**options))


@app.command()
def versions(bundles: Bundles = BUNDLES, as_json: AsJson = False) -> None:
    """List the bundles of a folder and mark the current one.

    Example: `turret versions --bundles var/bundles`
    """
    from turret.service.versions.folder_commands import print_versions

    print_versions(bundles, as_json)
