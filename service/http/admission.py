"""Admission control: the layer that reads bodies within limits and bounds the running requests of each lane.

It stands inside the check of keys, so the body of a request without a key is never read. A request counts
from the end of its body, or slow clients would keep out all others, until its answer has been sent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turret.service.calls import call_of
from turret.service.error_responses import refuse, refused, timed_out
from turret.service.errors import LateBodyError, MalformedBodyError, NotReadyError, RequestError
from turret.service.http.bodies import check_head, too_large
from turret.service.settings import Settings
from turret.service.telemetry.metrics import Metrics

RETRY_SECONDS = 1
BUSY = "server overloaded; retry after the Retry-After interval"
# Bytes of all bodies. Well-behaved clients need far less: their bodies pass within milliseconds.
BODY_BYTES = 32_000_000
# Up to here uvicorn buffers an answer without waiting for its client: its high-water mark.
SMALL_ANSWER = 65_536
# Besides those with a setting. Probes have no lane.
_LIMITS = {"read": 128, "operator": 64, "open": 64}
# What a refusal with its reading and writing costs, and the share of time for refusals.
_REFUSAL_SECONDS, _REFUSAL_SHARE = 200e-6, 0.05
_MIN_PAUSE, _MAX_PAUSE = 0.05, float(RETRY_SECONDS)
_CUT_OFF = "the connection ended before the body did; send it again"
_LATE = "the body did not arrive in time; send it again without pauses"
_BUSY = refuse(503, "service", None, BUSY, {"Retry-After": str(RETRY_SECONDS)})


@dataclass
class Lane:
    """At most `limit` requests of one kind at a time, each for at most `seconds` (None: no timeout)."""

    limit: int
    seconds: float | None
    running: int = 0


class _Arriving:
    """A body that is incomplete."""

    def __init__(self, deadline: asyncio.Timeout) -> None:
        self._deadline = deadline
        self.size = 0
        self.is_evicted = False

    def evict(self) -> None:
        """Let its request fail at once."""
        self.is_evicted = True
        if not self._deadline.expired():
            self._deadline.reschedule(0)


class Capacity:
    """What a process holds for its requests: places in lanes, bytes of bodies, and clients that wait.

    A slow store, or many readers, keep neither recommendations nor the operator out. `limit` bounds the bytes
    of all bodies, from their first one to the answer.
    """

    def __init__(self, settings: Settings, limit: int = BODY_BYTES) -> None:
        limits = {
            "recommend": settings.queue_limit,
            "batch": settings.batch_limit,
            "store": settings.store_limit,
            **_LIMITS,
        }
        self.lanes = {
            name: Lane(places, None if name == "operator" else settings.request_seconds)
            for name, places in limits.items()
        }
        self.held_bytes = 0
        self.paused = 0  # clients whose refusal is being held
        self._limit = limit
        self._arriving: dict[_Arriving, None] = {}  # oldest first

    def pause_seconds(self) -> float:
        """Seconds for which the next request of a refused client is not looked at."""
        return min(_MAX_PAUSE, max(_MIN_PAUSE, self.paused * _REFUSAL_SECONDS / _REFUSAL_SHARE))

    def show(self, metrics: Metrics) -> None:
        """Set the gauges of places and of bytes."""
        metrics.held_bytes.set(self.held_bytes)
        for name, lane in self.lanes.items():
            metrics.under_way.labels(name).set(lane.running)

    def begin(self, deadline: asyncio.Timeout) -> _Arriving:
        """Follow a body that arrives in parts, until it is complete or dropped."""
        arriving = _Arriving(deadline)
        self._arriving[arriving] = None
        return arriving

    def add(self, arriving: _Arriving, count: int) -> None:
        """Count a part of a body; beyond the limit the bodies that arrive for the longest time are dropped.

        Slow clients soon have the oldest ones, so a flood of them harms only themselves.
        """
        arriving.size += count
        self.held_bytes += count
        while self.held_bytes > self._limit and self._arriving:
            oldest = next(iter(self._arriving))
            self.drop(oldest)
            oldest.evict()

    def complete(self, arriving: _Arriving) -> None:
        """Let a body be no longer the oldest one that arrives; its bytes are counted on."""
        del self._arriving[arriving]

    def drop(self, arriving: _Arriving) -> None:
        """Count the bytes of an incomplete body no longer."""
        if arriving in self._arriving:
            del self._arriving[arriving]
            self.held_bytes -= arriving.size


class Admission:
    """Reads the body of each request, gives it a place in its lane, or refuses it with 503 and Retry-After.

    The rest of the application gets the body in one message. `count` is called with the reason of each
    refusal: `overload` or `time`. Probes pass through.
    """

    def __init__(
        self, app: ASGIApp, capacity: Capacity, settings: Settings, count: Callable[[str], None]
    ) -> None:
        self._app = app
        self._capacity = capacity
        self._body_limit, self._body_seconds = settings.body_limit, settings.body_seconds
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request through the application, or refuse it."""
        lane = None
        if scope["type"] == "http":
            lane = self._capacity.lanes.get(call_of(scope["method"], scope["path"]).lane)
        if lane is None:
            await self._app(scope, receive, send)
            return
        try:
            check_head(scope, self._body_limit)
            body = await self._read(receive)
        except RequestError as error:
            if reason := {408: "time", 503: "overload"}.get(error.status):
                self._count(reason)
            await refused(error)(scope, receive, send)
            return
        has_place = lane.running < lane.limit
        try:
            if has_place:
                await self._run(lane, scope, _Whole(body, receive), send)
        finally:
            self._capacity.held_bytes -= len(body)
        if not has_place:
            del body
            await self._refuse(send)

    async def _read(self, receive: Receive) -> bytes:
        """Read and count a body. Raises RequestError if it is incomplete, too large or too late."""
        deadline = asyncio.timeout(self._body_seconds)
        try:
            async with deadline:
                message = await receive()
                body: bytes = message.get("body", b"")
                if message.get("more_body") or len(body) > self._body_limit:
                    return await self._collect(message, receive, deadline)
                if message["type"] != "http.request":
                    raise MalformedBodyError("body", None, _CUT_OFF)
                self._capacity.held_bytes += len(body)
                return body
        except TimeoutError:
            if not deadline.expired():
                raise
            raise LateBodyError("body", None, _LATE) from None

    async def _collect(self, message: Message, receive: Receive, deadline: asyncio.Timeout) -> bytes:
        """Read a body that arrives in parts, of which `message` is the first."""
        capacity = self._capacity
        arriving, parts = capacity.begin(deadline), list[bytes]()
        try:
            while True:
                if message["type"] != "http.request":
                    raise MalformedBodyError("body", None, _CUT_OFF)
                parts.append(message.get("body", b""))
                capacity.add(arriving, len(parts[-1]))
                if arriving.size > self._body_limit:
                    raise too_large(self._body_limit)
                if arriving.is_evicted:
                    raise NotReadyError("body", None, BUSY, RETRY_SECONDS)
                if not message.get("more_body"):
                    capacity.complete(arriving)
                    return b"".join(parts)
                message = await receive()
        except asyncio.CancelledError:
            if arriving.is_evicted:
                raise NotReadyError("body", None, BUSY, RETRY_SECONDS) from None
            raise
        finally:
            capacity.drop(arriving)

    async def _run(self, lane: Lane, scope: Scope, receive: Receive, send: Send) -> None:
        answer, deadline = _Answer(send), asyncio.timeout(lane.seconds)
        lane.running += 1
        try:
            async with deadline:
                await self._app(scope, receive, answer)
            if answer.is_large:  # uvicorn sends the end once the client has read all but its buffer
                await send(_end())
        except TimeoutError:
            if answer.has_begun or not deadline.expired():
                raise
            self._count("time")
            await timed_out()(scope, receive, send)
        finally:
            lane.running -= 1

    async def _refuse(self, send: Send) -> None:
        """Refuse at once, and end the answer after a pause, until which uvicorn begins no further request.

        So clients that retry at once, against Retry-After, wait where they cost nothing.
        """
        self._count("overload")
        self._capacity.paused += 1
        try:
            await send({"type": "http.response.start", "status": 503, "headers": _BUSY.raw_headers})
            await send({"type": "http.response.body", "body": _BUSY.body, "more_body": True})
            await asyncio.sleep(self._capacity.pause_seconds())
            await send(_end())
        finally:
            self._capacity.paused -= 1


class _Whole:
    """Gives a body in one message, and then what its connection gives."""

    __slots__ = ("_body", "_receive")

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


class _Answer:
    """Sends an answer but for the end of a large one."""

    __slots__ = ("_send", "has_begun", "is_large")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = self.is_large = False

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.has_begun = True
        elif len(message.get("body", b"")) > SMALL_ANSWER and not message.get("more_body"):
            self.is_large = True
            message = {**message, "more_body": True}
        return self._send(message)


def _end() -> Message:
    return {"type": "http.response.body", "body": b"", "more_body": False}
