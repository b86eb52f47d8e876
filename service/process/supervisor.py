"""The parent process: it reserves the ports, keeps the workers alive, and ends them together."""

import asyncio
import contextlib
import gc
import logging
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from importlib import import_module

from prometheus_client.multiprocess import mark_process_dead

from turret.service.bounded_process import describe_exit
from turret.service.components import WorkerContext
from turret.service.errors import ServiceError
from turret.service.keys.keys import Keyring, admin_key
from turret.service.observing.logs import Logs
from turret.service.process.server import DRAIN, FINISH, connection_limit, reserve, url_of, work
from turret.service.settings import Settings
from turret.service.stores.registry import store_kind
from turret.service.stores.sqlite.shared import open_records, shared_folder, store_folder
from turret.service.versions.folder import first_record, make_folder
from turret.tower.format.listing import remove_stale_dirs

SPARE_SECONDS = 5.0  # after the drain time, until workers that still run are killed
_RESTART_SECONDS = 1.0  # from one start of a worker to the next
_MAX_FAILURES = 5  # failed starts of a worker in a row
_HUNG_SECONDS = 15.0
# A start reads and compares the files of a version, as the gate does, but in all workers at once.
_START_GATES = 3
_STEP_SECONDS = 0.1
_log = logging.getLogger("turret.supervisor")


class Order(IntEnum):
    """The steps of a service to its end."""

    SERVE = 0
    DRAIN = 1  # report at /readyz that no more requests should come, and answer requests that do
    FINISH = 2  # accept no connections, finish running requests, exit
    KILL = 3


_SIGNALS = {Order.DRAIN: DRAIN, Order.FINISH: FINISH, Order.KILL: signal.SIGKILL}


