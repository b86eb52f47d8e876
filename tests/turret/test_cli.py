"""The command line: what it says, what it refuses, and how it ends."""

import os
import re
import shlex
import signal
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import turret.cli
from tests.support.command_line import OnTerminal, check_call, commands
from turret.data.text import text_table
from turret.terminal import write_readably

every_command = pytest.mark.parametrize("name", commands())


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(turret.cli.app, [*map(str, words)])


@every_command
def test_help_tells_what_a_command_does_and_gives_an_example(name: str) -> None:
    """Every option has a text of its own, and the page is complete where nobody reads colours."""
    shown = invoke(*name.split(), "--help")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "Example: turret " + name in " ".join(shown.stdout.split())
    assert "\x1b" not in shown.stdout
    options = [option for option in commands()[name].params if option.opts[0].startswith("--")]
    assert all(option.help and option.opts[0] in shown.stdout for option in options)


@every_command
def test_an_example_can_be_typed_as_it_stands(name: str) -> None:
    """It is a call of this very command, with options that exist."""
    examples = re.findall(r"Example: `turret (.+?)(?: > \S+)?`$", commands()[name].callback.__doc__, re.M)
    assert examples
    for example in examples:
        assert example.startswith(name)
        check_call(shlex.split(example))


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", "| \\u5546 caf\\xe9"), ("latin-1", "| \\u5546 caf\xe9"), ("utf-8", "│ 商 café")],
)
def test_a_table_is_readable_in_a_terminal_of_any_encoding(
    encoding: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = TextIOWrapper(BytesIO(), encoding=encoding, write_through=True)
    monkeypatch.setattr("sys.stdout", terminal)
    write_readably()
    print(text_table(("item", "n"), [("商 café", "1")]))
    written = terminal.buffer.getvalue().decode(encoding)
    assert shown in written
    assert {"-", "+"} <= {*written} or encoding == "utf-8"


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def swallow(*_: object) -> None:
    """As torch does when it is interrupted in the middle of an import of its own."""
    try:
        interrupt()
    except KeyboardInterrupt:
        raise RuntimeError("something is missing") from None


def panic(*_: object) -> None:
    """As Polars does when it is interrupted in Python that it calls."""
    try:
        interrupt()
    except KeyboardInterrupt:
        raise pl.exceptions.PanicException("unwrapped") from None


@pytest.mark.parametrize("text", ["\0", "a\ud800", "k\udce4ufe.csv"])
def test_an_argument_that_is_no_text_is_refused_in_a_sentence(text: str, tmp_path: Path) -> None:
    for words in (["--encoding", text], ["--to", text], ["--item-text", text]):
        refused = invoke("data", "prepare", tmp_path / "e.csv", *words)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"turret: {text!r} is not text in UTF-8")


@pytest.mark.parametrize("interrupted", [interrupt, swallow, panic])
def test_an_interrupt_ends_a_command_with_one_word(
    interrupted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a library has made an error of its own of it."""
    monkeypatch.setattr("turret.training.commands.evaluate_command", interrupted)
    before = signal.getsignal(signal.SIGINT)
    stopped = invoke("evaluate")
    assert (stopped.exit_code, stopped.stdout, stopped.stderr) == (130, "", "turret: stopped\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_does_not_cut_the_clearing_up_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Polars raises an interrupt itself, sometimes before the handler of the command runs."""
    cleared = []

    def command(*_: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            interrupt()
            cleared.append("folder")

    monkeypatch.setattr("turret.training.commands.evaluate_command", command)
    stopped = invoke("evaluate")
    assert (stopped.exit_code, stopped.stdout, stopped.stderr) == (130, "", "turret: stopped\n")
    assert cleared == ["folder"]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("a bug"), BrokenPipeError(32, "gone", "x")])
def test_an_error_of_the_program_is_no_sentence_for_users(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its traceback is what helps to mend it."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("turret.training.commands.evaluate_command", fail)
    assert "turret:" not in invoke("evaluate").stderr


@pytest.mark.process
def test_what_an_interrupt_cuts_short_leaves_no_folder(tmp_path: Path) -> None:
    """A terminal shows how far it is; Ctrl-C ends it at once, and the terminal is as it was."""
    rows = [f"u{row % 20_011},i{row % 1009},{row}\n" for row in range(600_000)]
    (tmp_path / "events.csv").write_text("user,item,time\n" + "".join(rows))
    with OnTerminal("data", "prepare", "events.csv", "--to", "made", folder=tmp_path) as command:
        command.wait_for("Preparing")
        command.process.send_signal(signal.SIGINT)
        status, seen = command.end()
    assert status == 130, seen
    assert "Traceback" not in seen
    assert re.search(r"turret: stopped\s*$", seen)
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l"), "the cursor is still hidden"
    assert [path.name for path in tmp_path.iterdir()] == ["events.csv"]


@pytest.mark.parametrize(("words", "meant"), [("reprot", "report"), ("data prepar", "prepare")])
def test_a_misspelt_command_is_refused_with_the_name_that_was_meant(words: str, meant: str) -> None:
    refused = invoke(*words.split())
    assert refused.exit_code == 2
    assert f"Did you mean '{meant}'" in refused.stderr
