"""uvicorn's HTTP/1.1 protocol within limits that an application can't enforce.

The bytes of a head and of the framing of a body are counted while they arrive, and a head has a deadline.
`TURRET_GUARD=false` runs uvicorn as it was released, where a proxy keeps these limits: the guard overrides
some methods of uvicorn and looks at some of its attributes.
"""

from asyncio import TimerHandle, Transport
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple, NoReturn

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from turret.service.error_responses import write_error
from turret.service.http.edge import DATA_HEADERS
from turret.service.http.turns import Turns

ADMIN_CONNECTIONS = 64  # beyond the limit
HEAD_SECONDS = 10.0  # from the first byte of a head to its end
HEAD_BYTES, HEAD_LINES = 16_384, 100
# Bytes that are parsed at once, but for the rest of a body; the bytes of the shortest request.
PIECE_BYTES, _SHORTEST, _BLANK_LINE = 1_024, len(b"GET / HTTP/1.1\r\n\r\n"), b"\r\n\r\n"
# The input of all connections of a worker that waits behind their running requests has at most this size.
INPUT_BYTES = 16_000_000
# Chunk sizes, extensions and trailers may take so many bytes beyond the size of the body.
FRAMING_BYTES = 4_096
LINGER_SECONDS = 1.0  # in which a client may read its refusal; further bytes are ignored


class Refusal(NamedTuple):
    """The last bytes of a connection, and the reason in `turret_refused_total`, if it has one."""

    content: bytes
    reason: str | None = None


def _refusal(status: int, field: str, message: str, reason: str | None = None) -> Refusal:
    response = write_error(status, field, None, message, {"Retry-After": "1"} if status == 503 else None)
    headers = (*response.raw_headers, *DATA_HEADERS, (b"connection", b"close"))
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
    lines = (first, *(b"%s: %s" % header for header in headers))
    return Refusal(b"\r\n".join((*lines, b"", bytes(response.body))), reason)


NOTHING = Refusal(b"")
TOO_MANY = _refusal(503, "connection", "too many open connections; retry after Retry-After", "overload")
_UNREAD = "too many requests wait behind others on their connections; retry after Retry-After"
TOO_MUCH = _refusal(503, "connection", _UNREAD, "overload")
LATE = _refusal(408, "request", "the request did not arrive in time; send it again without pauses", "time")
NOT_HTTP = _refusal(400, "request", "this is not HTTP/1.1; send a request like those at /docs")
UPGRADE = _refusal(400, "Upgrade", "this service has HTTP/1.1 alone; send the request without Upgrade")
_LARGE = f"the head is larger than {HEAD_BYTES} bytes or {HEAD_LINES} lines; send fewer headers"
HEAD_TOO_LARGE = _refusal(431, "headers", _LARGE, "size")
_FRAMED = "the chunked body has more framing than content; send larger chunks, and no trailers"
FRAMING_TOO_LARGE = _refusal(400, "body", _FRAMED, "size")


def guarded(
    connections: int, count: Callable[[str], None], admin_port: int | None = None
) -> type[HttpToolsProtocol]:
    """Make the protocol class that uvicorn's setting `http` takes, as uvicorn makes the objects.

    `count` is called with the reason of each refusal. Clients of the port `admin_port` get connections beyond
    the number, as other clients may have taken all.
    """
    limits = {"most": connections, "count": staticmethod(count), "admin_port": admin_port, "turns": Turns()}
    return type("GuardedProtocol", (Guard,), limits)


