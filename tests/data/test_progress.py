"""Progress as lines, where standard error is no terminal."""

import io
import logging
import sys

import pytest

from turret.data.progress import LOGGER, print_lines, progress


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
