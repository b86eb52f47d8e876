"""The command line. Each subcommand imports its package only when it runs."""

import signal
import sys
from pathlib import Path
from reprlib import repr as shortened
from types import FrameType
from typing import Annotated, Any, ClassVar, Literal, NoReturn

import typer

import turret
from turret.data.commands.group import ImportingGroup
from turret.data.errors import TurretError, is_utf8, system_sentence
from turret.data.extras import install_hint
from turret.data.progress import print_lines
from turret.service.cli import URL
from turret.tower.cli import AsJson


class ErrorHandlingGroup(ImportingGroup):
    """A command group that prints errors as sentences, and exits on Ctrl-C without a traceback."""

    names: ClassVar = {
        "demo": "turret.demo",
        "data": "turret.data.cli",
        **dict.fromkeys(("train", "tune", "evaluate", "compare", "export", "report"), "turret.training.cli"),
        **dict.fromkeys(("publish", "index"), "turret.tower.cli"),
        **dict.fromkeys(("serve", "versions"), "turret.service.cli"),
        **dict.fromkeys(("recommend", "search")),
        **dict.fromkeys(("score", "vectors"), "turret.scoring.cli"),
        "outcomes": "turret.outcomes.cli",
        **dict.fromkeys(("activate", "rollback"), "turret.activation.cli"),
        "retrain": "turret.retraining.cli",
        "plan": "turret.plan",
        "history": "turret.history.cli",
        "keys": "turret.service.keys.cli",
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse arguments that are not valid UTF-8, which neither files nor other libraries take."""
        for argument in args:
            if not is_utf8(argument):
                _end(
                    f"{shortened(argument)} is not text in UTF-8; write it without these bytes, or rename "
                    "the file",
                    2,
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        stopped = False

        def stop(number: int, frame: FrameType | None) -> None:
            nonlocal stopped
            stopped = True
            # Polars raises an interrupt itself, sometimes before this handler runs: a second one would cut
            # the clearing up after the first short.
            if not isinstance(sys.exc_info()[1], KeyboardInterrupt):
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, stop)
        try:
            return super().invoke(ctx)
        except TurretError as error:
            _end(str(error), error.exit_status)
        except KeyboardInterrupt:
            _end("stopped", 130)
        except BaseException as error:
            if stopped:  # torch and Polars turn an interrupt at some places into errors of their own
                _end("stopped", 130)
            if not isinstance(error, Exception):
                raise
            if sentence := system_sentence(error):
                _end(sentence, 1)
            if isinstance(error, ModuleNotFoundError) and (hint := install_hint(error)):
                _end(hint, 1)
            raise
        finally:
            signal.signal(signal.SIGINT, before)


def _end(sentence: str, status: int) -> NoReturn:
    print(f"turret: {sentence}", file=sys.stderr)
    raise typer.Exit(status) from None


app = typer.Typer(
    cls=ErrorHandlingGroup,
    help="Turret turns a log of events into a service that recommends each user's next items in about a "
    "millisecond.\n\n"
    "`turret demo` shows all of it. The usual way: `turret data prepare`, `train`, `evaluate`, `export`, "
    "`serve`, `recommend`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


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


@app.command()
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
    among: Annotated[
        Literal["all", "new", "again"],
        typer.Option(help="All items, those without a use in the history, or those with one."),
    ] = "all",
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context", metavar="NAME=VALUE", help="A feature of the request, as device=mobile; repeatable."
        ),
    ] = None,
    url: Annotated[str, typer.Option(help="The running service.")] = URL,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the service to be ready.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Ask a running service what comes next, and print it beside the history.

    Example: `turret recommend --user u00042 --data var/prepared -k 5`
    """
    from turret import recommending
    from turret.client.requests import RecommendRequest

    request: RecommendRequest = {"k": k, "among": among}
    if context:
        request["context"] = recommending.context_of(context)
    items: list[Any] | None = list(history) if history else None
    words, descriptions = list(history or []), list[dict[str, Any]]()
    if data is not None and not history:
        items, words, descriptions = recommending.prepared_history(data, user)
    with recommending.service_client(url) as client:
        recommending.wait_until_ready(client, wait)
        if items is not None:
            request["history"] = items
        elif user is not None:
            request["user_id"] = user
        answer = client.recommend(**request)
        title = None if as_json else recommending.title_field(client)
        if items is None and user is not None and not as_json:
            words = recommending.stored_history(client, user, title)
    if descriptions:
        words = [*map(recommending.item_text, words, descriptions, [title] * len(words))]
    recommending.print_answer(answer, recommending.recommendations(answer, words, title), as_json)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="The query in words.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many items.")] = 10,
    url: Annotated[str, typer.Option(help="The running service.")] = URL,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the service to be ready.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Ask a running service a question in words, and print the items that answer it.

    Example: `turret search "how do I return a parcel?" -k 3`
    """
    from turret import recommending

    with recommending.service_client(url) as client:
        recommending.wait_until_ready(client, wait)
        answer = client.search(query, k=k)
        title = None if as_json else recommending.title_field(client)
    recommending.print_answer(answer, recommending.found_items(answer, query, title), as_json)


def main() -> None:
    """Run the command line."""
    app(prog_name="turret")
