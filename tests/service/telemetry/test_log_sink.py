import os
import time
from collections.abc import Callable, Iterator

import pytest

from turret.service.telemetry.log_sink import Sink


def wait_for(what: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.01)
    return what()


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end >= 0:
            os.close(end)


def sink_into(descriptor: int, limit: int = 100) -> Sink:
    return Sink(lambda record: f"{record}\n".encode(), lambda count: f"lost {count}", descriptor, limit)


def read_lines(descriptor: int) -> list[str]:
    return os.read(descriptor, 1_000_000).decode().splitlines()


def test_lines_are_written_in_order_including_those_before_the_start(pipe: list[int]) -> None:
    sink = sink_into(pipe[1])
    sink.put("first")
    sink.start()
    for number in range(50):
        sink.put(number)
    sink.close()
    assert read_lines(pipe[0]) == ["first", *map(str, range(50))]
    assert sink.take_dropped() == 0


@pytest.mark.nightly
def test_put_does_not_block_without_a_reader(pipe: list[int]) -> None:
    """A pipe takes 64 kB; after that, writing to it blocks for ever."""
    sink = sink_into(pipe[1], limit=100)
    sink.start()
    sink.put("x" * 1_000_000)
    assert wait_for(lambda: not sink._queue)
    start = time.perf_counter()
    for number in range(1000):
        sink.put(number)
    assert time.perf_counter() - start < 0.5
    assert sink.take_dropped() == 900
    assert sink.take_dropped() == 0
    start = time.perf_counter()
    sink.close(seconds=0.2)
    assert time.perf_counter() - start < 1
    while "lost 900" not in (lines := read_lines(pipe[0])):  # the reader is back: it is told what it missed
        assert lines


def test_lines_lost_to_a_closed_pipe_are_counted_and_reported_to_the_next_reader(pipe: list[int]) -> None:
    os.close(pipe[0])
    pipe[0] = -1
    sink = sink_into(pipe[1])
    sink.start()
    for number in range(5):
        sink.put(number)
    assert wait_for(lambda: sink._missing == 5)
    assert sink.take_dropped() == 5
    readable, writable = os.pipe()
    os.dup2(writable, pipe[1])  # as when a log is opened again
    os.close(writable)
    sink.put("back")
    sink.close()
    assert read_lines(readable) == ["back", "lost 5"]
    os.close(readable)


def test_a_record_that_cannot_be_formatted_does_not_stop_the_others(pipe: list[int]) -> None:
    def write(record: object) -> bytes:
        if record == "bad":
            raise ValueError(record)
        return f"{record}\n".encode()

    sink = Sink(write, str, pipe[1])
    for record in ("good", "bad", "good"):
        sink.put(record)
    sink.start()
    sink.close()
    assert read_lines(pipe[0]) == ["good", "unwritable log line: ValueError", "good"]


def test_lines_are_written_in_chunks_that_a_pipe_takes_atomically(
    pipe: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []

    def write(_: int, chunk: bytes) -> int:
        written.append(chunk)
        return len(chunk)

    monkeypatch.setattr("turret.service.telemetry.log_sink.os.write", write)
    sink = sink_into(pipe[1], limit=1000)
    for number in range(500):
        sink.put(f"{number:0100d}")
    sink.put("y" * 10_000)
    sink.start()
    sink.close()
    assert [line for chunk in written for line in chunk.decode().splitlines()] == [
        *(f"{number:0100d}" for number in range(500)),
        "y" * 10_000,
    ]
    assert max(map(len, written[:-1])) <= 4096
    assert len(written) < 20
