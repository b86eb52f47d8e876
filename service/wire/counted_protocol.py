"""The reading half of the protocol, which counts every byte against the limits of heads, bodies and framing.

So no input is parsed or buffered without bound: no endless line, no trailers, no framing of tiny chunks.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NoReturn

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from turret.service.wire.admission import Admission
from turret.service.wire.connection_reaper import ConnectionReaper, Deadlines
from turret.service.wire.refusals import (
    BUSY_CLOSED,
    FRAMING_TOO_LARGE,
    HEAD_BYTES,
    HEAD_LINES,
    HEAD_TOO_LARGE,
    NOT_HTTP,
    PIPELINED,
    REASONS,
    TOO_FAST,
    body_too_large,
)

# Chunk sizes, extensions and trailers: so many bytes beyond the size of the body.
FRAMING_BYTES = 16_384
# Bytes that a refused client may still send.
DISCARDED_BYTES = 4_000_000
_FRAMING = (b"content-length", b"transfer-encoding")


class Phase(IntEnum):
    """The phase of a connection."""

    IDLE = 0  # between requests, under uvicorn's keep-alive timer
    HEAD = 1
    BODY = 2
    WORK = 3
    END = 4  # closed for writing


def _all(_: Any) -> bool:
    return True


@dataclass(frozen=True)
class Guards:
    """The state that all connections of a process share.

    `is_admissible` judges a request by its head (key, type); an inadmissible one is refused without its body.
    `for_probes` has the connections beyond the limit, oldest first.
    """

    admission: Admission
    reaper: ConnectionReaper
    deadlines: Deadlines
    max_connections: int = 4096
    body_limit: int = 1_000_000
    is_admissible: Callable[[Any], bool] = _all
    is_draining: Callable[[], bool] = lambda: False
    for_probes: dict["CountedProtocol", None] = field(default_factory=dict)


class CountedProtocol(HttpToolsProtocol):
    """Parses requests within limits. `guards` is a class attribute, as uvicorn makes the objects."""

    guards: Guards

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._phase = Phase.HEAD
        self._since = self.loop.time()
        self._is_discarding = False  # input is not parsed any more
        self._discarded = 0  # bytes since then
        self._fed = 0  # bytes since the last complete request
        self._piece = 0  # bytes of the input being parsed
        self._missed = 0  # upper bound of the head's bytes that came with the previous request
        self._body_size = 0  # of the current request
        self._held: dict[RequestResponseCycle, int] = {}  # buffered bytes of bodies
        self._running: RequestResponseCycle | None = None
        self._fault: bytes | None = None
        self._upgrade_framing: list[bytes] = []  # framing lines of a body after an Upgrade header

    def refuse_connection(self) -> None:
        """Close this connection, as there are too many."""
        raise NotImplementedError

    def evict(self) -> None:
        """Refuse the request with an incomplete body, as others need its memory."""
        self._close_with(BUSY_CLOSED)

    def data_received(self, data: bytes) -> None:
        """Parse input; refuse a request that is too large while it arrives."""
        if self._is_discarding:
            self._discarded += len(data)
            if self._discarded > DISCARDED_BYTES:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        self.guards.admission.begin_slice()
        # In small pieces: a piece may end within a head, which only the next piece counts.
        for start in range(0, len(data), HEAD_BYTES):
            if self._is_discarding or self.transport.is_closing():
                return
            part = data[start : start + HEAD_BYTES]
            self._piece = len(part)
            self._fed += len(part)
            self._parse(part)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if not self._is_discarding:
                self._close_with(self._fault or NOT_HTTP)
        else:
            self._check_fed()

    def on_message_begin(self) -> None:
        """Start the deadline of a head."""
        self._stop_if_discarding()
        self._phase = Phase.HEAD
        self._since = self.loop.time()
        self._missed = 0 if self._fed else self._piece
        self._fed = self._fed or 1
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header line; trailers are dropped (RFC 9110, section 6.5.1)."""
        if self._phase is not Phase.HEAD:
            return
        if len(self.headers) == HEAD_LINES:
            self._fail(HEAD_TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request unless its head is too large."""
        if self._fed + self._missed > HEAD_BYTES:
            self._check_head()
        if len(self.pipeline) >= PIPELINED:
            self._fail(TOO_FAST)
        self._body_size = 0
        if self.parser.should_upgrade():
            self._upgrade_framing = framing(self.headers)
        super().on_headers_complete()
        if not self._is_discarding:
            self._phase = Phase.BODY

    def on_body(self, body: bytes) -> None:
        """Buffer a part of the body; drop it if the response is complete."""
        self._stop_if_discarding()
        self._body_size += len(body)
        if self._body_size > self.guards.body_limit:
            self._fail(body_too_large(self.guards.body_limit))
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        self._held[cycle] = self._held.get(cycle, 0) + len(body)
        held = self.guards.admission.held
        held.add_body(len(body))
        if held.is_full():
            self._fail(BUSY_CLOSED)
        if cycle is self._running:
            cycle.message_event.set()

    def _close_with(self, response: bytes) -> None:
        """Stop reading, write a last response after the current one, and close."""
        raise NotImplementedError

    def _decline(self, rest: bytes) -> None:
        """Read the body of a request with an Upgrade header, and nothing after it.

        `curl --http2` sends `Upgrade: h2c`. A server declines by responding to the request (RFC 9110, section
        7.8), and so has to read its body. httptools takes all bytes after the head for the other protocol; a
        second parser reads the body.
        """
        self.cycle.keep_alive = False
        lines, self._upgrade_framing = self._upgrade_framing, []
        if lines:
            try:
                self.parser = body_parser(lines, self.on_body, self._complete_declined)
            except httptools.HttpParserError:
                self._close_with(NOT_HTTP)
                return
            self._parse(rest)
        else:
            self._is_discarding = True

    def _complete_declined(self) -> None:
        self.on_message_complete()
        self._is_discarding = True

    def _check_head(self) -> None:
        """Fail if the head is too large; the bytes fed may include a body."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES:
            self._fail(HEAD_TOO_LARGE)

    def _check_fed(self) -> None:
        """Close a connection that sends too many bytes that are neither head nor body."""
        if self._is_discarding:
            return
        if self._phase is not Phase.BODY:
            if self._fed > HEAD_BYTES:
                self._close_with(HEAD_TOO_LARGE)
        elif self._fed - self._body_size > HEAD_BYTES + FRAMING_BYTES + self._body_size:
            self._close_with(FRAMING_TOO_LARGE)
        elif not self.cycle.response_complete:
            self.guards.admission.held.add_sender(self)

    def _fail(self, response: bytes) -> NoReturn:
        """Abort the parser from one of its callbacks."""
        self._fault = response
        raise ValueError(response)

    def _count(self, response: bytes) -> None:
        if reason := REASONS.get(response):
            self.guards.admission.refused_connections[reason] += 1

    def _stop_if_discarding(self) -> None:
        if self._is_discarding:
            raise ValueError("the connection is closing")

    def _stop_reading(self) -> None:
        """Drop the current request; earlier ones are still answered."""
        self._is_discarding = True
        if self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()
        self.guards.admission.held.remove_sender(self)
        active = {self._running, *(cycle for cycle, _ in self.pipeline)}
        for cycle in self._held.keys() - active:
            self._release(cycle)

    def _release(self, cycle: RequestResponseCycle) -> None:
        if cycle in self._held:
            self.guards.admission.held.release_body(self._held.pop(cycle))
            cycle.body = bytearray()


@dataclass(frozen=True)
class _Callbacks:
    on_body: Callable[[bytes], None]
    on_message_complete: Callable[[], None]


def framing(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the header lines with the length of the body; none if there is no body."""
    return [
        name + b": " + value
        for name, value in headers
        if name in _FRAMING and not (name == b"content-length" and not value.strip(b"0 "))
    ]


def body_parser(
    lines: Iterable[bytes], on_body: Callable[[bytes], None], on_message_complete: Callable[[], None]
) -> httptools.HttpRequestParser:
    """Make a parser for the body after a head with these framing lines."""
    parser = httptools.HttpRequestParser(_Callbacks(on_body, on_message_complete))
    parser.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *lines, b"", b""]))
    return parser
