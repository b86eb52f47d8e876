"""The parent process: it reserves the ports, keeps the workers alive, and ends them together."""

import asyncio
import contextlib
import gc
import logging
import math
import os
import selectors
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from turret.service.child_processes import describe_exit
from turret.service.errors import ServiceError
from turret.service.keys.keyring import Keyring, admin_key
from turret.service.observing.logs import LineWriter, handle
from turret.service.process.server import raise_open_files, reserve, url_of
from turret.service.process.worker import DRAIN, FAILED, FINISH, work
from turret.service.settings import Settings
from turret.service.stores.registry import store_kind
from turret.service.versions.folder import make_folder
from turret.service.versions.start import first_record, open_records
from turret.service.worker_context import WorkerContext
from turret.tower.format.atomic_publish import remove_stale_dirs

SPARE_SECONDS = 5.0  # after the drain time, until workers that still run are killed
_STEADY_SECONDS = 10.0  # a worker that has lived this long started well
_MAX_FAILURES = 5
_HUNG_SECONDS = 15.0
_STEP_SECONDS = 0.1
_FIRST_PAUSE, _MAX_PAUSE = 0.05, 5.0
_REST_BYTES = 8_000  # of a line whose end has not come
_log = logging.getLogger("turret.supervisor")


class Order(IntEnum):
    """The steps of a service to its end."""

    SERVE = 0
    DRAIN = 1  # report at /readyz that no more requests should come, and answer those that do
    FINISH = 2  # accept no connections, finish running requests, exit
    KILL = 3


_SIGNALS = {Order.DRAIN: DRAIN, Order.FINISH: FINISH, Order.KILL: signal.SIGKILL}


