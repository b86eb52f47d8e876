"""Admission control: the layer that reads bodies within limits and bounds the running requests of each lane.

It stands inside the check of keys, so the body of a request without a key is never read. A request counts
from the end of its body until its answer has been sent: if it counted earlier, slow clients would keep out
all others.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turret.service.error_responses import write_error
from turret.service.errors import BodyError, NotReadyError, RequestError, TimedOutError
from turret.service.http.turns import Turns
from turret.service.observing.metrics import Metrics
from turret.service.request_record import RequestRecord
from turret.service.settings import Settings

RETRY_SECONDS = 1
BUSY = "server overloaded; retry after the Retry-After interval"
# All bodies together hold at most so many bytes. Well-behaved clients need far less: their bodies pass
# within milliseconds.
BODY_BYTES = 32_000_000
BODY_SECONDS = 30.0  # from the end of a head to the end of its body
# Up to here uvicorn buffers an answer without waiting for its client: its high-water mark.
SMALL_ANSWER = 65_536
# The most unfinished requests of each lane but "recommend", which has a setting. Probes have no lane.
_LIMITS = {"batch": 8, "bulk": 4, "store": 256, "read": 128, "open": 64}
_LIMITS |= {"operator": 64, "rules": 16, "metrics": 4}
_ENDLESS = ("operator", "rules")  # lanes whose requests wait for an activation
# A refusal takes 200 microseconds: with this pause for each waiting client, refusals take 5 % of the time.
_PAUSE, _LEAST_PAUSE = 0.004, 0.05
# The most bytes of a body, by lane; a setting has the limit of the other lanes.
BODY_LIMITS = {"bulk": 16_000_000}
_JSON = frozenset({b"application/json", b"application/x-ndjson", b"application/jsonl"})
_DIGITS = 20  # of a content length that is read; int() raises ValueError for thousands of digits
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_CUT_OFF = "the connection ended before the body did; send it again"
_LATE = "the body did not arrive in time; send it again without pauses"
_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}
_BUSY = write_error(503, "service", None, BUSY, {"Retry-After": str(RETRY_SECONDS)})


@dataclass
class Lane:
    """At most `limit` requests of one kind at a time, each for at most `seconds`."""

    limit: int
    seconds: float
    running: int = 0


@dataclass(eq=False, slots=True)
class _Request:
    """A request, the time when its body `ends` (or its answer, if it `has_place`), and its counted bytes.

    A request is cancelled for an `error`, which is then its answer.
    """

    task: asyncio.Task[None]
    ends: float
    has_place: bool = False
    size: int = 0
    error: RequestError | None = None

    def fail(self, error: RequestError) -> None:
        """Cancel the request."""
        if self.error is None:
            self.error = error
            self.task.cancel()

    def end_late(self, now: float) -> None:
        """Cancel the request if it is late."""
        if self.ends < now:
            late = BodyError("body", None, _LATE, status=408)
            self.fail(TimedOutError() if self.has_place else late)


class Admission:
    """Reads the body of each request, gives it a place in its lane, or refuses it with 503 and Retry-After.

    A slow store, or many readers, keep neither recommendations nor the operator out. `most_bytes` bounds all
    bodies, from their first byte to the answer; each body is put into the record of its request. `count` is
    called with the reason of each refusal: `overload` or `time`. Probes pass through.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, count: Callable[[str], None], most_bytes: int = BODY_BYTES
    ) -> None:
        self._app = app
        self._count = count
        self._most_bytes, self._body_limit = most_bytes, settings.body_limit
        limits = {"recommend": settings.queue_limit, **_LIMITS}
        self.lanes = {
            name: Lane(places, math.inf if name in _ENDLESS else settings.request_seconds)
            for name, places in limits.items()
        }
        self.held_bytes = 0
        self.paused = 0  # clients whose refusal is being held
        self._requests: set[_Request] = set()
        self._arriving: dict[_Request, None] = {}  # requests whose bodies come in parts, oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._turns = Turns()

    def show(self, metrics: Metrics) -> None:
        """Set the gauges of places and of bytes."""
        metrics.held_bytes.set(self.held_bytes)
        for name, lane in self.lanes.items():
            metrics.under_way.labels(name).set(lane.running)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request through the application, or refuse it. Raises RequestError."""
        record: RequestRecord = scope["turret"]
        name = record.call.lane
        lane = self.lanes.get(name)
        if lane is None:
            await self._app(scope, receive, send)
            return
        body_limit = BODY_LIMITS.get(name, self._body_limit)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        request = _Request(task, loop.time() + BODY_SECONDS)
        self._requests.add(request)
        if self._timer is None:
            self._timer = loop.call_later(1.0, self._end_late, loop)
        has_answer = is_large = False

        def sending(message: Message) -> Awaitable[None]:
            nonlocal has_answer, is_large
            has_answer = True
            if len(message.get("body", b"")) > SMALL_ANSWER and not message.get("more_body"):
                is_large = True
                message = {**message, "more_body": True}
            return send(message)

        try:
            _check_head(scope["method"], record.headers, body_limit)
            record.body = await self._read(request, receive, body_limit)
            if lane.running < lane.limit:
                request.has_place = True
                request.ends = loop.time() + lane.seconds
                lane.running += 1
                if name == "open":
                    await self._turns.wait()  # anybody may fill this lane; others run between its requests
                await self._app(scope, receive, sending)
                if is_large:  # uvicorn sends the end once the client has read all but its buffer
                    request.ends = math.inf
                    await send(_END)
        except asyncio.CancelledError:
            if request.error is None or has_answer:
                raise
            task.uncancel()
            self._count("overload" if type(request.error) is NotReadyError else "time")
            raise request.error from None
        finally:
            lane.running -= request.has_place
            self._requests.remove(request)
            self._arriving.pop(request, None)
            self.held_bytes -= request.size
        if not request.has_place:
            await self._refuse(send)

    def _end_late(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel late requests, once a second: a timer for each would take a tenth of a request's time."""
        for request in self._requests:
            if request.ends < loop.time():
                self._turns.call(request.end_late, loop.time())
        self._timer = loop.call_later(1.0, self._end_late, loop) if self._requests else None

    def _drop_arriving(self) -> None:
        """Drop the bodies that have been arriving for the longest time, while all bodies exceed the limit.

        Slow clients soon have the oldest bodies, so a flood of slow clients harms only these clients.
        """
        while self.held_bytes > self._most_bytes and self._arriving:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            self.held_bytes -= oldest.size
            oldest.size = 0
            oldest.fail(NotReadyError("body", None, BUSY, RETRY_SECONDS))

    async def _read(self, request: _Request, receive: Receive, limit: int) -> bytes:
        """Read and count a body. Raises RequestError if it is incomplete or too large."""
        parts: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise BodyError("body", None, _CUT_OFF)
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
            request.size += len(parts[-1])
            self.held_bytes += len(parts[-1])
            if more:
                self._arriving[request] = None
            else:
                self._arriving.pop(request, None)
            if self.held_bytes > self._most_bytes:
                self._drop_arriving()
            if request.size > limit:
                raise _too_large(limit)
            if request.error is not None:
                await asyncio.sleep(0)  # raises its cancellation
        return b"".join(parts) if len(parts) > 1 else parts[0]

    async def _refuse(self, send: Send) -> None:
        """Refuse at once, and end the answer after a pause; uvicorn begins no further request before the end.

        So clients that retry at once, against Retry-After, wait where they cost nothing.
        """
        self._count("overload")
        self.paused += 1
        try:
            await send({"type": "http.response.start", "status": 503, "headers": _BUSY.raw_headers})
            await send({"type": "http.response.body", "body": _BUSY.body, "more_body": True})
            await asyncio.sleep(min(RETRY_SECONDS, max(_LEAST_PAUSE, self.paused * _PAUSE)))
            await send(_END)
        finally:
            self.paused -= 1


