"""Calls that are open to all, and requests that are unusual and right."""

import select
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from benchmarks.abuse_attacks.attack import Outcome, Scene
from benchmarks.abuse_attacks.target import HISTORY
from benchmarks.abuse_attacks.wire import ask, dial, hang_up, head, post, read_answer, statuses

_OPEN = ("/docs", "/openapi.json", "/metrics", "/livez", "/readyz")


def open_paths(scene: Scene) -> Outcome:
    """320 connections ask for what is open to all, as fast as they are answered; /readyz has to stay 200."""
    probes: Counter[str] = Counter()
    with ThreadPoolExecutor(1) as pool:
        crowd = pool.submit(_ask_again, scene, 320, [head("GET", path) for path in _OPEN])
        while not crowd.done():
            probes += statuses([ask(scene.target.direct, head("GET", "/readyz"))])
            time.sleep(0.01)
        answers, _ = crowd.result()
    return Outcome(answers, held=set(probes) == {"200"}, notes={"readyz": dict(probes)})


def overload(scene: Scene) -> Outcome:
    """400 clients that ask again at once, whatever they were told."""
    target = scene.target
    answers, refused = _ask_again(scene, 400, [target.recommendation(target.reader)])
    middle = sorted(refused)[len(refused) // 2] if refused else 0.0
    notes = {
        "good_per_second": round(answers["200"] / scene.seconds),
        "median_refusal_ms": round(1000 * middle, 1),
    }
    return Outcome(answers, held=set(answers) <= {"200", "503", "429"}, notes=notes)


def pipelining(scene: Scene) -> Outcome:
    """Sixteen requests at a time on each of a hundred connections."""
    target = scene.target
    request = target.recommendation(target.reader) * 16
    answers: Counter[str] = Counter()
    end = time.monotonic() + scene.seconds
    connections = [dial(target.address) for _ in range(100)]
    try:
        while time.monotonic() < end and connections:
            for connection in connections:
                connection.sendall(request)
            for index, connection in enumerate(connections):
                got = [read_answer(connection) for _ in range(16)]
                answers += statuses(got)
                if not got[-1].status:
                    connection.close()
                    connections[index] = dial(target.address)
    finally:
        hang_up(connections)
    return Outcome(answers, held=set(answers) <= {"200", "503", "429", "closed"})


def upgrades(scene: Scene) -> Outcome:
    """POSTs that offer HTTP/2, as `curl --http2` does, are refused; nginx would take the offer out."""
    target = scene.target
    body = {"history": HISTORY, "k": 3}
    offer = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
    )
    whole = post("/v1/recommend", body, *offer, key=target.reader)
    first, _, second = whole.partition(b"\r\n\r\n")
    got = []
    for parts in ((whole,), (first + b"\r\n\r\n", second)):
        for _ in range(10):
            with dial(target.address, timeout=5) as connection:
                for part in parts:
                    connection.sendall(part)
                    time.sleep(0.01 * (len(parts) - 1))
                got.append(read_answer(connection))
    answers = statuses(got)
    return Outcome(answers, held=set(answers) == {"400"})


def _ask_again(scene: Scene, count: int, requests: list[bytes]) -> tuple[Counter[str], list[float]]:
    """Connections that ask again as soon as they are answered; gives the answers, and seconds to refusals."""
    answers: Counter[str] = Counter()
    refused: list[float] = []
    end = time.monotonic() + scene.seconds
    poll = select.epoll()
    held: dict[int, socket.socket] = {}
    since: dict[int, float] = {}

    def begin() -> None:
        connection = dial(scene.target.address)
        held[connection.fileno()] = connection
        since[connection.fileno()] = time.monotonic()
        poll.register(connection, select.EPOLLIN)
        connection.sendall(requests[len(held) % len(requests)])

    try:
        for _ in range(count):
            begin()
        asked = 0
        while time.monotonic() < end:
            for number, _ in poll.poll(0.05):
                connection = held[number]
                answer = read_answer(connection)
                answers[str(answer.status or "closed")] += 1
                refused += [time.monotonic() - since[number]] if answer.status == 503 else []
                asked += 1
                since[number] = time.monotonic()
                try:
                    connection.sendall(requests[asked % len(requests)])
                except OSError:
                    poll.unregister(number)
                    held.pop(number).close()
                    begin()
    finally:
        poll.close()
        hang_up(held.values())
    return answers, refused
