"""uvicorn's HTTP/1.1 protocol with limits, deadlines and early refusals.

A request starts when it is complete, and is active until its response has been sent.
"""

import asyncio
import math
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from turret.service.wire import eager
from turret.service.wire.admission import OVERDUE
from turret.service.wire.counted_protocol import CountedProtocol, Guards, Phase
from turret.service.wire.limiter import Limiter
from turret.service.wire.refusals import (
    BUSY_CLOSED,
    BUSY_HEAD,
    BUSY_KEPT,
    LATE,
    TOO_MANY,
    body_too_large,
)

# Unsent bytes of a response below which its request is no longer active.
_UNSENT_LEFT = 16_384
# Connections beyond the limit that may still send probes.
PROBE_CONNECTIONS = 16
# With more active probes than this, a connection that sent one isn't read for a moment.
_MANY_PROBES = 256
# A refused connection is closed for writing first: closed for reading while the client still sends, the
# kernel would reset it, and the client might never see the response.
_LINGER_SECONDS = 1.0
# A head that is incomplete for so long does not delay the shutdown.
_HEAD_SECONDS = 3.0


def guarded(guards: Guards) -> type[HttpToolsProtocol]:
    """Make the protocol class that uvicorn's `http` setting takes."""
    return type("GuardedProtocol", (GuardedProtocol,), {"guards": guards})


