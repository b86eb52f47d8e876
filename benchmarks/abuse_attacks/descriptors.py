"""Connections up to the limit of descriptors, and beyond the limit of connections."""

import contextlib
import socket
import time
from collections import Counter

from benchmarks.abuse_attacks.attack import NotCarriedOutError, Outcome, Scene
from benchmarks.abuse_attacks.slow_clients import PACE
from benchmarks.abuse_attacks.wire import asked_on, dial, hang_up, head, post, statuses


def all_descriptors(scene: Scene) -> Outcome:
    """Idle connections, three times as many as the processes may have files; then those who were there ask.

    They have to be answered; events have to be stored. Connections beyond the limit are closed, also those of
    probes: nginx limits the connections of one address.
    """
    target = scene.target
    kept = target.workers()
    idle = _flood(scene, 900)
    try:
        answers: Counter[str] = Counter()
        probes: Counter[str] = Counter()
        for number in range(10):
            event = {"event_id": f"flood-{number}", "user_id": "flood", "item_id": 201}
            for connection in kept.values():
                asked = (
                    target.recommendation(target.reader),
                    post("/v1/events", {"events": [event]}, key=target.writer),
                    head("GET", "/v1/users/flood", key=target.writer),
                )
                answers += statuses(asked_on(connection, one) for one in asked)
            probes += _probe(target.address)
            time.sleep(0.1)
    finally:
        hang_up([*idle, *kept.values()])
    time.sleep(1)
    after = _probe(target.address)
    held = set(answers) == {"200"} and after["200"] == 1
    notes = {"connections": len(idle), "probes_on_new_connections": dict(probes), "after": dict(after)}
    return Outcome(answers, held=held, notes=notes)


def more_connections_than_allowed(scene: Scene) -> Outcome:
    """Idle connections, three times as many as the service allows; each beyond is told so and closed."""
    target = scene.target
    kept = target.workers()
    idle = _flood(scene, 3000)
    try:
        ask = target.recommendation(target.reader)
        answers = sum(
            (statuses(asked_on(one, ask) for one in kept.values()) for _ in range(10)), Counter[str]()
        )
        turned_away = Counter(_state(one) for one in idle)
    finally:
        hang_up([*idle, *kept.values()])
    return Outcome(answers, held=set(answers) == {"200"}, notes={"idle": dict(turned_away)})


def reconnecting(scene: Scene) -> Outcome:
    """Connections that are opened and closed at once, as fast as one client can."""
    count = 0
    end = time.monotonic() + scene.seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError), dial(scene.target.address, timeout=5):
            count += 1
    return Outcome(Counter(connections=count), notes={"each_second": round(count / scene.seconds)})


def _flood(scene: Scene, count: int) -> list[socket.socket]:
    """Open connections, as far as there is anybody to take them."""
    idle = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            idle.append(dial(scene.target.address, timeout=1))
        time.sleep(PACE)
    if len(idle) < count // 2:
        hang_up(idle)
        raise NotCarriedOutError(f"{len(idle)} of {count} connections could be opened")
    time.sleep(0.5)
    return idle


def _probe(address: tuple[str, int]) -> Counter[str]:
    try:
        with dial(address, timeout=1) as connection:
            return statuses([asked_on(connection, head("GET", "/livez"))])
    except OSError:
        return Counter(closed=1)


def _state(connection: socket.socket) -> str:
    try:
        connection.settimeout(0)
        return connection.recv(12)[9:12].decode("latin-1") or "closed"
    except BlockingIOError:
        return "open"
    except OSError:
        return "closed"
