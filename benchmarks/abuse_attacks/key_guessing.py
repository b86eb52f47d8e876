"""Guessing keys."""

import secrets
import time
from collections import Counter

from benchmarks.abuse_attacks.attack import Outcome, Scene
from benchmarks.abuse_attacks.wire import dial, head, read_answer, statuses

_AT_ONCE = 16


def short_admin_key(scene: Scene) -> Outcome:
    """An admin key of four digits is set; all are tried, sixteen at a time on one connection."""
    target = scene.target
    answers: Counter[str] = Counter()
    opening_key = ""
    end = time.monotonic() + scene.seconds
    connection = dial(target.admin_address)
    began = time.monotonic()
    for first in range(0, 10_000, _AT_ONCE):
        keys = [f"{number:04d}" for number in range(first, first + _AT_ONCE)]
        connection.sendall(b"".join(head("GET", "/admin/routes", key=key) for key in keys))
        got = [read_answer(connection) for _ in keys]
        answers += statuses(got)
        opening_key = next((key for key, one in zip(keys, got, strict=True) if one.status == 200), "")
        if opening_key or time.monotonic() > end:
            break
        if not all(one.status for one in got):
            connection.close()
            connection = dial(target.admin_address)
    seconds = time.monotonic() - began
    connection.close()
    notes = {"found": opening_key, "guesses_per_second": round(sum(answers.values()) / seconds)}
    return Outcome(answers, opened=int(bool(opening_key)), held=not opening_key, notes=notes)


def wrong_keys(scene: Scene) -> Outcome:
    """Wrong keys as fast as they are answered, on four connections; the rate and the answers are told."""
    target = scene.target
    answers: Counter[str] = Counter()
    began = time.monotonic()
    connections = [dial(target.address) for _ in range(4)]
    while time.monotonic() < began + scene.seconds:
        for connection in connections:
            key = f"turret_reader_{secrets.token_urlsafe(32)}"
            connection.sendall(target.recommendation(key))
        answers += statuses(read_answer(connection) for connection in connections)
    for connection in connections:
        connection.close()
    rate = round(sum(answers.values()) / scene.seconds)
    held = set(answers) <= {"401"}
    return Outcome(answers, opened=answers["200"], held=held, notes={"guesses_per_second": rate})
