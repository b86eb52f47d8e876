"""`turret demo`: from raw events to recommendations over HTTP, with the commands that a user would type.

Each step is a process of its own, so that its memory is free before the next one begins.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn
from urllib.parse import quote

import typer

from turret.data.errors import TurretError

app = typer.Typer(rich_markup_mode="markdown")

WORK, SETS = Path("var/demo"), Path("var/data")
# The demo deletes these of an earlier one, and nothing else in its folder.
_MADE = ("shop", "prepared", "run", "bundles", "history*.sqlite*")
_TURRET = (sys.executable, "-m", "turret")
# Options of `turret data prepare` that leave the next command without prepared data of users.
_REFUSED = {
    "--to": f"it prepares into {WORK / 'prepared'}; leave the option out, or run `turret data prepare`",
    "--queries": "it recommends to users; docs/questions.md has the commands for questions in words",
    "--help": "run `turret data prepare --help`",
}
_LAST_PORT = 65_534  # the admin calls have the next one


class DemoError(TurretError):
    """The demo can't begin, or one of its commands has failed and said why."""


@app.command()
def demo(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A data set of `turret data fetch`, or the path of events; without it, a synthetic shop.",
        ),
    ] = None,
    options: Annotated[
        str, typer.Option("--prepare", metavar="OPTIONS", help="Options of `turret data prepare`, in quotes.")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Stop after the answer.")] = False,
    port: Annotated[
        int, typer.Option(min=1, max=_LAST_PORT, help="Of the service; the admin calls have the next one.")
    ] = 8000,
) -> None:
    """Prepare, train, evaluate, export and serve, and print an answer; it replaces its files in var/demo.

    Example: `turret demo orders.csv --prepare "--user customer --item sku --time ordered_at"`
    """
    log = _log_of(source)
    given = _words_of(options) or log.options
    _check_ports(port)
    signal.signal(signal.SIGTERM, _end)
    WORK.mkdir(parents=True, exist_ok=True)
    _clear(WORK)
    if log.made_by:
        _run(*log.made_by)
    _run("data", "prepare", log.path, "--to", WORK / "prepared", *given)
    _run("train", "--data", WORK / "prepared", "--run", WORK / "run", "--experiment", "demo")
    _run("evaluate", WORK / "run")
    _run("export", WORK / "run", "--bundles", WORK / "bundles")
    store, url = f"sqlite:///{WORK}/history.sqlite", f"http://127.0.0.1:{port}"
    with _serving("--bundles", WORK / "bundles", "--port", port, "--store", store) as service:
        # The users of the log are known to the service; the first of them is asked for.
        _run("history", "load", "--data", WORK / "prepared", "--store", store)
        user = _first_user(WORK / "prepared")
        _run("recommend", "--user", user, "--url", url, "--wait", 30)
        if not once:
            _say_what_next(url, user)
            _await_end(service)


@dataclass(frozen=True)
class _Log:
    """Events, the command that makes or fetches them, and the usual options of their preparation."""

    path: Path
    made_by: tuple[object, ...] = ()
    options: tuple[str, ...] = ()


def _log_of(source: str | None) -> _Log:
    """Raises DemoError for a name that is neither a data set nor a path."""
    from turret.data.fetching.datasets import DATASETS

    if not source:
        return _Log(WORK / "shop", ("data", "synth", WORK / "shop"))
    if source in DATASETS:
        returns = ("--quantity", "quantity", "--on-bad", "drop") if source == "online-retail" else ()
        return _Log(SETS / source, ("data", "fetch", source, "--to", SETS), returns)
    if not Path(source).exists():
        raise DemoError(f"{source} is neither a file or folder nor one of {', '.join(DATASETS)}")
    if Path(source).resolve().is_relative_to(WORK.resolve()):
        raise DemoError(f"{source} is in {WORK}, whose files the demo replaces; copy it elsewhere")
    return _Log(Path(source), options=("--on-bad", "drop"))  # dropped rows are counted and shown


def _clear(folder: Path) -> None:
    """Delete what an earlier demo has made in `folder`."""
    for path in (path for pattern in _MADE for path in folder.glob(pattern)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _words_of(options: str) -> list[str]:
    """Raises DemoError for a quote that is not closed, and for an option that the demo can't take."""
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise DemoError(
            f"--prepare {options!r}: {error}; give options of `turret data prepare` in quotes, such as "
            '--prepare "--user customer --item sku"'
        ) from None
    for name, remedy in _REFUSED.items():
        if any(word.partition("=")[0] == name for word in words):
            raise DemoError(f"--prepare {options!r}: the demo can't take {name}; {remedy}")
    return words


def _check_ports(port: int) -> None:
    """Raise DemoError for a taken port: before the training, and not after it."""
    for wanted, calls in ((port, "the calls"), (port + 1, "the admin calls")):
        try:
            socket.create_server(("127.0.0.1", wanted)).close()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise DemoError(
                f"port {wanted}, of {calls}, can't be had ({reason}); stop its user, or choose another one "
                f"whose next is free, too: turret demo --port {port + 10 if port < 60_000 else 8000}"
            ) from None


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End in order on SIGTERM, with its usual exit status: the service is stopped on the way out."""
    raise typer.Exit(128 + number)


def _run(*words: object) -> None:
    """Print a command and run it; raise DemoError if it fails, which it has explained itself."""
    print(f"\n$ turret {shlex.join(map(str, words))}", flush=True)
    status = subprocess.run([*_TURRET, *map(str, words)], check=False).returncode
    if status:
        raise DemoError(f"turret {words[0]} ended with status {status}, and the demo with it")


@contextmanager
def _serving(*words: object) -> "Iterator[subprocess.Popen[bytes]]":
    """`turret serve` in the background, until the block ends."""
    print(f"\n$ turret serve {shlex.join(map(str, words))} &", flush=True)
    command: Sequence[str] = [*_TURRET, "serve", *map(str, words)]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.terminate()


def _await_end(service: "subprocess.Popen[bytes]") -> None:
    """Wait until Ctrl-C or SIGTERM; raise DemoError for a service that ends by itself."""
    with suppress(KeyboardInterrupt, typer.Exit):
        status = service.wait()
        raise DemoError(f"turret serve ended with status {status}, and the demo with it")


def _first_user(folder: Path) -> str:
    from turret.data.prepared import PreparedData

    return str(PreparedData.open(folder).users.id(0))


def _say_what_next(url: str, user: str) -> None:
    body = json.dumps({"user_id": user, "k": 3}, ensure_ascii=False)
    print(
        f"\nOpen {url}/#try?user={quote(user, safe='')} in a browser. The calls are described at {url}/docs;"
    )
    print("send one from another terminal:")
    print(f"  curl -s {url}/v1/recommend -H 'Content-Type: application/json' -d {shlex.quote(body)}")
    print("Ctrl-C stops it.", flush=True)
