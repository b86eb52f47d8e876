"""The log of a process: lines of JSON or text for requests, and for the messages of all loggers."""

import logging
import os
import re
import select
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from turret.data.errors import text_without_credentials
from turret.service.settings import Form, Level

QUEUED = 20_000  # lines that wait while the descriptor is blocked

Fields = dict[str, Any]  # of a line: names and values

_STANDARD_ERROR = 2
_ATOMIC_BYTES = select.PIPE_BUF  # a pipe takes so many of a worker without mixing in those of others (POSIX)
_PAUSE_SECONDS = 0.05
_OWN = logging.getLogger("turret")
_HEAD = ("time", "level", "message")  # the first fields of each line
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\n\t"}
# Version, trace, parent span, flags (W3C Trace Context, 3.2); later versions may append fields. The log needs
# the trace id without OpenTelemetry installed, whose propagator the traces use.
_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class Logs(logging.Handler):
    """Writes the log of a process to a descriptor, in the format `form` (`auto`: text at a terminal).

    `level` is the lowest level written. While the descriptor is blocked, `QUEUED` lines wait; further ones
    are dropped, and `drop` is called with their number. Bodies and keys are never logged.

    A worker has a thread that looks for lines 20 times a second and writes them together. A record of
    `logging` for each request, and a QueueListener that is woken for it, took 25 of the 161 microseconds of a
    request.
    """

    def __init__(
        self,
        level: Level = "info",
        form: Form = "auto",
        descriptor: int = _STANDARD_ERROR,
        drop: Callable[[int], object] = lambda _: None,
    ) -> None:
        super().__init__(level.upper())
        is_text = form == "text" or (form == "auto" and os.isatty(descriptor))
        self._format_line: Callable[[Fields], bytes] = text_line if is_text else json_line
        self._descriptor = descriptor
        self._drop = drop
        self._waiting: deque[bytes] = deque()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, has_thread: bool = True) -> None:
        """Handle the messages of `logging`, after a fork in place of the handler of the parent process.

        Without a thread a message is written at once, or with the next message if writing would block.
        """
        root = logging.getLogger()
        for other in [other for other in root.handlers if isinstance(other, Logs) and not other._thread]:
            root.removeHandler(other)
        _OWN.setLevel(self.level)  # libraries stay at warnings
        root.addHandler(self)
        if has_thread:
            self._thread = threading.Thread(target=self._run, name="log", daemon=True)
            self._thread.start()

    def close(self, seconds: float = 1.0) -> None:
        """Write the queued lines, within `seconds`."""
        if self._thread is not None:
            logging.getLogger().removeHandler(self)
            _OWN.setLevel(logging.NOTSET)
            self._ending.set()
            self._thread.join(seconds)
            self._thread = None
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, or drop it; never waits, never raises."""
        try:
            self._queue(fields_of(record))
        except Exception:  # a faulty message
            self.handleError(record)
        if self._thread is None:
            self._write_waiting(may_block=False)

    def answered(self, level: int, fields: Fields) -> None:
        """Queue the line of an answered request, or drop it; never waits."""
        if level >= self.level:
            name = "warning" if level >= logging.WARNING else "info"
            self._queue({"time": datetime.now(UTC), "level": name, "message": "answered"} | fields)

    def _queue(self, fields: Fields) -> None:
        if len(self._waiting) < QUEUED:
            self._waiting.append(self._format_line(fields))
        else:
            self._drop(1)

    def _run(self) -> None:
        is_ending = False
        while not is_ending:
            is_ending = self._ending.wait(_PAUSE_SECONDS)
            self._write_waiting(may_block=True)

    def _write_waiting(self, may_block: bool) -> None:
        """Write lines together, as many as a pipe takes without mixing them with lines of other workers."""
        while self._waiting and (may_block or select.select([], [self._descriptor], [], 0)[1]):
            content = self._waiting.popleft()
            while self._waiting and len(content) + len(self._waiting[0]) <= _ATOMIC_BYTES:
                content += self._waiting.popleft()
            if not may_block:  # a pipe that can be written to takes this much
                content = content[:_ATOMIC_BYTES]
            try:
                while content:
                    content = content[os.write(self._descriptor, content) :]
            except OSError:  # the lines are counted: there is no other place to report the error
                self._drop(content.count(b"\n"))


def trace_of(parent: bytes) -> str | None:
    """Return the trace id of a valid `traceparent` header, else None."""
    match = _PARENT.fullmatch(parent)
    return match[1].decode("ascii") if match else None


def json_line(fields: Fields) -> bytes:
    """Format the fields of a line as JSON."""
    return orjson.dumps(fields, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)


def text_line(fields: Fields) -> bytes:
    """Format the fields as text without control characters; a traceback has lines of its own."""
    moment, level, message, *_ = fields.values()
    moment = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    others = {name: value for name, value in fields.items() if name not in _HEAD}
    trace = others.pop("traceback", "")
    if "logger" not in others:
        method, route, status, seconds = map(others.pop, ("method", "route", "status", "seconds"))
        message = f"{method} {route} {status} {seconds * 1000:.2f} ms"
        others["degraded"] = ",".join(others["degraded"])
    shown = "".join(f" {name}={value}" for name, value in others.items() if value)
    line = f"{moment} {level:7} {message}{shown}" + (f"\n{trace}" if trace else "")
    return line.translate(_CONTROL).encode("utf-8", "replace") + b"\n"


def fields_of(record: logging.LogRecord) -> Fields:
    """The fields of a record's line, with those of the record's attribute `fields`."""
    fields = {
        "time": datetime.fromtimestamp(record.created, UTC),
        "level": record.levelname.lower(),
        "message": text_without_credentials(record.getMessage()),
        "logger": record.name,
        **getattr(record, "fields", {}),
    }
    if record.exc_info:
        fields["traceback"] = text_without_credentials(logging.Formatter().formatException(record.exc_info))
    return fields
