"""Progress as lines, where standard error is no terminal."""

import io
import logging
import sys
import threading
from types import SimpleNamespace
from typing import ClassVar

import pytest

from tests.support.until import until
from turret.data import progress as module
from turret.data.progress import LOGGER, SECONDS_A_LINE, counted, print_lines, progress, progress_line


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())


class Hurried(threading.Event):
    """An event of which a wait for seconds takes a moment; `waited` has the seconds."""

    waited: ClassVar[set[float]] = set()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited.add(timeout)
        return super().wait(0.001)


def test_lines_are_written_while_a_step_takes_long_and_none_after_the_block(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say how far the work is; the thread that writes them ends, also where the block fails."""
    threads = SimpleNamespace(Event=Hurried, Thread=threading.Thread)
    monkeypatch.setattr(module, "threading", threads)
    logging.getLogger(LOGGER).propagate = True

    def lines() -> list[str]:
        return [line for line in caplog.messages if line.startswith("ranking: 1 of 4 (25 %), ")]

    def fail_in_a_step() -> None:
        with progress("ranking", 4) as advance:
            advance(1)
            until(lambda: len(lines()) >= 2, "a second line within one step")
            raise ValueError("stop")

    with caplog.at_level(logging.INFO, LOGGER), pytest.raises(ValueError, match="stop"):
        fail_in_a_step()
    assert Hurried.waited == {SECONDS_A_LINE}
    assert not [thread for thread in threading.enumerate() if thread.name == "progress of ranking"]


def test_the_command_line_prints_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the standard error of the moment, which may be closed or missing."""
    log = logging.getLogger(LOGGER)
    before = (list(log.handlers), log.level, log.propagate)
    try:
        print_lines()
        print_lines()
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        log.info("a line")
        assert stream.getvalue() == "a line\n"
        stream.close()
        log.info("nobody reads this")
        monkeypatch.setattr(sys, "stderr", None)
        log.info("nor this")
        with progress("ranking"):
            pass
    finally:
        log.handlers[:], log.level, log.propagate = before


@pytest.mark.parametrize(
    ("done", "total", "line"),
    [
        (300, 1200, "epoch: 300 of 1,200 (25 %), 20 s, about 60 s left"),
        (1, 3, "epoch: 1 of 3 (33 %), 20 s"),
        (0, 1200, "epoch: 0 of 1,200 (0 %), 20 s"),
        (1234, None, "epoch: 1,234, 20 s"),
    ],
)
def test_a_line_says_how_far_it_is_and_how_long_it_takes(done: int, total: int | None, line: str) -> None:
    assert progress_line("epoch", done, total, 20.0) == line


def test_a_noun_agrees_with_its_number() -> None:
    texts = [counted(number, "row") for number in (0, 1, 2000)]
    assert texts == ["0 rows", "1 row", "2,000 rows"]
