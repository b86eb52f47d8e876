"""The log of a process: lines of JSON or text for requests, and for the messages of all loggers."""

import logging
import os
import queue
import select
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from typing import Any

import orjson

from turret.data.errors import text_without_credentials
from turret.service.settings import Form, Level

# The logger of answered requests. A record's `fields` are fields of its line: names and values.
ACCESS = logging.getLogger("turret.access")

_STANDARD_ERROR = 2
_OWN = logging.getLogger("turret")
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\n\t"}


class Logs:
    """Writes all log lines of a worker to standard error, in a thread.

    `level` is the lowest level written, `form` the format (`auto`: text at a terminal), `access` whether
    answered requests are logged. While the descriptor is blocked, `limit` records are queued; further ones
    are dropped and counted. Bodies and keys are never logged.
    """

    def __init__(
        self,
        level: Level = "info",
        form: Form = "auto",
        access: bool = True,
        descriptor: int = _STANDARD_ERROR,
        limit: int = 20_000,
    ) -> None:
        self._level = getattr(logging, level.upper())
        self._access = access
        self._is_open = False
        self._drops = _Drops()
        records: queue.Queue[logging.LogRecord] = queue.Queue(limit)
        self._handler = _Enqueuing(records, self._drops)
        self._listener = _Listener(records, LineWriter(level, form, descriptor, drops=self._drops))

    def start(self) -> None:
        """Start writing and handle the messages of `logging`; call it after a fork."""
        _take_over(self._handler, self._level)
        ACCESS.disabled = not self._access
        self._listener.start()
        self._is_open = True

    def take_dropped(self) -> int:
        """Return the number of lines dropped since the last call."""
        return self._drops.take("exported")

    def close(self, seconds: float = 1.0) -> None:
        """Write the queued lines, within `seconds`."""
        if not self._is_open:
            return
        self._is_open = False
        logging.getLogger().removeHandler(self._handler)
        _OWN.setLevel(logging.NOTSET)
        ACCESS.disabled = False
        stopping = threading.Thread(target=self._listener.stop, daemon=True)
        stopping.start()
        stopping.join(seconds)


class LineWriter(logging.Handler):
    """Writes a line for each record; one with `may_wait` false drops lines that would block.

    After lines were dropped, the next one that is written is followed by a line with their number.
    """

    def __init__(
        self,
        level: Level = "info",
        form: Form = "auto",
        descriptor: int = _STANDARD_ERROR,
        may_wait: bool = True,
        drops: "_Drops | None" = None,
    ) -> None:
        super().__init__(getattr(logging, level.upper()))
        self._line = _line_format(form, descriptor)
        self._descriptor = descriptor
        self._may_wait = may_wait
        self._drops = drops or _Drops()

    def start(self) -> None:
        """Handle the messages of `logging`, in this process."""
        _take_over(self, self.level)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it as dropped; never raises."""
        try:
            self._write(self._line(record))
        except OSError:
            self._drops.add()
            return
        if missing := self._drops.take("written"):
            try:
                self._write(self._line(_lost(missing)))
            except OSError:
                self._drops.put_back(missing)

    def _write(self, line: bytes) -> None:
        if not self._may_wait:
            self._check_room()
            # A pipe that can be written to takes this much without blocking (POSIX: PIPE_BUF).
            line = line[: select.PIPE_BUF]
        while line:
            line = line[os.write(self._descriptor, line) :]

    def _check_room(self) -> None:
        """Raise BlockingIOError if a write would block. Uses poll: select has a limit of 1024."""
        room = select.poll()
        room.register(self._descriptor, select.POLLOUT)
        if not any(events & select.POLLOUT for _, events in room.poll(0)):
            raise BlockingIOError


class _Drops:
    """Counts dropped lines, once for the metrics and once for the log itself; thread-safe."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._counts = {"exported": 0, "written": 0}

    def add(self) -> None:
        with self._counting:
            for name in self._counts:
                self._counts[name] += 1

    def take(self, name: str) -> int:
        with self._counting:
            count, self._counts[name] = self._counts[name], 0
        return count

    def put_back(self, count: int) -> None:
        with self._counting:
            self._counts["written"] += count


class _Enqueuing(QueueHandler):
    """Queues records, or counts them as dropped; the thread formats them."""

    def __init__(self, records: "queue.Queue[logging.LogRecord]", drops: _Drops) -> None:
        super().__init__(records)
        self._drops = drops

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.enqueue(record)
        except queue.Full:
            self._drops.add()


class _Listener(QueueListener):
    """Stops behind the queued records, even if the queue is full."""

    def enqueue_sentinel(self) -> None:
        self.queue.put(self._sentinel)  # type: ignore[attr-defined]  # its own name for what ends the thread


def _take_over(handler: logging.Handler, level: int) -> None:
    """Install a handler in place of one that was inherited from the supervisor."""
    root = logging.getLogger()
    for inherited in [other for other in root.handlers if isinstance(other, LineWriter)]:
        root.removeHandler(inherited)
    _OWN.setLevel(level)  # libraries stay at warnings
    handler.setLevel(level)
    root.addHandler(handler)


def _lost(count: int) -> logging.LogRecord:
    message = f"{count} log lines were dropped, as standard error was blocked"
    return logging.makeLogRecord(
        {
            "name": "turret.log",
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "msg": message,
            "fields": {"dropped": count},
        }
    )


def _line_format(form: Form, descriptor: int) -> Callable[[logging.LogRecord], bytes]:
    if form == "auto":
        form = "text" if _is_terminal(descriptor) else "json"
    return json_line if form == "json" else text_line


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def json_line(record: logging.LogRecord) -> bytes:
    """Format a record as a line of JSON."""
    return orjson.dumps(_fields(record), default=str, option=orjson.OPT_APPEND_NEWLINE)


def text_line(record: logging.LogRecord) -> bytes:
    """Format a record as a line of text without control characters; a traceback has lines of its own."""
    fields = _fields(record)
    moment, level, message = (fields.pop(name) for name in ("time", "level", "message"))
    more = fields.pop("traceback", "")
    if record.name == ACCESS.name:
        method, route = fields.pop("method"), fields.pop("route")
        status, seconds = fields.pop("status"), fields.pop("seconds")
        message = f"{method} {route} {status} {seconds * 1000:.2f} ms"
        fields["degraded"] = ",".join(fields["degraded"])
    shown = "".join(f" {name}={value}" for name, value in fields.items() if value)
    line = f"{moment} {level:7} {message}{shown}" + (f"\n{more}" if more else "")
    return line.translate(_CONTROL).encode("utf-8", "replace") + b"\n"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
        "level": "error" if record.levelno >= logging.ERROR else record.levelname.lower(),
        "message": _message(record),
    }
    if record.name != ACCESS.name:
        fields["logger"] = record.name
    fields |= getattr(record, "fields", {})
    if record.exc_info and record.exc_info[0] is not None:
        trace = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        fields["traceback"] = text_without_credentials(trace)
    return fields


def _message(record: logging.LogRecord) -> str:
    try:
        return text_without_credentials(record.getMessage())
    except Exception:  # wrong arguments must not stop the thread
        return f"a message that can't be formatted: {record.msg!r}"