class Shutdown:
    """The order that is due: the next order follows at each signal, and when the time of an order is over.

    SIGTERM begins with draining for `drain_delay` seconds, SIGINT with finishing.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        finishing = settings.drain_seconds + SPARE_SECONDS
        self._waits = {Order.DRAIN: settings.drain_delay, Order.FINISH: finishing}
        self._clock = clock
        self._ends = math.inf
        self.order = Order.SERVE

    def take(self, number: int) -> None:
        """Act on a signal."""
        self._give(max(self.order + 1, Order.FINISH if number == signal.SIGINT else Order.DRAIN))

    def advance(self) -> Order:
        """Give the next order if it is due, and return the last one."""
        while self._clock() >= self._ends:
            self._give(self.order + 1)
        return self.order

    def _give(self, order: int) -> None:
        self.order = Order(min(order, Order.KILL))
        self._ends = self._clock() + self._waits.get(self.order, math.inf)


@dataclass
class _Worker:
    """The place of a worker, and its process, if one is running (`pid`)."""

    number: int
    pid: int = 0
    started: float = -math.inf
    is_ready: bool = False
    silence: float = 0.0  # seconds since the worker was heard
    failures: int = 0  # starts in a row that failed
    reason: str = ""


class Supervisor:
    """Forks the workers, which share the ports and imported modules, and replaces each that dies.

    It starts no thread, opens no bundle and answers no request: little can fail in it, and forking is safe
    (threads, such as those of OpenMP and ONNX Runtime, don't survive a fork). Raises ServiceError or
    BundleError when an address is taken or the workers can't start.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._context = WorkerContext(supervisor=os.getpid())
        self._reserved: list[socket.socket] = []
        self._workers = [_Worker(number) for number in range(settings.workers)]
        self._pipe, self._writing = os.pipe()  # shared by all workers
        self._signals: list[int] = []
        self._shutdown = Shutdown(settings)
        self._sent = Order.SERVE
        self._stepped = time.monotonic()
        self._greeted = False
        self._stack = contextlib.ExitStack()

    def run(self) -> None:
        """Serve until a SIGINT or SIGTERM, and the end of the workers."""
        Logs(self._settings.log_level, self._settings.log_format).start(has_thread=False)
        try:
            keyring = self._prepare()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, _: self._signals.append(number))
            # A worker that is just starting gets its order once it has a handler.
            signal.pthread_sigmask(signal.SIG_BLOCK, (DRAIN, FINISH))
            gc.collect()
            gc.freeze()  # else each worker's first collection copies every inherited page
            while self._sent == Order.SERVE or any(worker.pid for worker in self._workers):
                self._step()
                keyring.load()  # the next worker starts with the same keys as the others
        finally:
            for worker in self._workers:
                if worker.pid:
                    os.kill(worker.pid, signal.SIGKILL)
                    os.waitpid(worker.pid, 0)
            self._stack.close()

    def _prepare(self) -> Keyring:
        """Prepare ports, files and keys once for all workers."""
        settings, context = self._settings, self._context
        connection_limit()
        if settings.answer_log is not None:  # frozen with the rest; a worker names a missing package
            with contextlib.suppress(ModuleNotFoundError):
                import_module("turret.service.answer_log.log")
        self._reserve_ports()
        context.folder = self._stack.enter_context(shared_folder(store_folder(settings)))
        if settings.wait:
            make_folder(settings.bundles)
        asyncio.run(first_record(settings.bundles, open_records(settings, context.folder), settings.wait))
        remove_stale_dirs(settings.bundles)
        context.keyring = Keyring(settings.keys, admin_key(settings), settings.require_keys)
        _prepare_store(settings)
        return context.keyring

    def _reserve_ports(self) -> None:
        settings, context = self._settings, self._context
        self._reserved.append(reserve(settings.host, settings.port))
        port: int = self._reserved[0].getsockname()[1]
        context.host = f"{socket.gethostname()}:{port}"
        if settings.admin_port is not None:
            self._reserved.append(reserve(settings.admin_host, settings.admin_port, "--admin-port"))
            context.admin_port = self._reserved[1].getsockname()[1]
            if context.admin_port == port:  # of another address: only the number tells requests apart
                raise ServiceError(
                    f"--port and --admin-port are both {port}; choose another --admin-port, or `same`"
                )

    def _step(self) -> None:
        now = time.monotonic()
        # While this process itself was stopped, its workers may have been stopped too.
        elapsed, self._stepped = min(now - self._stepped, 1.0), now
        for worker in self._workers:
            worker.silence += elapsed
            is_due = now >= worker.started + _RESTART_SECONDS
            if is_due and not worker.pid and self._sent == Order.SERVE:
                self._start(worker)
        self._hear(_STEP_SECONDS)
        self._reap()
        while self._signals:
            self._shutdown.take(self._signals.pop(0))
        self._send(self._shutdown.advance())
        self._kill_hung()

    def _start(self, worker: _Worker) -> None:
        worker.started, worker.silence = time.monotonic(), 0.0
        worker.is_ready, worker.reason = False, ""
        try:
            worker.pid = os.fork()
        except OSError as error:
            self._restart(worker, f"the system gives no process ({error.strerror})")
            return
        if worker.pid == 0:
            context = replace(self._context, number=worker.number)
            work(self._settings, context, self._writing, self._reserved)

    def _hear(self, seconds: float) -> None:
        """Wait for lines of the workers: `PID alive`, `PID ready VERSION` or `PID failed SENTENCE`."""
        if not select.select([self._pipe], [], [], seconds)[0]:
            return
        workers = {str(worker.pid): worker for worker in self._workers}
        for line in os.read(self._pipe, 65_536).decode(errors="replace").splitlines():
            pid, word, text = (*line.split(" ", 2), "", "")[:3]
            if (worker := workers.get(pid)) is None:  # the worker has ended
                continue
            worker.silence = 0.0
            if word == "ready":
                worker.is_ready, worker.failures = True, 0
                self._greet(text)
            elif word == "failed":
                worker.reason = text

    def _greet(self, version: str) -> None:
        if self._greeted or not all(worker.is_ready for worker in self._workers):
            return
        self._greeted = True
        urls = [url_of(reserved) for reserved in self._reserved]
        admin = f", admin calls at {urls[1]}" if len(urls) > 1 else ""
        does = f"serves version {version}" if version else "waits for a version"
        with contextlib.suppress(OSError):  # standard output may be closed
            print(f"turret {does} at {urls[0]} (calls: {urls[0]}/docs{admin})", flush=True)

    def _reap(self) -> None:
        for worker in self._workers:
            pid, status = os.waitpid(worker.pid, os.WNOHANG) if worker.pid else (0, 0)
            if not pid:
                continue
            self._hear(0)  # its last words
            worker.pid = 0
            mark_process_dead(worker.number, str(self._context.folder))  # type: ignore[no-untyped-call]
            code = os.waitstatus_to_exitcode(status)
            reason = worker.reason or f"process {pid} exited {describe_exit(code)}"
            if self._sent == Order.SERVE:
                if worker.reason and not self._greeted:
                    raise ServiceError(reason)
                self._restart(worker, reason)
            elif code:
                _log.error("worker %d: %s", worker.number, reason)

    def _restart(self, worker: _Worker, reason: str) -> None:
        """Have a worker started again. Raises ServiceError if starts failed repeatedly, and none is ready."""
        worker.failures += not worker.is_ready
        others = any(other.is_ready and other.pid for other in self._workers)
        if worker.failures >= _MAX_FAILURES and not others:
            raise ServiceError(f"{_MAX_FAILURES} workers in a row failed to start: {reason}")
        _log.error("worker %d: %s; restarting", worker.number, reason)

    def _send(self, order: Order) -> None:
        if order != self._sent:
            self._sent = order
            for worker in self._workers:
                if worker.pid:
                    os.kill(worker.pid, _SIGNALS[order])

    def _kill_hung(self) -> None:
        limit = _START_GATES * self._settings.gate_seconds
        starting = f"it has not started within {limit:g} seconds ({_START_GATES} times TURRET_GATE_SECONDS)"
        for worker in self._workers if self._sent < Order.FINISH else ():
            if worker.pid and worker.silence > (_HUNG_SECONDS if worker.is_ready else limit):
                reason = "it sends no heartbeat" if worker.is_ready else starting
                _log.error("killing worker with pid %d: %s", worker.pid, reason)
                os.kill(worker.pid, signal.SIGKILL)
                worker.silence = 0.0


def _prepare_store(settings: Settings) -> None:
    """Create the store's files; warn where each worker would have a store of its own."""
    kind = store_kind(settings.store)
    if settings.workers > 1 and not kind.is_shared:
        _log.warning(
            "each worker has a store of its own, as processes can't share %s; set --workers 1, or another "
            "--store",
            settings.store,
        )
    asyncio.run(kind.open(settings).close())
