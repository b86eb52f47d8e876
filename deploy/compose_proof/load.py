"""Steady load through the proxy: recommendations, events and their read-back, every response checked."""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any

from deploy.compose_proof.calls import Answer, ask

RATE = 50
CLIENTS = 10
K = 5


class Load:
    """Clients with kept connections that send RATE requests a second in all, none of which is repeated."""

    def __init__(self, port: int, users: list[str], items: list[Any], key: str) -> None:
        self._port, self.users, self.items, self._key = port, users, items, key
        self._ticks = itertools.count()
        self.lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._is_marked_accepted = False
        self.sent = 0
        self.failures: list[str] = []
        self.marked = 0
        self.versions: Counter[str] = Counter()
        self.acknowledged: dict[str, list[str]] = {}

    def start(self) -> None:
        """Begin to send."""
        self._begin, self._paced = time.monotonic(), 0
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait for the last answers."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No requests meanwhile, as a stopped system answers none."""
        self.stop()
        try:
            yield
        finally:
            self._stop.clear()
            self.start()

    @contextmanager
    def marks_accepted(self) -> Iterator[None]:
        """Meanwhile answers may be degraded and events refused, if the answers say so."""
        self._is_marked_accepted = True
        try:
            yield
        finally:
            self._is_marked_accepted = False

    def seen_versions(self, seconds: float) -> set[str]:
        """The versions of the answers within the next seconds."""
        with self.lock:
            self.versions.clear()
        time.sleep(seconds)
        with self.lock:
            return set(self.versions)

    def _run(self, number: int) -> None:
        draw = random.Random(number)
        connection = HTTPConnection("127.0.0.1", self._port, timeout=45)
        while not self._stop.is_set():
            with self.lock:
                tick = next(self._ticks)
                due = self._begin + self._paced / RATE
                self.sent += 1
                self._paced += 1
            time.sleep(max(0.0, due - time.monotonic()))
            may_mark = self._is_marked_accepted
            try:
                fault = self._request(connection, tick, draw, may_mark)
            except (OSError, HTTPException, ValueError) as error:
                connection.close()
                fault = f"{type(error).__name__}: {error}"
            if fault and fault != "marked":
                with self.lock:
                    self.failures.append(f"{time.strftime('%H:%M:%S')} {fault}")
        connection.close()

    def _request(self, connection: HTTPConnection, tick: int, draw: random.Random, may_mark: bool) -> str:
        kind = tick % 10
        if kind < 6:
            return self._recommend(connection, draw, may_mark)
        if kind < 9:
            return self._store(connection, tick, draw, may_mark)
        return self._read_back(connection, draw, may_mark)

    def _recommend(self, connection: HTTPConnection, draw: random.Random, may_mark: bool) -> str:
        answer = ask(
            connection, "POST", "/v1/recommend", {"user_id": draw.choice(self.users), "k": K}, self._key
        )
        if answer.status != 200:
            return _shown("recommend", answer)
        if answer.value["degraded"]:
            return self._mark(may_mark) or _shown("recommend", answer)
        ids = [str(item["id"]) for item in answer.value["items"]]
        if len(ids) != K or len(set(ids)) != K:
            return _shown("recommend", answer)
        with self.lock:
            self.versions[answer.value["version"]] += 1
        return ""

    def _store(self, connection: HTTPConnection, tick: int, draw: random.Random, may_mark: bool) -> str:
        user, event = f"visitor-{tick % 40}", f"event-{tick}"
        body = {"events": [{"event_id": event, "user_id": user, "item_id": draw.choice(self.items)}]}
        answer = ask(connection, "POST", "/v1/events", body, self._key)
        if answer.status == 503 and "retry-after" in answer.headers:
            return self._mark(may_mark) or _shown("events", answer)
        if answer.status != 200 or answer.value["stored"] + answer.value["duplicates"] != 1:
            return _shown("events", answer)
        with self.lock:
            self.acknowledged.setdefault(user, []).append(event)
        return ""

    def _read_back(self, connection: HTTPConnection, draw: random.Random, may_mark: bool) -> str:
        with self.lock:
            if not self.acknowledged:
                return ""
            user = draw.choice(sorted(self.acknowledged))
            expected = set(self.acknowledged[user][-50:])
        answer = ask(connection, "GET", f"/v1/users/{user}", None, self._key)
        if answer.status == 503 and "retry-after" in answer.headers:
            return self._mark(may_mark) or _shown("users", answer)
        if answer.status != 200:
            return _shown("users", answer)
        lost = expected - {event["event_id"] for event in answer.value["events"]}
        return f"events of {user} are lost: {sorted(lost)[:5]}" if lost else ""

    def _mark(self, may_mark: bool) -> str:
        if not (may_mark or self._is_marked_accepted):
            return ""
        with self.lock:
            self.marked += 1
        return "marked"


def _shown(call: str, answer: Answer) -> str:
    return f"{call}: {answer.status} {str(answer.value)[:300]}"
