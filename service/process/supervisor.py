"""The parent process: it listens, keeps the workers alive, and ends them together."""

import asyncio
import contextlib
import gc
import logging
import os
import selectors
import shutil
import signal
import socket
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from turret.data.errors import TurretError
from turret.service.child_processes import describe_exit
from turret.service.errors import ServiceError
from turret.service.keys.keyring import Keyring, admin_key
from turret.service.observing.logs import LineWriter, handle
from turret.service.process.forking import FIRST_PAUSE, check_threads, fork, pause_after
from turret.service.process.open_files import raise_open_files
from turret.service.process.serving import listen, url_of
from turret.service.process.shutdown import SPARE_SECONDS, Shutdown
from turret.service.process.worker import FAILED, work
from turret.service.settings import Settings
from turret.service.shared_state import Order, SharedState
from turret.service.stores.registry import store_kind
from turret.service.versions.folder import make_folder
from turret.service.versions.start import first_record, open_records
from turret.service.worker_context import WorkerContext, receive
from turret.tower.format.atomic_publish import remove_stale_dirs

_STEADY_SECONDS = 10.0  # a worker that has lived this long started well
_MAX_FAILURES = 5
_HUNG_SECONDS = 60.0
_log = logging.getLogger("turret.supervisor")


@dataclass
class _Worker:
    """A worker slot with its process, or the time at which the next process starts."""

    context: WorkerContext
    pid: int = 0
    channel: socket.socket | None = None
    started: float = 0.0
    is_ready: bool = False
    starts: float = 0.0
    failures: int = 0
    reason: str = ""


