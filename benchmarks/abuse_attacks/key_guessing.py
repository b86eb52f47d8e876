"""Guessing keys."""

import secrets
import time
from collections import Counter

from benchmarks.abuse_attacks.attack import Outcome, Scene
from benchmarks.abuse_attacks.wire import dial, read_answer, statuses


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