class GuardedProtocol(CountedProtocol):
    """A connection: its requests acquire limiters, have deadlines, and are answered in order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unsent_since = 0.0
        self._begun = 0.0  # when the active request acquired its limiter
        self._task: asyncio.Task[None] | None = None
        self._limiter: Limiter | None = None
        self._paused: asyncio.TimerHandle | None = None
        self._last_response: bytes | None = None
        self._arriving: tuple[RequestResponseCycle, Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accept a connection; one beyond the limit may only send probes."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNSENT_LEFT)
        self.guards.reaper.add(self, self.loop)
        if len(self.connections) > self.guards.max_connections:
            self._keep_for_probes()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the resources of the connection."""
        self.guards.reaper.remove(self)
        self.guards.for_probes.pop(self, None)
        self._resume()
        self.pipeline.clear()
        self._stop_reading()
        self._arriving = None
        if self._running is not None:
            self._running.disconnected = True  # uvicorn informs only the newest request
            self._running.message_event.set()
        super().connection_lost(exc)

    def _keep_for_probes(self) -> None:
        """Restrict this connection to probes; of too many such, close the oldest without a request."""
        probing = self.guards.for_probes
        probing[self] = None
        if len(probing) > PROBE_CONNECTIONS:
            oldest = next((other for other in probing if other._running is None), next(iter(probing)))
            del probing[oldest]
            oldest.refuse_connection()

    def refuse_connection(self) -> None:
        """Close this connection, as there are too many."""
        self._is_discarding = True
        self._count(TOO_MANY)
        if self._running is None:
            self.transport.write(TOO_MANY)
        self.transport.close()

    def on_message_complete(self) -> None:
        """Start the complete request, or wait for the next one if it has its response already."""
        if self._upgrade_framing:  # end of the head; another parser reads the body
            return
        self._stop_if_discarding()
        self._fed = 0
        self.guards.admission.held.remove_sender(self)
        if self.cycle.response_complete:
            self._phase, self._since = Phase.HEAD, self.loop.time()
        else:
            self._phase = Phase.WORK
            super().on_message_complete()
            if self._arriving is not None:
                cycle, app = self._arriving
                self._begin(cycle, app, self._limiter_of(cycle))

    def on_response_complete(self) -> None:
        """Wait for the next request, or write the last response."""
        if self._running is not None:
            self._release(self._running)
            self._running = None
        if self._last_response is not None and not self.pipeline:
            self._end(self._last_response)
            return
        if self._phase is Phase.WORK:
            self._phase = Phase.IDLE
        probe = self.guards.admission.probe
        is_flood = self._limiter is probe and probe.active > _MANY_PROBES
        super().on_response_complete()
        if is_flood and self._paused is None and not self.transport.is_closing():
            self._pause()

    @property
    def is_idle(self) -> bool:
        """Whether no request is pending."""
        if self._phase is Phase.END:
            return True
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        is_slow = self.loop.time() - self._since > _HEAD_SECONDS
        return self._phase in (Phase.IDLE, Phase.BODY) or not self._fed or is_slow

    def shutdown(self) -> None:
        """Close after the current response."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def check_deadlines(self, now: float) -> None:
        """Close a connection that is late, or cancel its request."""
        deadlines, waited = self.guards.deadlines, now - self._since
        self._check_unsent(now)
        if self._phase is Phase.END:
            if waited > _LINGER_SECONDS:
                self.transport.close()
        elif self._phase is Phase.HEAD:
            if waited > deadlines.head:
                self._close_with(LATE if self._fed else b"")
        elif self._phase is Phase.BODY:
            if waited > deadlines.body:
                self._close_with(LATE)
        elif self.cycle is None or self.cycle.response_complete:
            if self.timeout_keep_alive_task is None:  # bytes arrived that start no request
                self._phase, self._since = Phase.HEAD, now
        elif self._limiter is not None and now - self._begun > (self._limiter.seconds or math.inf):
            self._limiter = None
            if self._task is not None:
                self._task.cancel(OVERDUE)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start a request once it is complete; uvicorn calls this after its head, in order."""
        if self.transport.is_closing():  # it followed a request that closed the connection
            return
        admission = self.guards.admission
        limiter = self._limiter_of(cycle)
        if self in self.guards.for_probes and limiter is not admission.probe:
            self.pipeline.clear()
            self._close_with(TOO_MANY)
        elif not self.guards.is_admissible(cycle.scope):
            # After the refusal a client that waits for a 100 may send its body or its next request.
            cycle.keep_alive = cycle.keep_alive and not cycle.waiting_for_100_continue
            self._begin(cycle, app, admission.unknown)
        elif not cycle.more_body:
            self._begin(cycle, app, limiter)
        elif not limiter.has_room():
            limiter.refused += 1
            self._refuse(cycle)
        else:
            if cycle.waiting_for_100_continue:
                cycle.waiting_for_100_continue = False
                if not self._ask_for_body(cycle):
                    return
            self._arriving = cycle, app

    def _limiter_of(self, cycle: RequestResponseCycle) -> Limiter:
        return self.guards.admission.limiter(cycle.scope["method"], cycle.scope["path"])

    def _ask_for_body(self, cycle: RequestResponseCycle) -> bool:
        """Send a 100 unless the body is known to be too large (RFC 9110, section 10.1.1)."""
        sizes = [int(value) for name, value in cycle.scope["headers"] if name == b"content-length"]
        if sizes and sizes[0] > self.guards.body_limit:
            self._close_with(body_too_large(self.guards.body_limit))
            return False
        if cycle.scope["http_version"] != "1.0":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _begin(self, cycle: RequestResponseCycle, app: Any, limiter: Limiter) -> None:
        self._arriving = None
        if not limiter.try_acquire():
            self._refuse(cycle)
            return
        self._limiter, self._running, self._begun = limiter, cycle, self.loop.time()
        asgi: ASGIApp = partial(self._run, app, limiter, cycle)
        work = cycle.run_asgi(asgi)  # type: ignore[arg-type]  # both are ASGI 3
        # `_run` needs to know the pipeline only while the service drains.
        at_once = limiter is self.guards.admission.probe and not self.guards.is_draining()
        self._task = task = eager.start(self.loop, work) if at_once else self.loop.create_task(work)
        if task is None:
            self._release(cycle)
            return
        task.add_done_callback(self.tasks.discard)
        # Not sooner: a thread may still parse the body of a client that is gone.
        task.add_done_callback(lambda _: self._release(cycle))
        self.tasks.add(task)

    async def _run(
        self,
        app: Any,
        limiter: Limiter,
        cycle: RequestResponseCycle,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        # Only now are the requests known that arrived together with this one.
        if not self.pipeline and self.guards.is_draining():
            cycle.keep_alive = False
        await self.guards.admission.run(app, limiter, cycle, scope, receive, send)

    def _refuse(self, cycle: RequestResponseCycle) -> None:
        # The connection can't be kept if the client has sent more, or waits for a 100 with its body.
        waits_or_sent_more = bool(self.pipeline) or self._paused is not None or cycle.waiting_for_100_continue
        is_last = not cycle.keep_alive or self.parser.should_upgrade() or self.guards.is_draining()
        if waits_or_sent_more or is_last:
            self.pipeline.clear()
            self._close_with(BUSY_CLOSED)
            return
        cycle.response_started = cycle.response_complete = True
        self._release(cycle)
        self.transport.write(BUSY_HEAD if cycle.scope["method"] == "HEAD" else BUSY_KEPT)
        self.on_response_complete()
        self._pause()

    def _pause(self) -> None:
        """Stop reading this connection for a moment, as its client was told to wait."""
        admission = self.guards.admission
        self.flow.pause_reading()
        admission.paused += 1
        self._paused = self.loop.call_later(admission.pause_seconds(), self._resume)

    def _resume(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
            self.guards.admission.paused -= 1
            if not self.transport.is_closing():
                self.flow.resume_reading()

    def _check_unsent(self, now: float) -> None:
        if not self.transport.get_write_buffer_size():
            self._unsent_since = 0.0
        elif not self._unsent_since:
            self._unsent_since = now
        elif now - self._unsent_since > self.guards.deadlines.send:
            self.transport.abort()

    def _close_with(self, response: bytes) -> None:
        """Stop reading, write a last response after the current one, and close."""
        if self._phase is Phase.BODY and self.cycle.response_started:
            response = b""  # the current request has its response
        elif self._phase is Phase.BODY and self.cycle is self._running:
            self.cycle.disconnected = True  # it awaits the rest of its body
            self.cycle.message_event.set()
            self._running = None
        self._stop_reading()
        self._arriving = None
        self._count(response)
        if self._running is None:
            self._end(response)
        else:
            self._last_response, self._phase = response, Phase.WORK

    def _end(self, response: bytes) -> None:
        if self.transport.is_closing():
            return
        if not response and self._phase is not Phase.BODY:
            self.transport.close()
            return
        self._phase, self._since = Phase.END, self.loop.time()
        self._unset_keepalive_if_required()
        self._resume()
        self.flow.resume_reading()
        if response:
            self.transport.write(response)
        self.transport.write_eof()
