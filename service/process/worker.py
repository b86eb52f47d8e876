"""A worker process: a uvicorn server that obeys its supervisor's signals and reports to it on a pipe."""

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from time import monotonic
from types import FrameType
from typing import NoReturn

import uvicorn

from turret.data.errors import TurretError
from turret.service.components import Components, WorkerContext
from turret.service.http.app import create_app
from turret.service.process.server import config_of, share
from turret.service.settings import Settings
from turret.service.versions.gate_process import end_with_parent
from turret.service.versions.start import first_record, open_records

# The supervisor's orders: answer at /readyz that no more requests should come; and finish those under way.
DRAIN, FINISH = signal.SIGUSR1, signal.SIGUSR2
_TICKS = 10  # of uvicorn in a second
_SWITCH_SECONDS = 0.0005
_LINE_BYTES = 4_000  # written at once


def work(
    settings: Settings, context: WorkerContext, pipe: int, reserved: Sequence[socket.socket]
) -> NoReturn:
    """Serve on the addresses of `reserved` in this forked process, and report on `pipe`.

    Never returns: exits with os._exit so that the parent's cleanup does not run in the child.
    """
    status = 1
    try:
        assert context.supervisor is not None
        end_with_parent(context.supervisor)
        # Terminals and some service managers signal every process; only the supervisor's orders count, so
        # that all workers end together.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # The event loop gets the interpreter back after this time while another thread opens a version.
        sys.setswitchinterval(_SWITCH_SECONDS)
        os.set_blocking(pipe, False)
        _serve(settings, context, pipe, reserved)
        status = 0
    except TurretError as error:
        send(pipe, f"failed {error}")
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def send(pipe: int, words: str) -> None:
    """Send a line to the supervisor, with the pid of this process, unless it reads none."""
    line = " ".join([str(os.getpid()), *words.splitlines()])
    with contextlib.suppress(OSError):
        os.write(pipe, line.encode()[:_LINE_BYTES] + b"\n")


def _serve(settings: Settings, context: WorkerContext, pipe: int, reserved: Sequence[socket.socket]) -> None:
    assert context.folder is not None
    records = open_records(settings, context.folder)
    context.record = asyncio.run(first_record(settings.bundles, records, settings.wait))
    app = create_app(settings, context)
    server = Server(config_of(settings, app), app.state.components, pipe)
    signal.signal(DRAIN, server.drain)
    signal.signal(FINISH, server.finish)
    # Those that came before: the supervisor blocks them in all its children.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (DRAIN, FINISH))
    server.run(sockets=[share(one) for one in reserved])


class Server(uvicorn.Server):
    """A uvicorn server that ends on `DRAIN` and `FINISH`, and sends a heartbeat each second."""

    def __init__(self, config: uvicorn.Config, components: Components, pipe: int) -> None:
        super().__init__(config)
        self._components = components
        self._pipe = pipe
        self._ticked, self._stall = math.inf, 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ignore the signals that uvicorn listens to: the supervisor has them too, and gives orders."""

    def drain(self, *_: object) -> None:
        """Answer 503 at /readyz, and let each answer be the last of its connection."""
        self._components.context.is_draining = True

    def finish(self, *_: object) -> None:
        """Accept no more connections, finish running requests and end."""
        self.drain()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell the supervisor."""
        await super().startup(sockets)
        send(self._pipe, f"ready {self._components.model_holder.version or ''}")

    async def on_tick(self, counter: int) -> bool:
        """Measure the longest delay of the event loop, and send a heartbeat."""
        now = monotonic()
        delay, self._ticked = now - self._ticked - 1 / _TICKS, now
        if delay > self._stall:
            self._stall = delay
            self._components.metrics.loop_stall.set(delay)
        if counter % _TICKS == 0:
            send(self._pipe, "alive")
        return await super().on_tick(counter)
