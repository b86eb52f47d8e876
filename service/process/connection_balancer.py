"""Spreads the connections of a shared listening socket evenly over the workers.

Otherwise the first worker that wakes accepts all of them, and a proxy's connection pool ends in one worker. A
socket per worker (SO_REUSEPORT) would spread them at random, and strand those of a worker that hangs or dies.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence

from turret.service.shared_state import WorkerSlot

# A worker may exceed the fewest connections by one, or by this share of them, and still accept another. Busy
# workers run this every few milliseconds; accepting hundreds one at a time would take seconds.
_EXCESS, _EXCESS_SHARE = 1, 8
_PAUSE, _PATIENCE, _ASLEEP_SECONDS = 0.001, 0.02, 0.1
_BURST = 16
_NO_DESCRIPTOR_SECONDS = 0.2
_log = logging.getLogger("turret.worker")


class ConnectionBalancer:
    """Accepts connections, and yields for some milliseconds to workers with fewer of them.

    `slot` is this worker's, `slots` are all workers'; without them every connection is accepted. `connect`
    makes a protocol.
    """

    def __init__(
        self,
        listening: socket.socket,
        connect: Callable[[], asyncio.Protocol],
        slot: WorkerSlot | None = None,
        slots: Sequence[WorkerSlot] = (),
    ) -> None:
        self._listening = listening
        self._connect = connect
        self._slot = slot
        self._others = tuple(other for other in slots if slot is not None and other.number != slot.number)
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[object]] = set()
        self._yielded_at: float | None = None
        self._later: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._begin()

    def stop(self) -> None:
        """Accept no more connections."""
        self._loop.remove_reader(self._listening)
        if self._later is not None:
            self._later.cancel()

    async def finish(self) -> None:
        """Accept the waiting connections, close the socket, and return when every connection has a protocol.

        Closing resets waiting connections, and one without a protocol would not learn of the end.
        """
        while self._accept_one():
            pass
        self.stop()
        self._listening.close()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _begin(self) -> None:
        self._later = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_BURST):
            if self._yields():
                self._pause(_PAUSE)
                return
            yielded, self._yielded_at = self._yielded_at, None
            if not self._accept_one() or yielded is not None:
                return

    def _accept_one(self) -> bool:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False  # none waits, another worker has it, or the client is gone
        except OSError as error:
            if error.errno == errno.EINVAL:  # the supervisor has shut the socket down
                self.stop()
                return False
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            _log.error("can't accept connections: %s; retrying", error.strerror)
            self._pause(_NO_DESCRIPTOR_SECONDS)
            return False
        connection.setblocking(False)
        if self._slot is not None:
            self._slot.connections += 1
        connecting = self._loop.connect_accepted_socket(self._connect, connection)
        task = self._loop.create_task(connecting)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return True

    def _yields(self) -> bool:
        if self._slot is None:
            return False
        awake = (other.connections for other in self._others if other.pid and other.silence < _ASLEEP_SECONDS)
        fewest = min(awake, default=None)
        if fewest is None or self._slot.connections <= fewest + max(_EXCESS, fewest // _EXCESS_SHARE):
            return False
        now = self._loop.time()
        if self._yielded_at is None:
            self._yielded_at = now
        return now - self._yielded_at < _PATIENCE

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening)
        self._later = self._loop.call_later(seconds, self._begin)
