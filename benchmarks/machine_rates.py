"""The rates of this machine that `benchmarks.floors` divides counts by, and the least server of requests.

Each function measures for a twentieth of a second and returns the best rate in it. A rate of memory depends
on the bytes that are worked on, which the caches hold or not: it is measured on as many.
"""

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from benchmarks.load import keep_to

SECONDS, LEAST_CALLS = 0.05, 3
# A call of torch on fewer bytes measures the call.
LEAST_BYTES = 2**20
# Sides of square matrices whose products have the peak of multiplications on machines of our size.
SIDES = (512, 1024)
RECEIVED = 65_536


def _fastest(work: Callable[[], object]) -> float:
    """The least seconds of a call, after one to warm up."""
    work()
    least, spent, calls = float("inf"), 0.0, 0
    while spent < SECONDS or calls < LEAST_CALLS:
        begun = time.perf_counter()
        work()
        taken = time.perf_counter() - begun
        least, spent, calls = min(least, taken), spent + taken, calls + 1
    return least


def multiplied() -> float:
    """Multiplications a second of a product of float32 matrices by torch, each with its addition."""
    return max(_products(side) for side in SIDES)


def _products(side: int) -> float:
    left, right, product = (torch.randn(side, side) for _ in range(3))
    return float(side**3) / _fastest(lambda: torch.matmul(left, right, out=product))


def copied(size: int) -> float:
    """Bytes read or written a second by copies within `size` bytes, half of which are written."""
    source, target = torch.ones(2, max(size, LEAST_BYTES) // 8)
    return 2.0 * float(source.nbytes) / _fastest(lambda: target.copy_(source))


def read(size: int) -> float:
    """Bytes read a second by a matrix of `size` bytes times a vector, or by its sum: the faster of both."""
    matrix, vector = torch.ones(max(size, LEAST_BYTES) // 256, 64), torch.ones(64)
    product = torch.empty(len(matrix))
    best = min(_fastest(lambda: torch.mv(matrix, vector, out=product)), _fastest(matrix.sum))
    return matrix.nbytes / best


def gathered(size: int, row: int) -> float:
    """Bytes read a second by reading rows of `row` bytes at random from a table of `size` bytes."""
    table = torch.ones(max(size // row, 1), row // 4)
    places = torch.randint(len(table), (max(1, LEAST_BYTES // row),))
    target = torch.empty(len(places), row // 4)
    return target.nbytes / _fastest(lambda: torch.index_select(table, 0, places, out=target))


def read_from(files: list[Path]) -> float:
    """Bytes a second of reading files that the system's cache holds."""
    size = sum(path.stat().st_size for path in files)
    return size / _fastest(lambda: [path.read_bytes() for path in files])


def written_to(path: Path, size: int) -> float:
    """Bytes a second of writing a new file of `size` bytes, not yet to the disk."""
    content = bytes(max(size, LEAST_BYTES))

    def write() -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(content)

    try:
        return len(content) / _fastest(write)
    finally:
        path.unlink(missing_ok=True)


def _answer_all(told: Connection, cpu: int | None, answer: bytes) -> None:
    """Answer each received piece with the same bytes, three system calls a request, until nobody listens."""
    keep_to(cpu)
    listener = socket.create_server(("127.0.0.1", 0))
    told.send(listener.getsockname()[1])
    waiting, connections = select.epoll(), dict[int, Any]()
    waiting.register(listener, select.EPOLLIN)
    waiting.register(told, select.EPOLLERR)
    while True:
        for number, _ in waiting.poll():
            if number == told.fileno():  # the other process has ended
                return
            if number == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = connection
                waiting.register(connection, select.EPOLLIN)
            elif connections[number].recv(RECEIVED):
                connections[number].send(answer)
            else:
                connections.pop(number).close()


@contextmanager
def answering(cpu: int | None, body: str) -> Iterator[str]:
    """Run a server on the processor `cpu` that answers every request with `body`; yield its URL."""
    content = body.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    context = get_context("spawn")
    heard, told = context.Pipe(duplex=False)
    process = context.Process(target=_answer_all, args=(told, cpu, head.encode() + content), daemon=True)
    process.start()
    told.close()
    try:
        yield f"http://127.0.0.1:{heard.recv()}"
    finally:
        heard.close()
        process.join()