class Shutdown:
    """The order that is due: the next one at each signal, and when the time of one is over.

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
    """The place of a worker: its process, or the time at which the next one starts."""

    number: int
    pid: int = 0
    pipe: int = -1
    rest: bytes = b""  # the begin of a line
    started: float = 0.0
    is_ready: bool = False
    silence: float = 0.0  # seconds since it was heard
    starts: float = 0.0
    failures: int = 0
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
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._shutdown = Shutdown(settings)
        self._sent = Order.SERVE
        self._stepped = time.monotonic()
        self._greeted = False

    def run(self) -> None:
        """Serve until a SIGINT or SIGTERM, and the end of the workers."""
        handle(LineWriter(self._settings.log_format, may_wait=False), self._settings.log_level)
        try:
            self._prepare()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, _: self._signals.append(number))
            # A worker that is just starting gets its order once it has a handler.
            signal.pthread_sigmask(signal.SIG_BLOCK, (DRAIN, FINISH))
            gc.collect()
            gc.freeze()  # else each worker's first collection copies every inherited page
            while self._sent == Order.SERVE or any(worker.pid for worker in self._workers):
                self._step()
        finally:
            for worker in self._workers:
                if worker.pid:
                    os.kill(worker.pid, signal.SIGKILL)
                    os.waitpid(worker.pid, 0)
            for reserved in self._reserved:
                reserved.close()
            if self._context.metrics_folder is not None:
                shutil.rmtree(self._context.metrics_folder, ignore_errors=True)

    def _prepare(self) -> None:
        """Prepare ports, files and keys once for all workers."""
        settings, context = self._settings, self._context
        raise_open_files(settings)
        self._reserve_ports()
        context.metrics_folder = folder = _metrics_folder(settings)
        if settings.wait:
            make_folder(settings.bundles)
        context.records = folder / "record.sqlite"
        asyncio.run(first_record(settings.bundles, open_records(settings, context.records), settings.wait))
        remove_stale_dirs(settings.bundles)
        self._keyring = Keyring(settings.keys, admin_key(settings), settings.require_keys)
        context.keyring = self._keyring
        _prepare_store(settings)
        _check_threads()

    def _reserve_ports(self) -> None:
        settings, context = self._settings, self._context
        self._reserved.append(reserve(settings.host, settings.port))
        port: int = self._reserved[0].getsockname()[1]
        context.host = f"{socket.gethostname()}:{port}"
        if settings.admin_port is not None:
            self._reserved.append(reserve(settings.admin_host, settings.admin_port, "--admin-port"))
            context.admin_port = self._reserved[1].getsockname()[1]
            if context.admin_port == port:  # of another address: a request is told by the number
                raise ServiceError(
                    f"--port and --admin-port are both {port}; choose another --admin-port, or `same`"
                )

    def _step(self) -> None:
        now = time.monotonic()
        # While this process itself was stopped, its workers may have been too.
        elapsed, self._stepped = min(now - self._stepped, 1.0), now
        for worker in self._workers:
            worker.silence += elapsed
            if not worker.pid and worker.starts <= now and self._sent == Order.SERVE:
                self._start(worker)
        for key, _ in self._selector.select(_STEP_SECONDS):
            self._hear(key.data)
        while self._signals:
            self._shutdown.take(self._signals.pop(0))
        self._send(self._shutdown.advance())
        self._kill_hung()
        self._keyring.check()  # the next worker starts with the same keys as the others

    def _send(self, order: Order) -> None:
        if order != self._sent:
            self._sent = order
            for worker in self._workers:
                if worker.pid:
                    os.kill(worker.pid, _SIGNALS[order])

    def _start(self, worker: _Worker) -> None:
        try:
            worker.pipe, writing = os.pipe()
        except OSError as error:
            self._postpone(worker, error)
            return
        try:
            worker.pid = os.fork()
        except OSError as error:
            os.close(worker.pipe)
            os.close(writing)
            self._postpone(worker, error)
            return
        if worker.pid == 0:
            work(self._settings, replace(self._context, number=worker.number), writing, self._reserved)
        os.close(writing)
        worker.is_ready, worker.rest, worker.reason = False, b"", ""
        worker.started, worker.silence = time.monotonic(), 0.0
        self._selector.register(worker.pipe, selectors.EVENT_READ, worker)

    def _postpone(self, worker: _Worker, error: OSError) -> None:
        """Start a worker later, as the system refuses a process or pipe; only the first start gives up."""
        reason = f"the system refuses a process or pipe ({error.strerror})"
        self._pause(worker)
        if not self._greeted and worker.failures >= _MAX_FAILURES:
            raise ServiceError(f"worker {worker.number} can't start: {reason}")
        _log.error("worker %d can't start: %s; retrying", worker.number, reason)

    def _pause(self, worker: _Worker) -> None:
        worker.failures += 1
        pause = min(_MAX_PAUSE, _FIRST_PAUSE * 2.0 ** (worker.failures - 1))
        worker.starts = time.monotonic() + pause

    def _hear(self, worker: _Worker) -> None:
        content = os.read(worker.pipe, 65536)
        if not content:
            self._on_end(worker)
            return
        worker.silence = 0.0
        *lines, rest = (worker.rest + content).split(b"\n")
        worker.rest = rest[:_REST_BYTES]
        for line in filter(None, lines):
            word, _, text = line.decode(errors="replace").partition(" ")
            if word == "ready":
                worker.is_ready, worker.failures = True, 0
                self._greet(text)
            elif word == "failed":
                worker.reason = text
            else:
                _log.error("worker %d sent an invalid message, ignored: %.100r", worker.number, line)

    def _greet(self, version: str) -> None:
        if self._greeted or not all(worker.is_ready for worker in self._workers):
            return
        self._greeted = True
        urls = [url_of(reserved) for reserved in self._reserved]
        admin = f", admin calls at {urls[1]}" if len(urls) > 1 else ""
        does = f"serves version {version}" if version else "waits for a version"
        with contextlib.suppress(OSError):  # standard output may be closed
            print(f"turret {does} at {urls[0]} (calls: {urls[0]}/docs{admin})", flush=True)

    def _on_end(self, worker: _Worker) -> None:
        """Reap a worker that has closed its pipe, and have it replaced unless the service ends."""
        self._selector.unregister(worker.pipe)
        os.close(worker.pipe)
        pid, worker.pid = worker.pid, 0
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        mark_process_dead(worker.number, str(self._context.metrics_folder))  # type: ignore[no-untyped-call]
        reason = worker.reason if code == FAILED else describe_exit(code)
        if self._sent != Order.SERVE:
            if code:
                _log.error("worker %d (pid %d) exited: %s", worker.number, pid, reason)
            return
        if not worker.is_ready:
            self._check_start(worker, code)
        if time.monotonic() - worker.started > _STEADY_SECONDS:
            worker.failures, worker.starts = 0, 0.0
        else:
            self._pause(worker)
        _log.error("worker %d (pid %d) exited: %s; restarting", worker.number, pid, reason)

    def _check_start(self, worker: _Worker, code: int) -> None:
        """Raise ServiceError when workers repeatedly fail to start."""
        others = any(other.is_ready and other.pid for other in self._workers)
        if not self._greeted and code == FAILED:
            raise ServiceError(worker.reason)
        if not others and worker.failures + 1 >= _MAX_FAILURES:
            reason = worker.reason if code == FAILED else f"they exit {describe_exit(code)}"
            raise ServiceError(f"{_MAX_FAILURES} workers in a row failed to start: {reason}")

    def _kill_hung(self) -> None:
        for worker in self._workers if self._sent < Order.FINISH else ():
            if worker.pid and worker.is_ready and worker.silence > _HUNG_SECONDS:
                _log.error(
                    "killing worker with pid %d: no heartbeat for %g seconds", worker.pid, _HUNG_SECONDS
                )
                os.kill(worker.pid, signal.SIGKILL)
                worker.is_ready = False


def _prepare_store(settings: Settings) -> None:
    """Create the store's files; warn where each worker would have a store of its own."""
    kind = store_kind(settings.store)
    if settings.workers > 1 and not kind.is_shared:
        message = (
            "each of the %d workers has a store of its own, as processes can't share %s: an event is "
            "known to one of them alone; set --workers 1, or another --store"
        )
        _log.warning(message, settings.workers, kind.form)
    kind.prepare(settings.store)


def _metrics_folder(settings: Settings) -> Path:
    """Make the folder in which the workers count: for temporary files, or beside a store of files."""
    scheme, _, path = settings.store.partition(":///")
    for place in (None, Path(path).absolute().parent) if scheme == "sqlite" else (None,):
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="turret-metrics-", dir=place))
    raise ServiceError("no folder for the metrics can be made; name a writable one by TMPDIR")


def _check_threads() -> None:
    """Raise ServiceError when this process has threads: a forked child could inherit locked locks."""
    tasks = Path("/proc/self/task")
    threads = len(list(tasks.iterdir())) if tasks.is_dir() else 1
    if threads > 1:
        raise ServiceError(
            f"{threads} threads run before the fork of the workers; start the service with `turret serve`"
        )
