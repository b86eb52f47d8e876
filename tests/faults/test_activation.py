"""Versions that are activated while others ask, and beside a worker that is stopped."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.service_calls import activate, admin, children, client_of
from tests.support.service_process import Start, plain_client
from tests.support.until import until


@pytest.mark.process
@pytest.mark.fault(15)
def test_no_answer_is_older_than_what_an_acknowledged_activation_promised(
    start: Start, three: Path, thorough: bool
) -> None:
    """Clients of two workers, versions back and forth: `min_version` holds, and without it the order of
    acknowledgements does too: an answer that begins after one has ended is of that activation or a later."""
    service = start(workers=2)
    order = ["v1"]  # what was asked to be live, in turn
    acknowledged = [0]
    wrong: list[Any] = []
    count = [0]
    over = threading.Event()

    def look(names_it: bool) -> None:
        client = plain_client(service.urls[0])
        while not over.wait(0 if thorough else 0.01):  # without a pause an activation takes seconds
            least = acknowledged[0]
            body = {"min_version": order[least]} if names_it else {}
            answer = client.post("/v1/recommend", json={"k": 3, **body})
            possible = set(order[least:])  # also what is asked for meanwhile, and not yet acknowledged
            version = answer.json().get("version")
            items = {item["id"] // 100 for item in answer.json().get("items", [])}
            if answer.status_code != 200 or version not in possible or items != {int(version[1:])}:
                wrong.append((least, body, answer.status_code, answer.text))
            count[0] += 1
            if count[0] % 20 == 0:  # another connection, perhaps to the other worker
                client.close()
                client = plain_client(service.urls[0])
        client.close()

    clients = [threading.Thread(target=look, args=(place % 2 == 0,)) for place in range(6)]
    for client in clients:
        client.start()
    try:
        for place in range(1, 31 if thorough else 9):
            order.append(("v1", "v2", "v3")[place % 3])
            assert activate(service, three, order[-1]).status_code == 200
            acknowledged[0] = place
            seen = count[0]
            until(lambda seen=seen: count[0] > seen + 6, "the clients are answered")  # type: ignore[misc]
    finally:
        over.set()
        for client in clients:
            client.join()
    assert wrong == []


@pytest.mark.nightly
@pytest.mark.fault(66)
def test_activations_do_not_queue_behind_one_that_waits_for_a_stopped_worker(
    start: Start, three: Path
) -> None:
    """Each waits for the others to follow, but not the next for that: all are over while it is stopped."""
    service = start(workers=2, activation_seconds=10)  # a worker that is stopped for 15 seconds is killed
    pid, other = children(service.process.pid)
    with ExitStack() as opened:
        clients = [opened.enter_context(closing(client_of(service, other))) for _ in range(4)]
        os.kill(pid, signal.SIGSTOP)
        opened.callback(os.kill, pid, signal.SIGCONT)
        pool = opened.enter_context(ThreadPoolExecutor(4))
        asked = [
            pool.submit(admin, service, three, "activate", {"version": version}, client)
            for version, client in zip(["v2", "v3", "v2", "v3"], clients, strict=True)
        ]
        answers = [one.result() for one in asked]
    assert [answer.json()["behind"] for answer in answers] == [[pid]] * 4