class Supervisor:
    """Forks the workers, which share the sockets and imported modules, and replaces each that dies.

    It starts no thread, opens no bundle and answers no request: little can fail in it, and forking is safe
    (threads, such as those of OpenMP and ONNX Runtime, don't survive a fork). Raises ServiceError or
    BundleError when an address is taken or the workers can't start.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sockets: list[socket.socket] = []
        self._shared_state = SharedState(settings.workers)
        self._workers = [
            _Worker(WorkerContext(self._shared_state, number)) for number in range(settings.workers)
        ]
        self._metrics_folder: Path | None = None
        self._greeted = False
        self._selector = selectors.DefaultSelector()
        self._shutdown = Shutdown(settings, self._shared_state, self._sockets, self._selector)

    def run(self) -> None:
        """Serve until a SIGINT or SIGTERM, and the end of the workers."""
        handle(LineWriter(self._settings.log_format, may_wait=False), self._settings.log_level)
        try:
            self._prepare()
            self._shutdown.listen_to_signals()
            gc.collect()
            gc.freeze()  # else each worker's first collection copies every inherited page
            while self._shutdown.order < Order.FINISH or any(worker.pid for worker in self._workers):
                self._step_safely()
        finally:
            self._kill_all()
            for listening in self._sockets:
                listening.close()
            if self._metrics_folder is not None:
                shutil.rmtree(self._metrics_folder, ignore_errors=True)

    def _prepare(self) -> None:
        """Prepare files, sockets and keys once for all workers."""
        raise_open_files(self._settings)
        self._sockets.append(listen(self._settings.host, self._settings.port))
        if self._settings.admin_port is not None:
            admin_host, admin_port = self._settings.admin_host, self._settings.admin_port
            self._sockets.append(listen(admin_host, admin_port, "--admin-port"))
        self._make_metrics_folder()
        self._begin_record()
        remove_stale_dirs(self._settings.bundles)
        settings = self._settings
        self._keyring = Keyring(settings.keys, admin_key(settings), settings.require_keys)
        self._prepare_store()
        check_threads()

    def _begin_record(self) -> None:
        """Read or make the record of the live version, which all workers share."""
        settings = self._settings
        if settings.wait:
            make_folder(settings.bundles)
        assert self._metrics_folder is not None
        host = f"{socket.gethostname()}:{self._sockets[0].getsockname()[1]}"
        file = self._metrics_folder / "record.sqlite"
        for worker in self._workers:
            worker.context = replace(worker.context, host=host, records=file)
        asyncio.run(first_record(settings.bundles, open_records(settings, file), settings.wait))

    def _prepare_store(self) -> None:
        """Create the store's files; warn where each worker would have a store of its own."""
        kind, workers = store_kind(self._settings.store), self._settings.workers
        if workers > 1 and not kind.is_shared:
            message = (
                "each of the %d workers has a store of its own, as processes can't share %s: an event is "
                "known to one of them alone; set --workers 1, or another --store"
            )
            _log.warning(message, workers, kind.form)
        kind.prepare(self._settings.store)

    def _make_metrics_folder(self) -> None:
        """Make the folder in which the workers count: for temporary files, or beside a store of files."""
        scheme, _, path = self._settings.store.partition(":///")
        for place in (None, Path(path).absolute().parent) if scheme == "sqlite" else (None,):
            with contextlib.suppress(OSError):
                self._metrics_folder = Path(tempfile.mkdtemp(prefix="turret-metrics-", dir=place))
                break
        else:
            raise ServiceError("no folder for the metrics can be made; name a writable one by TMPDIR")
        for worker in self._workers:
            worker.context = replace(worker.context, metrics_folder=self._metrics_folder)

    def _step_safely(self) -> None:
        """Take a step; after an unexpected error try again, as nothing else keeps the workers alive."""
        try:
            self._step()
        except TurretError:
            raise
        except Exception:
            _log.exception("unexpected error in the supervisor; retrying")
            time.sleep(FIRST_PAUSE)

    def _step(self) -> None:
        for worker in self._workers:
            if not worker.pid and worker.starts <= time.monotonic() and self._shutdown.order < Order.FINISH:
                self._start(worker)
        for key, _ in self._selector.select(0.05):
            if isinstance(key.data, _Worker):
                self._receive(key.data)
            else:
                self._shutdown.take_signals()
        self._reap()
        if self._shutdown.advance():
            self._kill_all()
        self._kill_hung()
        self._keyring.check()  # the next worker starts with the same keys as the others

    def _start(self, worker: _Worker) -> None:
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError as error:
            self._postpone(worker, error)
            return
        with theirs:
            try:
                pid = fork(
                    lambda: self._work(replace(worker.context, channel=theirs, keyring=self._keyring), ours)
                )
            except OSError as error:
                ours.close()
                self._postpone(worker, error)
                return
        worker.pid, worker.channel, worker.is_ready = pid, ours, False
        worker.started = time.monotonic()
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _postpone(self, worker: _Worker, error: OSError) -> None:
        """Start a worker later, as the system refuses a process or socket; only the first start gives up."""
        worker.failures += 1
        number, reason = worker.context.number, f"the system refuses a process or socket ({error.strerror})"
        if not self._greeted and worker.failures >= _MAX_FAILURES:
            raise ServiceError(f"worker {number} can't start: {reason}")
        worker.starts = time.monotonic() + pause_after(worker.failures)
        _log.error("worker %d can't start: %s; retrying", number, reason)

    def _work(self, context: WorkerContext, ours: socket.socket) -> None:
        """Run a worker in a forked process, without the supervisor's own resources."""
        self._selector.close()
        signal.set_wakeup_fd(-1)
        for channel in (ours, *(worker.channel for worker in self._workers)):
            if channel is not None:
                channel.close()
        work(self._settings, context, self._sockets)

    def _receive(self, worker: _Worker) -> bool:
        """Handle a worker's next message; False if there is none."""
        assert worker.channel is not None
        try:
            message = receive(worker.channel)
        except OSError:  # no message
            return False
        except ServiceError as error:
            _log.error("worker %d sent an invalid message, ignored: %s", worker.context.number, error)
            return True
        if message.failed is not None:
            worker.reason = message.failed
        elif "ready" in message.model_fields_set:
            worker.is_ready, worker.failures = True, 0
            self._greet(message.ready)
        return True

    def _greet(self, version: str | None) -> None:
        if self._greeted or not all(worker.is_ready for worker in self._workers):
            return
        self._greeted = True
        urls = [url_of(listening) for listening in self._sockets]
        admin = f", admin calls at {urls[1]}" if len(urls) > 1 else ""
        does = f"serves version {version}" if version else "waits for a version"
        with contextlib.suppress(OSError):  # standard output may be closed
            print(f"turret {does} at {urls[0]} (calls: {urls[0]}/docs{admin})", flush=True)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            for worker in self._workers:
                if worker.pid == pid:
                    self._on_exit(worker, code)

    def _on_exit(self, worker: _Worker, code: int) -> None:
        pid, worker.pid = worker.pid, 0
        mark_process_dead(worker.context.number, str(self._metrics_folder))  # type: ignore[no-untyped-call]
        try:
            while self._receive(worker):  # its last messages
                pass
        finally:
            assert worker.channel is not None
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.channel)
            worker.channel.close()
            worker.channel = None
            worker.context.worker_slot.clear()
        if self._shutdown.order >= Order.FINISH:
            return
        self._check_start(worker, code)
        lived = time.monotonic() - worker.started
        worker.failures = 0 if lived > _STEADY_SECONDS else worker.failures + 1
        worker.starts = time.monotonic() + pause_after(worker.failures)
        reason = worker.reason if code == FAILED else describe_exit(code)
        _log.error("worker %d (pid %d) exited: %s; restarting", worker.context.number, pid, reason)

    def _check_start(self, worker: _Worker, code: int) -> None:
        """Raise ServiceError when workers repeatedly fail to start."""
        if worker.is_ready:
            return
        others = any(other.is_ready and other.pid for other in self._workers)
        if not self._greeted and code == FAILED:
            raise ServiceError(worker.reason)
        if not others and worker.failures + 1 >= _MAX_FAILURES:
            reason = worker.reason if code == FAILED else f"they exit {describe_exit(code)}"
            raise ServiceError(f"{_MAX_FAILURES} workers in a row failed to start: {reason}")

    def _kill_hung(self) -> None:
        patience = _HUNG_SECONDS if self._shutdown.order < Order.STOP else SPARE_SECONDS
        for worker in self._workers:
            if worker.pid and worker.is_ready and worker.context.worker_slot.silence > patience:
                _log.error("killing worker with pid %d: no heartbeat for %g seconds", worker.pid, patience)
                os.kill(worker.pid, signal.SIGKILL)
                worker.is_ready = False

    def _kill_all(self) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
                worker.pid = 0
