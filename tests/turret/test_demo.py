"""What `turret demo` deletes, and how it refuses and ends; its steps run in tests/end_to_end."""

import signal
import socket
from pathlib import Path

import pytest
import typer

from turret import demo


def test_the_demo_deletes_the_files_of_the_demo_before_it_and_nothing_else(tmp_path: Path) -> None:
    """Not even behind a link: somebody may keep a folder of bundles elsewhere."""
    kept = tmp_path / "elsewhere"
    kept.mkdir()
    (kept / "version").touch()
    folder = tmp_path / "demo"
    for name in ("shop", "prepared", "run"):
        (folder / name).mkdir(parents=True)
    (folder / "bundles").symlink_to(kept)
    for name in ("history.sqlite", "history.items.sqlite", "history.sqlite-wal", "notes.txt"):
        (folder / name).touch()
    demo._clear(folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert (kept / "version").exists()


def test_a_taken_port_is_named_with_its_purpose_and_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has given one port, and the next one may be the one that is taken."""

    def taken(address: tuple[str, int]) -> socket.socket:
        if address[1] == 8000:
            return socket.socket()
        raise OSError(98, "Address already in use (while attempting to bind on address ('127.0.0.1', 8001))")

    monkeypatch.setattr(socket, "create_server", taken)
    with pytest.raises(demo.DemoError) as refused:
        demo._check_ports(8000)
    assert str(refused.value) == (
        "port 8001, of the admin calls, can't be had (Address already in use); stop its user, or choose "
        "another one whose next is free, too: turret demo --port 8010"
    )


def test_a_demo_that_is_ended_before_its_answer_does_not_report_success() -> None:
    with pytest.raises(typer.Exit) as ended:
        demo._end(signal.SIGTERM, None)
    assert ended.value.exit_code == 143


class Ended:
    """A service that has ended by itself, or is ended by a signal."""

    def __init__(self, outcome: int | BaseException) -> None:
        self._outcome = outcome

    def wait(self) -> int:
        if isinstance(self._outcome, int):
            return self._outcome
        raise self._outcome


def test_a_service_that_ends_by_itself_ends_the_demo_with_an_error() -> None:
    """Ctrl-C and SIGTERM are the usual ends, and none."""
    demo._await_end(Ended(KeyboardInterrupt()))  # type: ignore[arg-type]
    demo._await_end(Ended(typer.Exit(143)))  # type: ignore[arg-type]
    with pytest.raises(demo.DemoError, match="turret serve ended with status 1"):
        demo._await_end(Ended(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", ["--to elsewhere", "--user customer --to=elsewhere", "--queries pairs.csv", "--help"]
)
def test_an_option_of_the_preparation_that_the_demo_can_not_take_is_refused(options: str) -> None:
    """Else its next command would miss the prepared data, and blame the training for it."""
    with pytest.raises(demo.DemoError, match=r"--prepare '.*': the demo can't take --(to|queries|help); \w+"):
        demo._words_of(options)
    assert demo._words_of("--user to --item 'a b'") == ["--user", "to", "--item", "a b"]