def _check_head(method: str, headers: Mapping[bytes, bytes], limit: int) -> None:
    """Raise RequestError for a body that the head of its request excludes: its type (415) or length (413).

    Any website can make a browser send forms and plain text to any address that the browser reaches, such as
    a service on the visitor's machine. For JSON the browser first sends a CORS preflight, which this service
    refuses. A body without a content type is accepted without an `Origin`, which browsers send.

    A compressed body could be small here and large in memory, and saves nothing for a thousand ids.
    """
    if method in _WITH_BODY:
        kind = headers.get(b"content-type", b"")
        encoding = headers.get(b"content-encoding", b"").strip().lower()
        if encoding not in (b"", b"identity"):
            message = "compressed bodies are not accepted; send plain JSON"
            raise BodyError("Content-Encoding", encoding.decode("latin-1"), message, status=415)
        media_type = kind.partition(b";")[0].strip().lower()
        is_json = media_type in _JSON or (
            media_type.startswith(b"application/") and media_type.endswith(b"+json")
        )
        if not is_json and (kind or b"origin" in headers):
            message = "send JSON with -H 'Content-Type: application/json'"
            raise BodyError("Content-Type", kind.decode("latin-1"), message, status=415)
    length = headers.get(b"content-length", b"")
    if length and (len(length) > _DIGITS or int(length) > limit):
        raise _too_large(limit)


def _too_large(limit: int) -> BodyError:
    return BodyError("body", None, f"the body is larger than {limit} bytes; send it in parts", status=413)
