"""Steady load through the proxy: recommendations, events and their read-back, every response checked."""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

RATE = 50
CLIENTS = 10
K = 5


class Load:
    """Clients with kept connections that send RATE requests a second in all, none of which is repeated."""

    def __init__(self, port: int, users: list[str], items: list[Any], key: str) -> None:
        self.users, self.items, self._key = users, items, key
        self.url = f"http://127.0.0.1:{port}"
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

    def client(self) -> httpx2.Client:
        """A client of the service with the key."""
        return httpx2.Client(base_url=self.url, headers={"Authorization": f"Bearer {self._key}"}, timeout=45)

    def _run(self, number: int) -> None:
        draw = random.Random(number)
        with self.client() as http:
            while not self._stop.is_set():
                with self.lock:
                    tick = next(self._ticks)
                    due = self._begin + self._paced / RATE
                    self.sent += 1
                    self._paced += 1
                time.sleep(max(0.0, due - time.monotonic()))
                may_mark = self._is_marked_accepted
                try:
                    answer, is_marked, fault = self._request(http, tick, draw)
                except (httpx2.HTTPError, ValueError) as error:
                    fault = f"{type(error).__name__}: {error}"
                else:
                    if is_marked and (may_mark or self._is_marked_accepted):
                        with self.lock:
                            self.marked += 1
                        continue
                    if is_marked or answer.status_code != 200 or fault:
                        fault = f"{answer.url.path}: {answer.status_code} {answer.text[:300]} {fault}"
                if fault:
                    with self.lock:
                        self.failures.append(f"{time.strftime('%H:%M:%S')} {fault}")

    def _request(
        self, http: httpx2.Client, tick: int, draw: random.Random
    ) -> tuple[httpx2.Response, bool, str]:
        """Send the next request: the answer, whether it is marked as degraded or refused for now, a fault."""
        with self.lock:
            known = {user: events[-50:] for user, events in self.acknowledged.items()}
        if tick % 10 < 6 or (tick % 10 == 9 and not known):
            answer = http.post("/v1/recommend", json={"user_id": draw.choice(self.users), "k": K})
            if answer.status_code != 200 or answer.json()["degraded"]:
                return answer, answer.status_code == 200, ""
            ids = {item["id"] for item in answer.json()["items"]}
            with self.lock:
                self.versions[answer.json()["version"]] += 1
            return answer, False, "" if len(ids) == K else f"{len(ids)} items"
        if tick % 10 < 9:
            user, event = f"visitor-{tick % 40}", f"event-{tick}"
            body = {"events": [{"event_id": event, "user_id": user, "item_id": draw.choice(self.items)}]}
            answer = http.post("/v1/events", json=body)
            if answer.status_code != 200:
                return answer, _is_refused_for_now(answer), ""
            with self.lock:
                self.acknowledged.setdefault(user, []).append(event)
            counts = answer.json()
            return answer, False, "" if counts["stored"] + counts["duplicates"] == 1 else "not stored once"
        user = draw.choice(sorted(known))
        answer = http.get(f"/v1/users/{user}")
        if answer.status_code != 200:
            return answer, _is_refused_for_now(answer), ""
        lost = set(known[user]) - {event["event_id"] for event in answer.json()["events"]}
        return answer, False, f"events of {user} are lost: {sorted(lost)[:5]}" if lost else ""


def _is_refused_for_now(answer: httpx2.Response) -> bool:
    return answer.status_code == 503 and "retry-after" in answer.headers
