"""The command line as tests see it: the tree of its commands, and `turret` as a process of its own."""

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import httpx2
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

import turret.cli
from tests.support.places import ROOT
from tests.support.service_process import plain_client

TURRET = [sys.executable, "-m", "turret"]
WORD = re.compile(r"""(?:[^\s'"|&;<>]|'[^']*'|"[^"]*")+|[|&;<>]+""")
PROGRESS = re.compile(r".+: .*\d+ s(, about \d+ s left)?")
RUNNERS = ("turret", "trainer")  # a command of the environment, and of docker-compose.yml

_NOWHERE: Any = None  # groups look at no context


@cache
def _root() -> Any:
    """Building the tree takes a tenth of a second."""
    return get_command(turret.cli.app)


@cache
def commands() -> dict[str, Any]:
    """Every command by its words, such as `data synth`; groups are left out."""
    return dict(_below(_root(), ()))


def _below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not isinstance(command, TyperGroup):
        yield " ".join(words), command
        return
    for name in command.list_commands(_NOWHERE):
        yield from _below(command.get_command(_NOWHERE, name), (*words, name))


def check_call(words: Sequence[str]) -> None:
    """Raise KeyError for a subcommand that does not exist, a UsageError for options that do not fit."""
    command = _root()
    rest = list(words)
    while isinstance(command, TyperGroup):
        command = command.get_command(_NOWHERE, name := rest.pop(0))
        if command is None:
            raise KeyError(name)
    command.make_context("turret", rest)


def calls(script: str) -> list[list[str]]:
    """The words after `turret` (or the container that runs it) in shell lines; comments are none."""
    found: list[list[str]] = []
    for line in script.replace("\\\n", " ").splitlines():
        call: list[str] | None = None
        for word in WORD.findall(line):
            if word.startswith("#"):
                break
            if re.fullmatch("[|&;<>]+", word):
                call = None
            elif call is not None:
                call += shlex.split(word)
            elif Path(word).name in RUNNERS:
                found.append(call := [])
    return found


def _told() -> set[str]:
    """The variables of this environment that tell `turret` how to run or how to print."""
    prefixes = ("TURRET_", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "TERM", "GITHUB_ACTIONS")
    return {name for name in os.environ if name.startswith(prefixes)}


def environment() -> dict[str, str]:
    """This process' environment for a `turret` of its own, which tests tell how to run by words alone."""
    return {name: os.environ[name] for name in os.environ.keys() - _told()} | {"PYTHONPATH": str(ROOT)}


def invoke(*words: str | Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command in `folder` within this process; an error that is no sentence is raised."""
    given = [*map(str, words)]
    with chdir(folder):
        done = CliRunner().invoke(turret.cli.app, given, env=dict.fromkeys(_told()))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(given, done.exit_code, done.stdout, done.stderr)


def run(*words: str | Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command in `folder` as a process of its own, with pipes for its output."""
    command, env = [*TURRET, *map(str, words)], environment()
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def output(*words: str | Path, folder: Path) -> str:
    """The output of a command that succeeds, without control codes and complaints."""
    done = invoke(*words, folder=folder)
    # On a busy machine a command takes longer than the ten seconds after which it shows its progress.
    complaints = [line for line in done.stderr.splitlines() if not re.fullmatch(PROGRESS, line)]
    assert (done.returncode, complaints) == (0, []), done.stderr
    assert "\x1b" not in done.stdout
    return done.stdout


@dataclass(frozen=True)
class Service:
    """A `turret serve` of its own: its address, that of admin calls, and a client of the first."""

    url: str
    admin: str
    client: httpx2.Client


@contextmanager
def serving(*words: str | Path, folder: Path) -> Iterator[Service]:
    """`turret serve` with these words, on a free port, until the block ends."""
    command = [*TURRET, "serve", *map(str, words), "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url, *_, admin = re.findall(r"http://[\d.:]+\d", process.stdout.readline())
            with plain_client(url) as client:
                yield Service(url, admin, client)
        finally:
            process.terminate()


class OnTerminal:
    """A command whose standard error is a terminal; what it writes there can be waited for."""

    def __init__(self, *words: str | Path, folder: Path) -> None:
        self._terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*TURRET, *map(str, words)],
            cwd=folder,
            env={**environment(), "TERM": "xterm"},
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
        os.close(theirs)
        self.seen = ""

    def wait_for(self, text: str) -> None:
        """Return when `text` has been written; fail when the command ends without it."""
        while text not in self.seen:
            assert self._read(), f"{text!r} was never written, but {self.seen!r}"

    def end(self) -> tuple[int, str]:
        """Its exit status, and all that it wrote to the terminal."""
        while self._read():
            pass
        return self.process.wait(), self.seen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)

    def _read(self) -> bool:
        try:
            written = os.read(self._terminal, 65536)
        except OSError:  # how Linux says that nobody has the terminal open any more
            return False
        self.seen += written.decode("utf-8", "replace")
        return bool(written)
