"""The log of a process: lines of JSON or text for requests, and for the messages of all loggers."""

import logging
import os
import re
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import time
from typing import Any

import orjson

from turret.data.errors import text_without_credentials
from turret.service.settings import Form, Level

# The logger of answered requests. A record's `fields` are fields of its line: names and values.
ACCESS = logging.getLogger("turret.access")
QUEUED = 20_000  # records that wait while the descriptor is blocked

_STANDARD_ERROR = 2
_ATOMIC_BYTES = select.PIPE_BUF  # that a pipe takes from each of several workers without mixing them (POSIX)
_PAUSE_SECONDS = 0.05
_OWN = logging.getLogger("turret")
_ANSWERED = ACCESS.makeRecord(ACCESS.name, logging.INFO, __file__, 0, "answered", (), None).__dict__
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\n\t"}
# Version, trace, parent span, flags (W3C Trace Context, 3.2); later versions may append fields. The log needs
# the trace id without OpenTelemetry installed, whose propagator the traces use.
_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class LineWriter(logging.Handler):
    """Writes a line for each record to a descriptor, in the format `form` (`auto`: text at a terminal).

    It drops lines that would block. `drop` is called for each dropped line.
    """

    def __init__(
        self, form: Form = "auto", descriptor: int = _STANDARD_ERROR, drop: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        is_text = form == "text" or (form == "auto" and os.isatty(descriptor))
        self._format_line = text_line if is_text else json_line
        self._descriptor = descriptor
        self._drop = drop

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or drop it; never raises."""
        line = self._line(record)
        if select.select([], [self._descriptor], [], 0)[1]:
            # A pipe that can be written to takes this much without blocking.
            self._write([line[:_ATOMIC_BYTES]])
        else:
            self._drop()

    def _line(self, record: logging.LogRecord) -> bytes:
        try:
            return self._format_line(record)
        except Exception as error:  # a faulty record must not stop the thread that writes
            return f"unwritable log line: {type(error).__name__}\n".encode()

    def _write(self, lines: Sequence[bytes]) -> None:
        content = b"".join(lines)
        try:
            while content:
                content = content[os.write(self._descriptor, content) :]
        except OSError:  # counted: there is no other place to tell it
            for _ in lines:
                self._drop()


class Logs(LineWriter):
    """Writes all log lines of a worker, in a thread that also formats them.

    `level` is the lowest level written, `access` whether answered requests are logged. While the descriptor
    is blocked, `QUEUED` records wait; further ones are dropped. Bodies and keys are never logged.

    The thread looks for records 20 times a second and writes them together. logging's QueueListener, which
    is woken for each one and writes it by itself, took 11 of the 161 microseconds of a request.
    """

    def __init__(
        self,
        level: Level = "info",
        form: Form = "auto",
        access: bool = True,
        descriptor: int = _STANDARD_ERROR,
        drop: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(form, descriptor, drop)
        self._lowest: Level = level
        self._access = access
        self._waiting: deque[logging.LogRecord] = deque()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start writing and handle the messages of `logging`; call it after a fork."""
        handle(self, self._lowest)
        ACCESS.disabled = not self._access
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def close(self, seconds: float = 1.0) -> None:
        """Write the queued lines, within `seconds`."""
        if self._thread is not None:
            logging.getLogger().removeHandler(self)
            _OWN.setLevel(logging.NOTSET)
            ACCESS.disabled = False
            self._ending.set()
            self._thread.join(seconds)
            self._thread = None
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, or drop it; never waits."""
        if len(self._waiting) < QUEUED:
            self._waiting.append(record)
        else:
            self._drop()

    def _run(self) -> None:
        is_ending = False
        while not is_ending:
            is_ending = self._ending.wait(_PAUSE_SECONDS)
            lines: list[bytes] = []
            size = 0
            while self._waiting:
                line = self._line(self._waiting.popleft())
                if lines and size + len(line) > _ATOMIC_BYTES:
                    self._write(lines)
                    lines, size = [], 0
                lines.append(line)
                size += len(line)
                if size >= _ATOMIC_BYTES:
                    self._write(lines)
                    lines, size = [], 0
            self._write(lines)


def handle(handler: logging.Handler, level: Level) -> None:
    """Let `handler` handle the messages of `logging`, in place of one inherited from the supervisor."""
    root = logging.getLogger()
    for inherited in [other for other in root.handlers if type(other) is LineWriter]:
        root.removeHandler(inherited)
    _OWN.setLevel(level.upper())  # libraries stay at warnings
    handler.setLevel(level.upper())
    root.addHandler(handler)


def answered(level: int, fields: dict[str, Any]) -> logging.LogRecord:
    """Make the record of an answered request.

    LogRecord itself looks for the caller, the thread, the process and the task, which no line shows: that
    takes several microseconds.
    """
    record = object.__new__(logging.LogRecord)
    changed = {"created": time(), "levelno": level, "levelname": logging.getLevelName(level)}
    record.__dict__ = {**_ANSWERED, **changed, "fields": fields}
    return record


def trace_of(parent: bytes) -> str | None:
    """Return the trace id of a valid `traceparent` header, else None."""
    match = _PARENT.fullmatch(parent)
    return match[1].decode("ascii") if match else None


def json_line(record: logging.LogRecord) -> bytes:
    """Format a record as a line of JSON."""
    return orjson.dumps(_fields(record), default=str, option=orjson.OPT_APPEND_NEWLINE)


def text_line(record: logging.LogRecord) -> bytes:
    """Format a record as a line of text without control characters; a traceback has lines of its own."""
    fields = _fields(record)
    moment, level, message = (fields.pop(name) for name in ("time", "level", "message"))
    trace = fields.pop("traceback", "")
    if record.name == ACCESS.name:
        method, route, status, seconds = map(fields.pop, ("method", "route", "status", "seconds"))
        message = f"{method} {route} {status} {seconds * 1000:.2f} ms"
        fields["degraded"] = ",".join(fields["degraded"])
    shown = "".join(f" {name}={value}" for name, value in fields.items() if value)
    line = f"{moment} {level:7} {message}{shown}" + (f"\n{trace}" if trace else "")
    return line.translate(_CONTROL).encode("utf-8", "replace") + b"\n"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    fields: dict[str, Any] = {"time": moment[:-6] + "Z", "level": record.levelname.lower()}
    if record.name == ACCESS.name:
        fields["message"] = record.msg
    else:
        fields |= {"message": text_without_credentials(record.getMessage()), "logger": record.name}
    fields |= getattr(record, "fields", {})
    if record.exc_info:
        fields["traceback"] = text_without_credentials(logging.Formatter().formatException(record.exc_info))
    return fields
