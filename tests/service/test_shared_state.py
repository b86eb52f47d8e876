import os
import threading
import timeit

from turret.service.shared_state import Order, SharedState


def in_child(work: object) -> None:
    """Run something in a forked process, and wait for its end."""
    assert callable(work)
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_process_sees_what_another_has_written() -> None:
    shared_state = SharedState(2)

    def work() -> None:
        shared_state.target.raise_to(7)
        shared_state.items.bump()
        shared_state.slots[1].occupy()
        shared_state.slots[1].live = 7
        shared_state.order = Order.DRAIN

    in_child(work)
    assert (shared_state.target.value, shared_state.items.value, shared_state.routes.value) == (7, 1, 0)
    assert shared_state.slots[1].pid not in (0, os.getpid())
    assert (shared_state.slots[0].pid, shared_state.slots[1].live) == (0, 7)
    assert shared_state.order == Order.DRAIN
    assert shared_state.slots[1].silence < 60
    shared_state.slots[1].clear()
    assert (shared_state.slots[1].pid, shared_state.slots[1].live) == (0, 0)


def test_a_target_and_its_pin_are_of_one_activation() -> None:
    """Also while others read it."""
    shared_state = SharedState()
    assert shared_state.target.pinned == (0, bytes(64), "")

    def work() -> None:
        for number in range(1, 5000):
            shared_state.target.raise_to(number, number.to_bytes(64, "big"))

    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        number, pin, _ = shared_state.target.pinned
        assert int.from_bytes(pin, "big") == number
    shared_state.target.raise_to(7, bytes(64))
    assert shared_state.target.pinned[0] == 4999


def test_a_generation_only_grows() -> None:
    shared_state = SharedState()
    shared_state.target.raise_to(5)
    shared_state.target.raise_to(3)
    assert shared_state.target.value == 5


def test_no_change_is_lost_between_processes_and_threads() -> None:
    """A bump reads, adds and writes; without a lock two of them would now and then be one."""
    shared_state = SharedState()
    children = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            for _ in range(2000):
                shared_state.items.bump()
            os._exit(0)
        children.append(pid)
    threads = [
        threading.Thread(target=lambda: [shared_state.items.bump() for _ in range(2000)]) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pid in children:
        os.waitpid(pid, 0)
    assert shared_state.items.value == 5 * 2000


def test_a_look_costs_next_to_nothing() -> None:
    """Every request takes one. About .05 microseconds; a system call would be ten times that."""
    target = SharedState().target
    assert min(timeit.repeat(lambda: target.value, number=10_000, repeat=20)) / 10_000 < 0.3e-6


def test_that_keys_are_required_is_seen_by_all_and_never_taken_back() -> None:
    shared_state = SharedState(2)
    assert not shared_state.keys_required
    pid = os.fork()
    if pid == 0:
        shared_state.require_keys()
        os._exit(0)
    os.waitpid(pid, 0)
    assert shared_state.keys_required
    shared_state.require_keys()
    for slot in shared_state.slots:
        slot.clear()
    assert shared_state.keys_required


def test_a_number_is_raised_only_when_no_other_process_is_raising_one() -> None:
    """Else both would read the same number and write the same next one."""
    shared_state = SharedState()
    held, ends = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        with shared_state.exclusive():
            os.write(held[1], b"x")
            os.read(ends[0], 1)
        os._exit(0)
    os.read(held[0], 1)
    raised = threading.Thread(target=shared_state.items.bump)
    raised.start()
    raised.join(0.1)
    assert shared_state.items.value == 0
    os.write(ends[1], b"x")
    raised.join(10)
    assert shared_state.items.value == 1
    assert os.waitpid(pid, 0)[1] == 0
    for descriptor in (*held, *ends):
        os.close(descriptor)
