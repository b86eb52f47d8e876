"""The log of a process: requests, and messages of all loggers."""

import logging
import os
import select
import time
import traceback
from typing import Literal

from turret.data.errors import text_without_credentials
from turret.service.telemetry.log_lines import Access, Form, Lines, Message
from turret.service.telemetry.log_sink import LIMIT, Sink

Level = Literal["debug", "info", "warning", "error"]

_STANDARD_ERROR = 2
# Answers below 500 have the level info, the others warning.
_LEAST_STATUS = {"debug": 0, "info": 0, "warning": 500}
_NONE = 1000
_OWN = logging.getLogger("turret")


class Logs:
    """Writes all log lines through one queue to standard error.

    `level` is the lowest level written, `form` the format, `access` whether answered requests are logged,
    those with a status of at least `least_status`. Bodies and keys are never logged: a request's line has
    only the fields of `Access`.
    """

    def __init__(
        self,
        level: Level = "info",
        form: Form | Literal["auto"] = "auto",
        access: bool = True,
        descriptor: int = _STANDARD_ERROR,
        limit: int = LIMIT,
    ) -> None:
        self._level = getattr(logging, level.upper())
        lines = Lines(_form(descriptor) if form == "auto" else form)
        self.sink = Sink(lines.write, _lost, descriptor, limit)
        self.least_status = _LEAST_STATUS.get(level, _NONE) if access else _NONE
        self._handler = _Handler(self.sink)

    def start(self) -> None:
        """Start writing and handle the messages of `logging`; call it after a fork."""
        _take_over(self._handler, self._level)
        self.sink.start()

    def answered(self, record: Access) -> None:
        """Log an answered request if the level asks for it."""
        if record.status >= self.least_status:
            self.sink.put(record)

    def close(self) -> None:
        """Write the queued lines, within a second."""
        logging.getLogger().removeHandler(self._handler)
        _OWN.setLevel(logging.NOTSET)
        self.sink.close()


class DirectLog(logging.Handler):
    """The log of a process without threads: it writes a line only if that does not block.

    The next line is preceded by the number of dropped ones.
    """

    def __init__(
        self, level: Level = "info", form: Form | Literal["auto"] = "auto", descriptor: int = _STANDARD_ERROR
    ) -> None:
        super().__init__(getattr(logging, level.upper()))
        self._lines = Lines(_form(descriptor) if form == "auto" else form)
        self._descriptor = descriptor
        self._missing = 0

    def start(self) -> None:
        """Handle the messages of `logging`."""
        _take_over(self, self.level)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it as dropped if that would block."""
        waiting = [_lost(self._missing)] if self._missing else []
        try:
            chunk = b"".join(self._lines.write(line) for line in (*waiting, _message(record)))
            self._check_room()
            # A pipe that can be written to takes this much without blocking (POSIX: PIPE_BUF).
            os.write(self._descriptor, chunk[:4096])
            self._missing = 0
        except (OSError, ValueError, TypeError):
            self._missing += 1

    def _check_room(self) -> None:
        """Raise BlockingIOError if a write would block. Uses poll: select has a limit of 1024."""
        room = select.poll()
        room.register(self._descriptor, select.POLLOUT)
        if not any(events & select.POLLOUT for _, events in room.poll(0)):
            raise BlockingIOError


class _Handler(logging.Handler):
    """Passes records of `logging` to the sink."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; never blocks, never raises."""
        try:
            self._sink.put(_message(record))
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Log the faulty message without its arguments."""
        message = f"{record.name} logged a message that can't be formatted: {record.msg!r}"
        self._sink.put(Message(record.created, "error", message, {}))


def _take_over(handler: logging.Handler, level: int) -> None:
    """Install a handler in place of an inherited DirectLog."""
    root = logging.getLogger()
    for other in [inherited for inherited in root.handlers if isinstance(inherited, DirectLog)]:
        root.removeHandler(other)
    _OWN.setLevel(level)  # libraries stay at warnings
    handler.setLevel(level)
    root.addHandler(handler)


def _message(record: logging.LogRecord) -> Message:
    fields = {"logger": record.name}
    if (request_id := getattr(record, "request_id", None)) is not None:
        fields["request_id"] = request_id
    if record.exc_info and record.exc_info[0] is not None:
        fields["traceback"] = text_without_credentials(
            "".join(traceback.format_exception(*record.exc_info)).rstrip()
        )
    level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
    return Message(record.created, level, text_without_credentials(record.getMessage()), fields)


def _lost(count: int) -> Message:
    message = f"{count} log lines were dropped, as standard error was blocked"
    return Message(time.time(), "warning", message, {"logger": "turret.log", "dropped": count})


def _form(descriptor: int) -> Form:
    try:
        return "text" if os.isatty(descriptor) else "json"
    except OSError:
        return "json"