class _Held(FlowControl):
    """Reads nothing while input of the connection waits; uvicorn would go on reading after each answer."""

    is_held = False

    def hold(self, is_held: bool) -> None:
        """Stop reading, or go on."""
        self.is_held = is_held
        if is_held:
            self.pause_reading()
        else:
            self.resume_reading()

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class Guard(HttpToolsProtocol):
    """A connection within limits, see `guarded`."""

    most: int
    count: Callable[[str], None]
    admin_port: int | None
    turns: Turns
    waiting = 0  # bytes of the input of all connections

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_head = True  # the next byte belongs to a head
        self._overhead = 0  # bytes of this request that are not its body
        self._body = 0
        self._left = 0  # bytes of this body to come, where its length is known
        self._input = bytearray()  # not parsed yet
        self._waiting = 0  # bytes of the input that are counted
        self._running: RequestResponseCycle | None = None  # uvicorn's `cycle` is the newest request
        self._fault: Refusal | None = None  # set by a callback of the parser
        self._last: Refusal | None = None  # to be sent after the answers to earlier requests
        self._is_over = False  # nothing more is parsed
        self._timer: TimerHandle | None = None  # of a head, or of a connection that ends

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin the deadline of the first head; close a connection beyond the limit."""
        super().connection_made(transport)
        self.flow: _Held = _Held(transport)
        is_admin = self.admin_port is not None and self.server and self.server[1] == self.admin_port
        if len(self.connections) > self.most + (ADMIN_CONNECTIONS if is_admin else 0):
            self._is_over = True
            self.count("overload")
            transport.write(TOO_MANY.content)
            transport.close()
        else:
            self._begin_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline; a running request sends nothing more, and is told in its turn."""
        self._stop_timer()
        for cycle in (self._running, self.cycle):
            if cycle is not None:
                cycle.disconnected = True
        self.turns.call(self._lose, exc)

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection in its turn, unless a request begins before."""
        self.turns.call(self._end_idle, self.timeout_keep_alive_task)

    def data_received(self, data: bytes) -> None:
        """Parse input; bytes that follow a request wait until that request has been answered.

        A short request takes two hundred times its bytes once it is parsed, and a client could send thousands
        at once.
        """
        self._input += data
        while self._input and not (self._is_over or self.transport.is_closing()):
            if self._is_head and self._running is not None:
                self.flow.hold(True)
                self._count_waiting()
                if self.waiting > INPUT_BYTES:
                    self._refuse(TOO_MUCH)
                    break
                return
            size = min(self._left, HEAD_BYTES)
            if not size:  # up to the end of a head, as a head is counted up to its end only
                end = self._input.find(_BLANK_LINE, _SHORTEST - len(_BLANK_LINE), PIECE_BYTES)
                size = PIECE_BYTES if end < 0 else end + len(_BLANK_LINE)
            piece = bytes(self._input[:size])
            del self._input[:size]
            self._overhead += len(piece)
            super().data_received(piece)
            if self._is_over:
                break
            if self._overhead > HEAD_BYTES + (0 if self._is_head else FRAMING_BYTES + self._body):
                self._refuse(HEAD_TOO_LARGE if self._is_head else FRAMING_TOO_LARGE)
                break
            # If no request runs, the input is part of a head, or the rest of the body of an answered request;
            # and uvicorn has stopped its timer of idle connections.
            if self._running is None and self._timer is None:
                self._begin_timer()
            elif self._running is not None and self._timer is not None:
                self._stop_timer()
        self._input.clear()
        if self._waiting:
            self._count_waiting()
        if self.flow.is_held:
            self.flow.hold(False)

    def _count_waiting(self) -> None:
        type(self).waiting += len(self._input) - self._waiting
        self._waiting = len(self._input)

    def send_400_response(self, msg: str) -> None:
        """Refuse input that uvicorn can't parse, or that a callback below has raised an error for."""
        self._refuse(self._fault or NOT_HTTP)

    def on_headers_complete(self) -> None:
        """Begin a request unless its head is too large."""
        if self.parser.should_upgrade():
            self._fail(UPGRADE)
        # The bytes that were counted may include bytes of the body.
        if len(self.headers) > HEAD_LINES or (self._overhead > HEAD_BYTES and self._head_size() > HEAD_BYTES):
            self._fail(HEAD_TOO_LARGE)
        self._left = int(dict(self.headers).get(b"content-length", 0))
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle
        self.headers = []  # trailers never become headers (RFC 9110, section 6.5.1)
        self._is_head = False

    def on_body(self, body: bytes) -> None:
        """Count a part of a body."""
        self._overhead -= len(body)
        self._body += len(body)
        self._left = max(0, self._left - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect the next head."""
        self._is_head = True
        self._overhead = self._body = self._left = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, or end the connection with the refusal of its input."""
        if self._running is not None and self._running.body:
            self._running.body = bytearray()  # nobody reads the body of a request that was refused
        self._running = self.pipeline[-1][0] if self.pipeline else None
        if self._last is not None and self._running is None:
            self._end(self._last)
            return
        super().on_response_complete()
        if self._input:
            self.turns.call(self.data_received, b"")
        # A client that waits for a 100 may send its body or its next request after a refusal.
        is_awaited = self.expect_100_continue and not self._is_head and not self._body
        if is_awaited and self.cycle.response_complete:
            self.transport.close()

    def shutdown(self) -> None:
        """Close after the current response; a head that has begun to arrive is waited for."""
        if not (self._is_head and self._overhead):
            super().shutdown()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _fail(self, refusal: Refusal) -> NoReturn:
        """End the parsing from a callback of the parser."""
        self._fault = refusal
        raise ValueError(refusal)

    def _begin_timer(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self._is_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_late(self) -> None:
        self.turns.call(self._give_up, self._timer)

    def _give_up(self, timer: TimerHandle | None) -> None:
        """End a connection whose head is late, unless the head came before this turn."""
        if self._timer is timer:
            self._refuse(LATE if self._is_head and self._overhead else NOTHING)

    def _end_idle(self, timer: TimerHandle | None) -> None:
        if self.timeout_keep_alive_task is timer:
            super().timeout_keep_alive_handler()

    def _lose(self, exc: Exception | None) -> None:
        """Tell the running request of the loss, as uvicorn tells only the newest request."""
        self._disconnect()
        self._input.clear()
        self._count_waiting()
        super().connection_lost(exc)

    def _refuse(self, refusal: Refusal) -> None:
        """Read nothing more, and end the connection after the answers to earlier requests."""
        self._is_over = True
        self._stop_timer()
        if refusal.reason is not None:
            self.count(refusal.reason)
        if not self._is_head:
            if self.cycle is not self._running:
                if self.pipeline:
                    self.pipeline.popleft()  # the request has not begun
                else:
                    refusal = NOTHING  # the request was answered
            elif self._running.response_started:
                refusal = NOTHING
            else:
                self._disconnect()  # the application awaits the rest of the body
        if self._running is None:
            self._end(refusal)
        else:
            self._last = refusal

    def _disconnect(self) -> None:
        """Let the running request send nothing more, and get no more of its body."""
        if self._running is not None:
            self._running.disconnected = True
            self._running.waiting_for_100_continue = False
            self._running.message_event.set()
            self._running = None

    def _end(self, refusal: Refusal) -> None:
        """Send the last bytes, and close a moment later.

        A connection that is closed while its input is unread is reset, and its client may lose the answers.
        """
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self.transport.write(refusal.content)
            self.transport.write_eof()
            self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)
