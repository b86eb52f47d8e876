"""The log of a process: its own requests, and whatever any library says through `logging`."""

import logging
import os
import time
import traceback
from typing import Literal

from service.observing.lines import Access, Form, Lines, Message
from service.observing.sink import LIMIT, Sink

Level = Literal["debug", "info", "warning", "error"]

_STANDARD_ERROR = 2
# Answers below 500 are of level info, the others warnings.
_LEAST_STATUS = {"debug": 0, "info": 0, "warning": 500}
_NONE = 1000
_OWN = logging.getLogger("turret")


class Logs:
    """Everything that is said goes through one queue to standard error.

    `level` is the least that is written, `form` how, `access` whether a line is written for each request that
    was answered: those below `least_status` are then left to the figures. Bodies and keys never get here: a request's line has only the fields of `Access`.
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
        """Begin to write, and take over what `logging` gets. To be called after a fork, not before."""
        _OWN.setLevel(self._level)  # libraries stay at warnings
        self._handler.setLevel(self._level)
        logging.getLogger().addHandler(self._handler)
        self.sink.start()

    def answered(self, record: Access) -> None:
        """Log a request, if it is one that is logged."""
        if record.status >= self.least_status:
            self.sink.put(record)

    def close(self) -> None:
        """Write what is left, as far as somebody takes it within a second."""
        logging.getLogger().removeHandler(self._handler)
        _OWN.setLevel(logging.NOTSET)
        self.sink.close()


class _Handler(logging.Handler):
    """Puts what `logging` gets into the sink."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        """Leave a record to the thread that writes; it never waits and never raises."""
        try:
            self._sink.put(_message(record))
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Say which line was at fault, without its arguments."""
        message = f"{record.name} logged what can't be shown: {record.msg!r}"
        self._sink.put(Message(record.created, "error", message, {}))


def _message(record: logging.LogRecord) -> Message:
    fields = {"logger": record.name}
    if (request_id := getattr(record, "request_id", None)) is not None:
        fields["request_id"] = request_id
    if record.exc_info and record.exc_info[0] is not None:
        fields["traceback"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
    level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
    return Message(record.created, level, record.getMessage(), fields)


def _lost(count: int) -> Message:
    message = f"{count} lines of the log were dropped, as nobody took them"
    return Message(time.time(), "warning", message, {"logger": "turret.log", "dropped": count})


def _form(descriptor: int) -> Form:
    try:
        return "text" if os.isatty(descriptor) else "json"
    except OSError:
        return "json"
