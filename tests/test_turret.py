"""The command line: what it says, what it refuses, and how it ends."""

import os
import re
import shlex
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import turret.cli
from tests.support.command_line import OnTerminal, check_call, commands, run, serving
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

every_command = pytest.mark.parametrize("name", commands())


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(turret.cli.app, [*map(str, words)])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty users of the same eight items in turn. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("cli")
    rows = [f"u{user},i{(user + step) % 8},{step}" for user in range(30) for step in range(8)]
    (folder / "events.csv").write_text("\n".join(["user,item,time", *rows]) + "\n")
    prepare(PrepareConfig(source=folder / "events.csv"), folder / "prepared")
    return folder / "prepared"


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


@pytest.fixture
def nobody() -> str:
    """The address of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as here:
        return f"http://127.0.0.1:{here.getsockname()[1]}"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("train --data {nothing}", "nothing is not prepared data"),
        ("train --data {nothing} --resume --overwrite", "give one of the two"),
        ("train --data {prepared} --experiment dsm", "experiment 'dsm': no such file"),
        ("train --data {prepared} --set tower.depth=3", "no setting 'tower.depth'"),
        ("train --data {prepared} --set training.epochs=many", "training.epochs can't be 'many'"),
        ("train --data {prepared} --set epochs", "must look like section.key=value"),
        ("train --data {prepared} --set objective.loss=full_softmax", "contradicts"),
        ("train --data {prepared} --run {file}/run", "Not a directory"),
        ("train --data {prepared} --from {nothing}", "there is no bundle, and no folder"),
        ("train --data {prepared} --from {bundles}", "does not say how it was trained"),
        ("train --data {prepared} --set training.since=soon", "plain numbers, from 0 to 7"),
        ("evaluate {nothing}", "there is no run here"),
        ("evaluate {file}", "Not a directory"),
        ("evaluate {nothing} --part train", "test or validation"),
        ("report samplers --run {nothing}", "there is no run here"),
        ("export {nothing}", "there is no run here"),
        ("serve --bundles {nothing} --port 0", "nothing"),
        ("serve --bundles {bundles} --port 70000", "setting port can't be 70000"),
        ("serve --bundles {bundles} --port {taken}", "can't listen on"),
        ("recommend --url {nobody}", "no service answers there"),
        ("recommend --url localhost:8000", "is not an address"),
        ("recommend --user nobody --data {prepared}", "there is no user 'nobody'"),
        ("recommend --data {nothing}", "nothing is not prepared data"),
        ("versions --bundles {nothing}", "nothing can't be listed"),
        ("activate v9 --bundles {bundles}", "there is no version 'v9'"),
        ("activate ../v1 --bundles {bundles}", "can't name a version"),
        ("activate v1 --bundles {nothing} --url {nobody}", "the admin key can't be read"),
        ("keys new Shop --scope read --file {nothing}", "name 'Shop' is invalid"),
        ("keys new shop --scope all --file {nothing}", "scopes 'all' is invalid"),
        ("keys new shop --scope read --days 1e20 --file {nothing}", "--days 1e+20 is out of range"),
        ("keys new shop --scope read --days nan --file {nothing}", "--days nan is out of range"),
        ("keys revoke shop --file {nothing}", "has no key shop"),
        ("keys list --file {file}", "can't be read"),
        ("data describe {nothing}", "nothing is not prepared data"),
        ("data fetch movielens-2k", "movielens-2k"),
        ("data synth {nothing} --users 0", "users can't be 0"),
        ("data synth {nothing} --set shelves=4", "no setting 'shelves'"),
        ("data synth {prepared}", "exists already"),
        ("data synth {file}/shop", "check the path"),
        ("data prepare {nothing} --to {nothing}", "there is no file or folder"),
        ("data prepare {events} --to {prepared}", "exists already"),
        ("data prepare {events} --to {nothing} --user buyer", "no column 'buyer'"),
        ("data prepare {events} --to {nothing} --split weekly", "'weekly'"),
        ("data prepare {events} --to {nothing} --min-user-events 99", "leaves none"),
        ("data prepare {events} --to {file}/prepared", "check the path"),
    ],
)
def test_what_can_not_be_done_is_said_in_one_sentence(
    words: str, complaint: str, prepared: Path, bundles: Path, tmp_path: Path, nobody: str
) -> None:
    """On standard error, with status 1, and nothing is left behind."""
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        places = {
            "nothing": tmp_path / "nothing",
            "file": tmp_path / "file",
            "prepared": prepared,
            "events": prepared.parent / "events.csv",
            "bundles": bundles,
            "taken": taken.getsockname()[1],
            "nobody": nobody,
        }
        given = words.format(**places)
        if given.startswith("train") and "--run" not in given:
            given += f" --run {tmp_path / 'nothing'}"
        before = sorted(tmp_path.iterdir())
        refused = invoke(*shlex.split(given))
    assert refused.exit_code == 1, refused.exception
    assert refused.stderr.startswith("turret: ")
    assert complaint in refused.stderr
    assert (refused.stderr.count("\n"), refused.stdout) == (1, "")
    assert sorted(tmp_path.iterdir()) == before


def test_a_real_process_complains_without_a_traceback(tmp_path: Path) -> None:
    refused = run("evaluate", "nothing", folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "turret: nothing: there is no run here; `turret train` makes one.\n"


@pytest.mark.parametrize(("words", "name"), [(["trian"], "trian"), (["train", "--epochs", "3"], "--epochs")])
def test_a_misspelt_command_line_is_refused_with_where_to_look(words: list[str], name: str) -> None:
    refused = invoke(*words)
    assert refused.exit_code == 2
    assert name in refused.stderr
    assert "--help" in refused.stderr


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


LONG = {
    "data synth": (["data", "synth", "made", "--users", "60000"], "simulating"),
    "data prepare": (["data", "prepare", "events.csv", "--to", "made"], "Preparing"),
}


@pytest.mark.parametrize("name", LONG)
def test_what_an_interrupt_cuts_short_leaves_no_folder(name: str, tmp_path: Path) -> None:
    """A terminal shows how far it is; Ctrl-C ends it at once, and the terminal is as it was."""
    rows = [f"u{row % 20_011},i{row % 1009},{row}\n" for row in range(600_000)]
    (tmp_path / "events.csv").write_text("user,item,time\n" + "".join(rows))
    words, shown = LONG[name]
    with OnTerminal(*words, folder=tmp_path) as command:
        command.wait_for(shown)
        command.process.send_signal(signal.SIGINT)
        status, seen = command.end()
    assert status == 130, seen
    assert "Traceback" not in seen
    assert re.search(r"turret: stopped\s*$", seen)
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l"), "the cursor is still hidden"
    assert [path.name for path in tmp_path.iterdir()] == ["events.csv"]


@pytest.mark.nightly
def test_a_training_that_was_interrupted_goes_on(prepared: Path, tmp_path: Path) -> None:
    """The terminal shows the epoch; what is there after Ctrl-C is a run that `--resume` finishes."""
    words = ["train", "--data", str(prepared), "--set", "tower.dimension=4", "--set", "training.patience=500"]
    with OnTerminal(*words, "--set", "training.epochs=500", "--run", "run", folder=tmp_path) as command:
        command.wait_for("epoch 3/500")
        command.process.send_signal(signal.SIGINT)
        status, seen = command.end()
    assert status == 130, seen
    assert "Traceback" not in seen
    assert re.search(r"turret: stopped\s*$", seen)
    gone_on = invoke("evaluate", tmp_path / "run", "--json")
    assert gone_on.exit_code == 0, gone_on.exception


def test_a_service_that_is_interrupted_ends_well(bundles: Path) -> None:
    with serving(bundles) as service:
        status, complaints = service.stop(signal.SIGINT)
    assert status == 0
    (said,) = complaints.splitlines()
    assert "there are no API keys" in said


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


def test_every_option_of_a_report_on_samplers_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not given has the report's own default."""
    asked: list[Any] = []
    monkeypatch.setattr("turret.training.report.commands.report_samplers", lambda *given: asked.append(given))
    assert invoke("report", "samplers").exit_code == 0
    words = "--run r --data d --negatives 5 --negatives 7 --queries 9 --draws 30 --refresh-every 2 --seed 3"
    assert invoke("report", "samplers", *words.split(), "--output", "o.svg", "--json", "--all").exit_code == 0
    (run, data, plain, output, as_json, show_all), full = asked
    assert (run, data, output, as_json, show_all) == (Path("var/run"), None, None, False, False)
    assert (plain.negatives, plain.refresh_every) == ((4, 16, 64, 256), (1, 10, 100))
    assert full[:2] == (Path("r"), Path("d"))
    assert full[2] == type(plain)(negatives=(5, 7), queries=9, draws=30, refresh_every=(2,), seed=3)
    assert full[3:] == (Path("o.svg"), True, True)
