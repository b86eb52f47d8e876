"""The command line. Each subcommand imports its package only when it runs."""

from pathlib import Path
from typing import Annotated

import typer

import turret
from turret.activation.cli import app as activation_app
from turret.data.cli import app as data_app
from turret.data.cli_errors import ErrorHandlingGroup
from turret.data.progress import print_lines
from turret.history.cli import app as history_app
from turret.planning.cli import app as planning_app
from turret.retraining.cli import app as retraining_app
from turret.service.cli import URL
from turret.service.cli import app as service_app
from turret.service.keys.cli import app as keys_app
from turret.tower.cli import AsJson
from turret.tower.cli import app as tower_app
from turret.training.cli import app as training_app

app = typer.Typer(
    cls=ErrorHandlingGroup,
    help="Turret turns a log of who-used-what into a service that answers *what next?* in about a "
    "millisecond.\n\n"
    "The usual way: `turret data prepare`, `train`, `evaluate`, `export`, `serve`, `recommend`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(training_app)
app.add_typer(tower_app)
app.add_typer(service_app)
app.add_typer(activation_app)
app.add_typer(retraining_app)
app.add_typer(planning_app)
app.add_typer(history_app, name="history")
app.add_typer(keys_app, name="keys")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"turret {turret.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options of the command line as a whole."""
    print_lines()


@service_app.command()
def recommend(
    user: Annotated[str | None, typer.Option(help="A user of the service, or of --data.")] = None,
    history: Annotated[
        list[str] | None,
        typer.Option("--history", metavar="ID", help="An item of the history, oldest first; repeatable."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Prepared data with the user's history, or anybody's."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many items.")] = 10,
    url: Annotated[str, typer.Option(help="The running service.")] = URL,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the service to be ready.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Ask a running service what comes next, and print it beside the history.

    Example: `turret recommend --user u00042 --data var/prepared -k 5`
    """
    from turret.service import client

    items: list[int | str] | None = list(history) if history else None
    words = list(history or [])
    if data is not None and not history:
        from turret.data.prepared import look_up

        known = look_up(data, user, limit=1000)
        user, items = str(known.user), known.items
        words = [client.item_text(*shown) for shown in zip(known.items, known.fields, strict=True)]
    answer = client.recommend(url, k, user, items, wait)
    if items is None and user is not None:
        words = client.stored_history(url, user)
    client.print_recommendations(answer, words, as_json)


def main() -> None:
    """Run the command line."""
    app(prog_name="turret")
