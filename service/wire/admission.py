"""Admission control: concurrency limits, time slices, and refusals with Retry-After.

Ranking runs in the event loop, so no queue of ours shows the load: the loop reads every readable socket,
starts a task for each request, then runs the tasks one after another, while new bytes wait in the kernel.
Hence:

- Requests are counted on arrival, before parsing and before there is a task. Beyond a limit they are refused
  once their head is read, with prepared bytes. An incomplete body takes no place, or slow clients would keep
  out all others; an unsent response does, until another request needs the place.
- Tasks run in time slices: after `LOOP_SECONDS` of one iteration of the loop, the others let the loop read
  first. So a refusal waits for one slice, not for all admitted requests.
- Refusing has a cost too: a refused connection isn't read for a moment, which grows with the number of such
  connections. Clients that retry at once, against Retry-After, wait in the kernel, where they cost nothing.

Slices and the cost of refusals are in processor time: on a busy machine the process is mostly not running,
and a slice of wall time would end after hardly any work.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic, thread_time
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from turret.service.calls import call_of
from turret.service.error_responses import refuse, timed_out
from turret.service.latency import LOOP_SECONDS
from turret.service.security_headers import DATA
from turret.service.settings import Settings
from turret.service.wire.held_bytes import HeldBytes
from turret.service.wire.limiter import Limiter

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

RETRY_SECONDS = 1
# Never reached by probes: there are no more of them than connections.
_LIMITS = {"read": 128, "operator": 64, "open": 64, "unknown": 128, "probe": 1_000_000}
BUSY = "server overloaded; retry after the Retry-After interval"
OVERDUE = "overdue"  # marks a cancellation at the deadline

# The cost of a refusal with its reading and writing, and the share of time for refusals.
_REFUSAL_SECONDS = 100e-6
_REFUSAL_SHARE = 0.05
_RECENT_SLICES = 100
_MIN_PAUSE, _MAX_PAUSE = 0.05, float(RETRY_SECONDS)

# Refusals pass no middleware that would add these.
_HEADERS = {name.decode(): value.decode() for name, value in DATA} | {"Retry-After": str(RETRY_SECONDS)}


class Admission:
    """The limiters of a process and the time slices of its requests.

    Each lane of `service.calls` has a limiter, and so have `unknown` requests, which are refused for their
    heads, such as those without a valid key. `limits` are those of `recommend`, `batch` and `store`; a slow
    store, or many readers, keep neither recommendations nor the operator out. A request times out after
    `request_seconds`, but for those of the `operator`; one that waits `queue_seconds` for a slice is refused.
    `held` counts buffered bytes. `clock` gives wall seconds, `processor` those of this thread.
    """

    def __init__(
        self,
        limits: Mapping[str, int],
        request_seconds: float = 30.0,
        queue_seconds: float = 0.5,
        held: HeldBytes | None = None,
        clock: Callable[[], float] = monotonic,
        processor: Callable[[], float] = thread_time,
    ) -> None:
        self._limiters = {
            name: Limiter(name, limit, None if name == "operator" else request_seconds, clock)
            for name, limit in {**_LIMITS, **limits}.items()
        }
        self.unknown, self.probe = self._limiters["unknown"], self._limiters["probe"]
        self.held = held or HeldBytes()
        self._queue_seconds = queue_seconds
        self._clock, self._processor = clock, processor
        self._slice_began = 0.0  # by `processor`
        self._slice_ends = False
        self._ran, self._passed = LOOP_SECONDS, LOOP_SECONDS  # processor and wall seconds of recent slices
        self.paused = 0
        self.waiting = 0
        self.refused_connections: Counter[str] = Counter()  # by reason

    @property
    def limiters(self) -> tuple[Limiter, ...]:
        """All limiters, for the metrics."""
        return tuple(self._limiters.values())

    def refusals(self) -> Counter[str]:
        """Count the refusals outside the application, by the reasons of `turret_refused_total`."""
        return self.refused_connections + Counter(overload=sum(limiter.refused for limiter in self.limiters))

    def limiter(self, method: str, path: str) -> Limiter:
        """Return the limiter of a call."""
        return self._limiters[call_of(method, path).lane]

    def begin_slice(self) -> None:
        """Start a new slice, as the loop has read sockets again."""
        self._slice_began = 0.0

    @property
    def processor_share(self) -> float:
        """The processor seconds per wall second of this process in recent slices, at most 1."""
        return min(1.0, self._ran / self._passed)

    def pause_seconds(self) -> float:
        """Seconds for which a connection refused now isn't read."""
        needed = self.paused * _REFUSAL_SECONDS / (_REFUSAL_SHARE * self.processor_share)
        return min(_MAX_PAUSE, max(_MIN_PAUSE, needed))

    async def run(
        self,
        app: ASGIApp,
        limiter: Limiter,
        cycle: "RequestResponseCycle",
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Run a request that has a place in `limiter` once there is a slice, and release the place."""
        try:
            if limiter is self.probe:
                await self._probe(app, scope, receive, send)
            elif self._is_over() and not await self._wait_for_slice():
                limiter.refused += 1
                await refuse(503, "service", None, BUSY, _HEADERS)(scope, receive, send)
                return
            else:
                await app(scope, receive, send)
            if cycle.flow.write_paused:
                await self._wait_until_sent(limiter, cycle)
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (OVERDUE,):
                raise
            self.refused_connections["time"] += 1
            await _end(cycle, scope, receive, send)
        finally:
            limiter.release(cycle.transport)

    async def _probe(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer at once, as late probes count as failed; outside the slice."""
        begun = self._processor()
        await app(scope, receive, send)
        if self._slice_began:
            self._slice_began += self._processor() - begun

    async def _wait_until_sent(self, limiter: Limiter, cycle: "RequestResponseCycle") -> None:
        """Wait until a response is sent or its connection closed."""
        limiter.add_unsent(cycle.transport)
        self.held.add_unsent(cycle.transport)
        try:
            await cycle.flow.drain()
        finally:
            self.held.remove_unsent(cycle.transport)

    def _is_over(self) -> bool:
        """Whether this slice is used up; starts one if there is none."""
        now = self._processor()
        if not self._slice_began:
            self._slice_began = now
            # Also of a slice that does not end by its time: refusals may take up all of the process. A call
            # that is due lets the loop not wait, so the time until it is the loop's own.
            asyncio.get_running_loop().call_soon(self._record_slice, now, self._clock())
        return now - self._slice_began > LOOP_SECONDS

    async def _wait_for_slice(self) -> bool:
        """Wait for a slice, first come first served; False after `queue_seconds`."""
        since = self._clock()
        self.waiting += 1
        try:
            while True:
                if not self._slice_ends:
                    self._slice_ends = True
                    asyncio.get_running_loop().call_soon(self._end_slice)
                await asyncio.sleep(0)
                is_over = self._is_over()
                if self._clock() - since > self._queue_seconds:
                    return False
                if not is_over:
                    return True
        finally:
            self.waiting -= 1

    def _record_slice(self, began: float, began_at: float) -> None:
        """Record a slice's processor and wall time; sums, as few slices have most of the standstill."""
        decay = 1 - 1 / _RECENT_SLICES
        self._ran = decay * self._ran + self._processor() - began
        self._passed = decay * self._passed + self._clock() - began_at

    def _end_slice(self) -> None:
        self._slice_ends = False
        self._slice_began = 0.0


def admission(settings: Settings) -> Admission:
    """Make the admission control of a process from its settings."""
    limits = {
        "recommend": settings.queue_limit,
        "batch": settings.batch_limit,
        "store": settings.store_limit,
    }
    return Admission(limits, settings.request_seconds, settings.queue_seconds)


async def _end(cycle: "RequestResponseCycle", scope: Scope, receive: Receive, send: Send) -> None:
    """Respond that a request timed out before the application had it, or abort a response that has begun."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
    if cycle.response_started:
        cycle.disconnected = True
        cycle.transport.abort()
        return
    await timed_out(_HEADERS)(scope, receive, send)
