"""The end of a service: signals become orders to the workers, each followed by the next after its time."""

import contextlib
import ctypes
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

from turret.service.process.serving import LINGER_SECONDS
from turret.service.settings import Settings
from turret.service.shared_state import Order, SharedState

SPARE_SECONDS = 5.0
_SO_ATTACH_FILTER = 26  # the same on every architecture with a Python build
# struct sock_filter: code, jump if true, jump if false, constant. A TCP socket's filter sees the TCP header.
_DROP_SYN = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the byte of flags
        (0x45, 0, 1, 0x02),  # is SYN set?
        (0x06, 0, 0, 0),  # then drop the packet
        (0x06, 0, 0, 0xFFFFFFFF),
    )
)


class Shutdown:
    """Orders the workers to drain, finish and stop, and closes the listening sockets.

    SIGTERM starts with draining for `drain_delay` seconds, SIGINT without; every further signal skips to the
    next order.
    """

    def __init__(
        self,
        settings: Settings,
        shared_state: SharedState,
        sockets: list[socket.socket],
        selector: selectors.BaseSelector,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._shared_state = shared_state
        self._sockets = sockets
        self._selector = selector
        self._clock = clock
        self._signals: list[int] = []
        self._next = self._closing = 0.0  # when the next order is due, and when the sockets close
        self.order = Order.SERVE

    def listen_to_signals(self) -> None:
        """Handle SIGINT and SIGTERM; these and SIGCHLD wake the selector."""
        reading, writing = socket.socketpair()
        for end in (reading, writing):
            end.setblocking(False)
        self._pipe = reading, writing
        signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        self._selector.register(reading, selectors.EVENT_READ)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: self._signals.append(number))
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only wakes the loop

    def take_signals(self) -> None:
        """Act on the signals that have arrived."""
        with contextlib.suppress(BlockingIOError):
            self._pipe[0].recv(1024)
        while self._signals:
            number = self._signals.pop(0)
            delay = self._settings.drain_delay if number == signal.SIGTERM else 0.0
            # A second signal skips the wait for load balancers, a third one that for running requests.
            self._give(Order(min(self.order + 1, Order.STOP)), delay)

    def advance(self) -> bool:
        """Give the next order when it is due; return True when workers that still run have to be killed."""
        if self.order >= Order.FINISH and self._clock() >= self._closing:
            self._close_sockets()
        if self.order == Order.SERVE or self._clock() < self._next:
            return False
        if self.order == Order.STOP:
            return True
        self._give(Order(self.order + 1))
        return False

    def _give(self, order: Order, delay: float = 0.0) -> None:
        if order == Order.FINISH:
            self._refuse_handshakes()
        self._shared_state.order = self.order = order
        waits = {Order.DRAIN: delay, Order.FINISH: self._settings.drain_seconds + SPARE_SECONDS}
        self._next = self._clock() + waits.get(order, SPARE_SECONDS)

    def _refuse_handshakes(self) -> None:
        """Let no connection begin while the workers accept those that are complete.

        A stopped worker keeps its copies of the sockets open, and the kernel would go on completing
        connections that nobody accepts; so the sockets are shut down for all processes a moment later.
        """
        self._closing = self._clock() + 2 * LINGER_SECONDS
        for listening in self._sockets:
            if not drop_handshakes(listening):
                listening.close()

    def _close_sockets(self) -> None:
        while self._sockets:
            with contextlib.suppress(OSError), self._sockets.pop() as listening:
                listening.shutdown(socket.SHUT_RDWR)


def drop_handshakes(listening: socket.socket) -> bool:
    """Drop new handshakes on `listening` in all processes that share it; False except on Linux.

    Closing a listening socket resets the connections that are complete and not yet accepted; under load there
    always are some. So the kernel first drops SYN packets. The client repeats its SYN after a second, when it
    is refused or reaches the next service on this address.
    """
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(_DROP_SYN, len(_DROP_SYN))
    try:
        described = struct.pack("HP", len(_DROP_SYN) // 8, ctypes.addressof(program))
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
    except OSError:
        return False
    return True
