"""SIGTERM under load: clients that keep their connections and don't know /readyz."""

import os
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress

from benchmarks.abuse_attacks.attack import NotCarriedOutError, Outcome, Scene
from benchmarks.abuse_attacks.target import Target
from benchmarks.abuse_attacks.wire import dial, read_answer

_KEPT, _RECONNECTING = 12, 4


def sigterm_under_load(scene: Scene) -> Outcome:
    """Clients ask on and on, some on new connections each time; the service is told to end."""
    target = scene.target
    clients = _Clients(target)
    threads = [threading.Thread(target=clients.keep) for _ in range(_KEPT)]
    threads += [threading.Thread(target=clients.renew) for _ in range(_RECONNECTING)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    if not clients.answers["200"]:
        raise NotCarriedOutError("nothing was answered before the end")
    began = time.monotonic()
    os.kill(target.process.pid, signal.SIGTERM)
    try:
        target.process.wait(20)
        seconds = time.monotonic() - began
    finally:
        clients.over.set()
        for thread in threads:
            thread.join()
    notes = {
        "seconds_to_the_end": round(seconds, 2),
        "exit_status": target.process.returncode,
        "told_to_close": clients.told_to_close,
        "longest_wait_ms": round(1000 * clients.longest, 1),
    }
    failed = clients.answers["failed"] + clients.answers["503"]
    held = not failed and seconds < 5 and target.process.returncode == 0
    return Outcome(clients.answers, held=held, notes=notes)


class _Clients:
    """What the clients of one service got. A connection that is refused is the service's end, no failure."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._lock = threading.Lock()
        self.over = threading.Event()
        self.answers: Counter[str] = Counter()
        self.told_to_close = 0
        self.longest = 0.0

    def keep(self) -> None:
        """Ask on one connection until told that it closes; then on another."""
        self._go_on(is_kept=True)

    def renew(self) -> None:
        """Ask on a new connection each time."""
        self._go_on(is_kept=False)

    def _go_on(self, is_kept: bool) -> None:
        connection: socket.socket | None = None
        request = self._target.recommendation(self._target.reader)
        while not self.over.is_set():
            began = time.monotonic()
            try:
                connection = connection or dial(self._target.address, timeout=12)
            except OSError:
                return  # nobody listens any more
            with suppress(OSError):
                connection.sendall(request)
            answer = read_answer(connection)
            closes = b"connection: close" in answer.head.lower()
            with self._lock:
                self.answers[str(answer.status) if answer.status else "failed"] += 1
                self.told_to_close += closes
                self.longest = max(self.longest, time.monotonic() - began)
            if closes or not answer.status or not is_kept:
                connection.close()
                connection = None
            time.sleep(0.002)
        if connection is not None:
            connection.close()
