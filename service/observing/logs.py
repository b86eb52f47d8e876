"""The log of a process: lines of JSON or text for requests, and for the messages of all loggers."""

import logging
import os
import queue
import re
import select
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from typing import Any

import orjson

from turret.data.errors import text_without_credentials
from turret.service.settings import Form, Level

# The logger of answered requests. A record's `fields` are fields of its line: names and values.
ACCESS = logging.getLogger("turret.access")
QUEUED = 20_000  # records that wait while the descriptor is blocked

_STANDARD_ERROR = 2
_OWN = logging.getLogger("turret")
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\n\t"}
# Version, trace, parent span, flags (W3C Trace Context, 3.2); later versions may append fields. The log needs
# the trace id without OpenTelemetry installed, whose propagator the traces use.
_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class LineWriter(logging.Handler):
    """Writes a line for each record to a descriptor, in the format `form` (`auto`: text at a terminal).

    Without `may_wait` it drops lines that would block. `drop` is called for each dropped line.
    """

    def __init__(
        self,
        form: Form = "auto",
        descriptor: int = _STANDARD_ERROR,
        may_wait: bool = True,
        drop: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        is_text = form == "text" or (form == "auto" and os.isatty(descriptor))
        self._line = text_line if is_text else json_line
        self._descriptor = descriptor
        self._may_wait = may_wait
        self._drop = drop

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or drop it; never raises."""
        try:
            line = self._line(record)
            if not self._may_wait:
                if not select.select([], [self._descriptor], [], 0)[1]:
                    raise BlockingIOError
                # A pipe that can be written to takes this much without blocking (POSIX: PIPE_BUF).
                line = line[: select.PIPE_BUF]
            while line:
                line = line[os.write(self._descriptor, line) :]
        except Exception:  # counted: there is no other place to tell it
            self._drop()


class Logs(QueueHandler):
    """Writes all log lines of a worker, in a thread that also formats them.

    `level` is the lowest level written, `access` whether answered requests are logged. While the descriptor
    is blocked, `QUEUED` records wait; further ones are dropped. Bodies and keys are never logged.
    """

    def __init__(
        self,
        level: Level = "info",
        form: Form = "auto",
        access: bool = True,
        descriptor: int = _STANDARD_ERROR,
        drop: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(queue.Queue(QUEUED))
        self._lowest: Level = level
        self._access = access
        self._drop = drop
        self._writer = LineWriter(form, descriptor, drop=drop)
        self._listener: _Listener | None = None

    def start(self) -> None:
        """Start writing and handle the messages of `logging`; call it after a fork."""
        handle(self, self._lowest)
        ACCESS.disabled = not self._access
        self._listener = _Listener(self.queue, self._writer)
        self._listener.start()

    def close(self, seconds: float = 1.0) -> None:
        """Write the queued lines, within `seconds`."""
        if self._listener is not None:
            logging.getLogger().removeHandler(self)
            _OWN.setLevel(logging.NOTSET)
            ACCESS.disabled = False
            stopping = threading.Thread(target=self._listener.stop, daemon=True)
            stopping.start()
            stopping.join(seconds)
            self._listener = None
        super().close()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Leave the record as it is."""
        return record

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # of `logging`
        """Drop a record, as the queue is full."""
        self._drop()


class _Listener(QueueListener):
    """Stops behind the queued records, even if the queue is full."""

    def enqueue_sentinel(self) -> None:
        self.queue.put(self._sentinel)  # type: ignore[attr-defined]  # its own name for what ends the thread


def handle(handler: logging.Handler, level: Level) -> None:
    """Let `handler` handle the messages of `logging`, in place of one inherited from the supervisor."""
    root = logging.getLogger()
    for inherited in [other for other in root.handlers if isinstance(other, LineWriter)]:
        root.removeHandler(inherited)
    _OWN.setLevel(level.upper())  # libraries stay at warnings
    handler.setLevel(level.upper())
    root.addHandler(handler)


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
    fields: dict[str, Any] = {
        "time": moment.removesuffix("+00:00") + "Z",
        "level": record.levelname.lower(),
        "message": text_without_credentials(record.getMessage()),
    }
    if record.name != ACCESS.name:
        fields["logger"] = record.name
    fields |= getattr(record, "fields", {})
    if record.exc_info:
        fields["traceback"] = text_without_credentials(logging.Formatter().formatException(record.exc_info))
    return fields
