"""What the processes of a service share: integers in memory, and messages."""

import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from turret.service.errors import ServiceError
from turret.service.shared_state import Order, SharedState
from turret.service.worker_context import MESSAGE_BYTES, Message, receive, send


def forked(work: Callable[[], object]) -> int:
    """Begin something in a process that shares our memory."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid


@pytest.mark.process  # a fork of a few milliseconds
def test_a_process_sees_what_another_has_written() -> None:
    shared_state = SharedState(2)

    def work() -> None:
        shared_state.target.raise_to(7)
        shared_state.items.bump()
        shared_state.slots[1].occupy()
        shared_state.slots[1].live = 7
        shared_state.order = Order.DRAIN

    assert os.waitpid(forked(work), 0)[1] == 0
    assert (shared_state.target.value, shared_state.items.value, shared_state.routes.value) == (7, 1, 0)
    assert shared_state.slots[1].pid not in (0, os.getpid())
    assert (shared_state.slots[0].pid, shared_state.slots[1].live) == (0, 7)
    assert shared_state.order == Order.DRAIN
    shared_state.slots[1].clear()
    assert (shared_state.slots[1].pid, shared_state.slots[1].live) == (0, 0)


@pytest.mark.process
def test_changes_of_processes_and_threads_at_the_same_time_are_whole_and_none_is_lost() -> None:
    """A bump reads, adds and writes; a target and its pin are of one activation. Both need a lock."""
    shared_state = SharedState()

    def bump() -> None:
        for _ in range(2000):
            shared_state.items.bump()

    def work() -> None:
        for number in range(1, 5000):
            shared_state.target.raise_to(number, number.to_bytes(64, "big"))
        bump()

    children = [forked(work) for _ in range(2)]
    threads = [threading.Thread(target=bump) for _ in range(2)]
    for thread in threads:
        thread.start()
    while shared_state.target.value < 4999:
        number, pin, _ = shared_state.target.pinned
        assert int.from_bytes(pin, "big") == number
    for thread in threads:
        thread.join()
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    assert shared_state.items.value == 4 * 2000


def test_a_generation_only_grows() -> None:
    target = SharedState().target
    assert target.pinned == (0, bytes(64), "")
    target.raise_to(5, b"5" * 64, "v5")
    target.raise_to(3, b"3" * 64, "v3")
    assert target.pinned == (5, b"5" * 64, "v5")


Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        yield ours, theirs


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.parametrize("message", [Message(ready=None), Message(ready="v1"), Message(failed="it can't")])
def test_a_message_arrives_as_it_was_sent(pair: Pair, message: Message) -> None:
    send(pair[0], message)
    assert receive(pair[1]) == message
    with pytest.raises(BlockingIOError):
        receive(pair[1])


def test_a_long_text_is_cut(pair: Pair) -> None:
    send(pair[0], Message(failed="ä" * 1_000_000))
    assert len(receive(pair[1]).failed or "") == 2000


@pytest.mark.parametrize("content", [b"x" * (MESSAGE_BYTES + 1), b"", b"7", b"[" * 60_000, b"{", b'{"a":1}'])
def test_what_is_no_message_is_told_and_leaves_nothing_open(pair: Pair, content: bytes) -> None:
    gc.collect()  # the shared states of other tests
    before = open_descriptors()
    socket.send_fds(pair[0], [content], [pair[0].fileno()])
    with pytest.raises(ServiceError):
        receive(pair[1])
    assert open_descriptors() == before
