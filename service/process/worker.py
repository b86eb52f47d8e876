"""A worker process: an event loop that serves, and ends on an order."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic, thread_time
from typing import NoReturn

from prometheus_client import Gauge

from turret.data.errors import TurretError
from turret.service.components import Components
from turret.service.http.app import create_admin_app, create_app
from turret.service.process.open_files import ADMIN_CONNECTIONS
from turret.service.process.serving import Server, make_server
from turret.service.settings import Settings
from turret.service.shared_state import Order
from turret.service.versions.start import first_record, open_records
from turret.service.worker_context import WorkerContext

POLL_SECONDS = 0.02
_SWITCH_SECONDS = 0.0005
FAILED = 3  # exit status of a worker that has reported its error
_log = logging.getLogger("turret.worker")


def work(settings: Settings, context: WorkerContext, sockets: Sequence[socket.socket]) -> NoReturn:
    """Serve on `sockets` (the second is for admin calls) in this forked process.

    Never returns: exits with os._exit so that the parent's cleanup does not run in the child.
    """
    status = 1
    try:
        # Terminals and some service managers signal every process; only the supervisor's order counts, so
        # that all workers end together.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # The event loop gets the interpreter back after this time while another thread opens a version.
        sys.setswitchinterval(_SWITCH_SECONDS)
        context.worker_slot.occupy()
        status = _serve(settings, context, sockets)
    except TurretError as error:
        context.send(failed=str(error))
        status = FAILED
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _serve(settings: Settings, context: WorkerContext, sockets: Sequence[socket.socket]) -> int:
    assert context.records is not None
    records = open_records(settings, context.records)
    record = asyncio.run(first_record(settings.bundles, records, settings.wait))
    app = create_app(settings, replace(context, record=record))
    servers = [make_server(settings, app, "on", context)]
    if len(sockets) > 1:
        servers.append(make_server(settings, create_admin_app(app), "off", limit=ADMIN_CONNECTIONS))
    with asyncio.Runner(loop_factory=servers[0].config.get_loop_factory()) as runner:
        runner.run(_run(servers, sockets, app.state.components, context))
    return 0


async def _run(
    servers: Sequence[Server], sockets: Sequence[socket.socket], state: Components, context: WorkerContext
) -> None:
    following = asyncio.create_task(_follow(servers, state, context))
    pairs = zip(servers, sockets, strict=True)
    await asyncio.gather(*(server.serve(sockets=[listening]) for server, listening in pairs))
    following.cancel()
    for server in servers:  # after all have finished, as each may need the others
        await server.lifespan.shutdown()


async def _follow(servers: Sequence[Server], state: Components, context: WorkerContext) -> None:
    """Poll the shared state for orders, and send heartbeats."""
    is_reported = False
    gauge = state.observation.metrics.loop_stall
    stall = LoopStall(gauge.labels("wall"), gauge.labels("processor"), POLL_SECONDS)
    while True:
        stall.tick()
        order = context.shared_state.order
        for server in servers:
            server.should_exit = server.should_exit or order >= Order.FINISH
            server.force_exit = server.force_exit or order >= Order.STOP
        if not is_reported and all(server.started for server in servers):
            is_reported = context.send(ready=state.model_holder.version)
        context.worker_slot.connections = len(servers[0].server_state.connections)
        context.worker_slot.heartbeat()
        await asyncio.sleep(POLL_SECONDS)


class LoopStall:
    """The longest delay of a tick beyond the `interval`, in seconds.

    `wall` is the delay as clients see it, `processor` the part in which the loop's thread ran: on a busy
    machine the rest is time without a processor.
    """

    def __init__(
        self,
        wall: Gauge,
        processor: Gauge,
        interval: float,
        clock: Callable[[], float] = monotonic,
        processor_clock: Callable[[], float] = thread_time,
    ) -> None:
        self._wall, self._processor, self._interval = wall, processor, interval
        self._clock, self._processor_clock = clock, processor_clock
        self._longest = self._busiest = 0.0
        self._last: tuple[float, float] | None = None

    def tick(self) -> None:
        """Record the time since the last tick; call it from the loop's thread."""
        now, ran = self._clock(), self._processor_clock()
        if self._last is not None:
            delay = now - self._last[0] - self._interval
            if delay > self._longest:
                self._longest = delay
                self._wall.set(delay)
            busy = min(delay, ran - self._last[1])
            if busy > self._busiest:
                self._busiest = busy
                self._processor.set(busy)
        self._last = now, ran
