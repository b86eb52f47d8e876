"""Progress as lines, where standard error is no terminal."""

import io
import logging
import sys
import threading
import time

import pytest

from turret.data import progress as module
from turret.data.progress import LOGGER, counted, print_lines, progress, progress_line


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_A_LINE", 0.02)
    monkeypatch.setattr(sys, "stderr", io.StringIO())


def test_a_line_is_written_now_and_then_while_a_step_takes_long(caplog: pytest.LogCaptureFixture) -> None:
    """It says how far the work is."""
    logging.getLogger(LOGGER).propagate = True
    with caplog.at_level(logging.INFO, LOGGER), progress("ranking", 4) as advance:
        advance(1)
        deadline = time.monotonic() + 20
        while len(caplog.messages) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert caplog.messages[0].startswith("ranking: 1 of 4 (25 %), 0 s")


def test_no_line_is_written_after_the_block(caplog: pytest.LogCaptureFixture) -> None:
    """And its thread ends, also where the block fails."""
    with pytest.raises(ValueError, match="stop"), progress("ranking"):
        raise ValueError("stop")
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
        (1200, 1200, "epoch: 1,200 of 1,200 (100 %), 20 s"),
        (1234, None, "epoch: 1,234, 20 s"),
        (0, None, "epoch: 20 s"),
    ],
)
def test_a_line_says_how_far_it_is_and_how_long_it_takes(done: int, total: int | None, line: str) -> None:
    assert progress_line("epoch", done, total, 20.0) == line


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (2000, "2,000 rows"), (-1, "-1 rows")]
)
def test_a_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert counted(number, "row") == text
