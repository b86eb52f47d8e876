"""The command line: what it says, what it refuses, and how it ends."""

import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import turret.cli
from tests.support.command_line import OnTerminal, check_call, commands
from tests.support.trained import trained_shop

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


@pytest.mark.parametrize("group", [[], ["data"], ["report"], ["keys"]])
def test_the_overviews_name_every_command_below_them(group: list[str]) -> None:
    shown = invoke(*group, "--help").stdout
    below = [name.split()[len(group)] for name in commands() if name.split()[: len(group)] == group]
    assert all(re.search(rf"^│ {name} ", shown, re.M) for name in below)


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def swallow(*_: object) -> None:
    """As torch does when it is interrupted in the middle of an import of its own."""
    try:
        interrupt()
    except KeyboardInterrupt:
        raise RuntimeError("something is missing") from None


@pytest.mark.parametrize("interrupted", [interrupt, swallow])
def test_an_interrupt_ends_a_command_with_one_word(
    interrupted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a library has made an error of its own of it."""
    monkeypatch.setattr("turret.training.seeds.commands.evaluate_command", interrupted)
    before = signal.getsignal(signal.SIGINT)
    stopped = invoke("evaluate")
    assert (stopped.exit_code, stopped.stdout, stopped.stderr) == (130, "", "turret: stopped\n")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("a bug"), BrokenPipeError(32, "gone", "x")])
def test_an_error_of_the_program_is_no_sentence_for_users(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its traceback is what helps to mend it."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("turret.training.seeds.commands.evaluate_command", fail)
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


@pytest.mark.nightly
def test_a_training_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    """The terminal shows the epoch; what is there after Ctrl-C is a run that `--resume` finishes."""
    words = [
        "train",
        "--data",
        str(trained_shop().data.folder),
        "--set",
        "tower.dimension=4",
        "--set",
        "training.patience=500",
    ]
    with OnTerminal(*words, "--set", "training.epochs=500", "--run", "run", folder=tmp_path) as command:
        command.wait_for("epoch 3/500")
        command.process.send_signal(signal.SIGINT)
        status, seen = command.end()
    assert status == 130, seen
    assert "Traceback" not in seen
    assert re.search(r"turret: stopped\s*$", seen)
    gone_on = invoke("evaluate", tmp_path / "run", "--json")
    assert gone_on.exit_code == 0, gone_on.exception


def test_every_option_of_serve_is_a_setting_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not given comes from the environment."""
    served: list[Any] = []
    monkeypatch.setattr("turret.service.process.launch.serve", served.append)
    monkeypatch.setenv("TURRET_BUNDLES", "elsewhere")
    assert invoke("serve").exit_code == 0
    given = {"bundles": "b", "host": "::1", "port": 1, "admin-port": 2, "workers": 3, "store": "memory://"}
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    assert invoke("serve", *words, "--wait").exit_code == 0
    plain, full = served
    assert plain.bundles == Path("elsewhere")
    assert (full.bundles, full.host, full.port, full.admin_port) == (Path("b"), "::1", 1, 2)
    assert (full.workers, plain.workers) == (3, 1)
    assert (full.store, full.wait, plain.wait) == ("memory://", True, False)
    assert {option.name for option in commands()["serve"].params} == {
        *(name.replace("-", "_") for name in given),
        "wait",
    }
