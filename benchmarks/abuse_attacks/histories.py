"""Events, users and items: what one client's data do to others."""

import asyncio
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from benchmarks.abuse_attacks.attack import NotCarriedOutError, Outcome, Scene
from benchmarks.abuse_attacks.target import Target
from benchmarks.abuse_attacks.wire import Answer, ask, asked_on, dial, head, post, read_answer, statuses
from turret.service.stores.contract import Event
from turret.service.stores.sqlite.histories import SqliteHistory

_USERS, _EVENTS = 100, 10_000
_FRESH_LIMIT = 50


def fill_histories(work: Path, quick: bool = False) -> None:
    """Store the events of the users, in the file that a service will be started on; few in a quick run."""
    count = _EVENTS // 10 if quick else _EVENTS
    now = time.time_ns() // 1_000_000

    async def fill() -> None:
        history = SqliteHistory(work / "history.sqlite")
        for user in range(_USERS):
            names = [f"{user}-{number}" for number in range(count)]
            await history.append(
                [
                    Event(name, f"long{user}", 1 + number % 900, now - number, None)
                    for number, name in enumerate(names)
                ]
            )
        await history.append([Event("one", "honest", 201, now, None)])
        await history.close()

    asyncio.run(fill())


def long_histories(scene: Scene) -> Outcome:
    """Batches of a hundred users with 10,000 events each, on two connections; another user asks meanwhile."""
    target = scene.target
    users = {"requests": [{"user_id": f"long{number}", "k": 1} for number in range(_USERS)]}
    batch = post("/v1/recommend/batch", users, key=target.reader)
    honest = post("/v1/recommend", {"user_id": "honest", "k": 3}, key=target.reader)
    if ask(target.address, honest).json.get("degraded") != []:
        raise NotCarriedOutError("the honest user's history is not read to begin with")
    end = time.monotonic() + scene.seconds
    answers: Counter[str] = Counter()
    degraded: Counter[str] = Counter()

    def attack() -> Counter[str]:
        results: Counter[str] = Counter()
        while time.monotonic() < end:
            results += statuses([ask(target.address, batch)])
        return results

    with ThreadPoolExecutor(2) as pool:
        attacking = [pool.submit(attack) for _ in range(2)]
        while time.monotonic() < end:
            answer = ask(target.address, honest)
            told = answer.json.get("degraded")
            degraded["degraded" if told else str(answer.status)] += 1
            time.sleep(0.05)
        for one in attacking:
            answers += one.result()
    notes = {"honest_user": dict(degraded), "batch_bytes": len(batch)}
    return Outcome(answers, held=set(degraded) == {"200"}, notes=notes)


def foreign_event_id(scene: Scene) -> Outcome:
    """Somebody uses an event id first; is the victim's event of that id stored, or its loss told?"""
    target = scene.target
    swallowed = 0
    answers: Counter[str] = Counter()
    for number in range(5):
        attacker = {"event_id": f"order-{number}", "user_id": "attacker", "item_id": 201}
        victim = {"event_id": f"order-{number}", "user_id": "victim", "item_id": 202 + number}
        first, second = _store(target, attacker), _store(target, victim)
        if first.status != 200:
            raise NotCarriedOutError(f"the attacker's event is refused with {first.status}")
        answers += statuses([second])
        told = set(second.json) - {"stored", "duplicates", "clamped", "expired"}
        stored = any(one["event_id"] == f"order-{number}" for one in _events(target, "victim"))
        swallowed += second.status == 200 and not stored and not told
    return Outcome(answers, opened=swallowed, held=not swallowed)


def users_of_other_bytes(scene: Scene) -> Outcome:
    """Users in paths that are no UTF-8: whether %ff and %fe are one user, to read and to delete."""
    target = scene.target
    event = {"event_id": "replacement", "user_id": "\ufffd", "item_id": 201}
    if _store(target, event).status not in (200, 422):
        raise NotCarriedOutError("the event is neither stored nor refused")
    calls = [
        head(method, f"/v1/users/{path}", key=target.writer)
        for method, path in (("GET", "%ff"), ("GET", "%fe"), ("DELETE", "%fe"))
    ]
    got = [ask(target.address, call) for call in calls]
    mixed = sum(
        one.status == 200 and (one.json.get("total", 0) or one.json.get("deleted", 0)) > 0 for one in got
    )
    return Outcome(statuses(got), opened=mixed, held=all(one.status in (400, 422) for one in got))


def times_of_a_hundred_ones(scene: Scene) -> Outcome:
    """Times of a hundred digits, as a text and as a number."""
    target = scene.target
    answers = []
    for number, value in enumerate(("1" * 100, "11111111" + "1" * 12, int("1" * 100), 1e300)):
        event = {"event_id": f"time-{number}", "user_id": "ones", "item_id": 201, "time": value}
        answers.append(_store(target, event))
    accepted = [one for one in answers if one.status == 200]
    return Outcome(statuses(answers), held=not accepted, notes={"accepted": len(accepted)})


def files_of_others(scene: Scene) -> Outcome:
    """Whether files with histories, items or keys may be read by other users of the machine."""
    target = scene.target
    _store(target, {"event_id": "file", "user_id": "file", "item_id": 201})
    ask(target.address, head("DELETE", "/v1/items/201", key=target.writer))
    private = [*target.work.glob("history.sqlite*"), target.keys, target.bundles / "admin.key"]
    if len(private) < 3:
        raise NotCarriedOutError("there is no file of histories")
    readable = {
        path.name: oct(os.stat(path).st_mode & 0o777) for path in private if os.stat(path).st_mode & 0o044
    }
    answers = Counter(private=len(private) - len(readable), readable=len(readable))
    return Outcome(answers, opened=len(readable), held=not readable, notes={"readable": readable})


def fields_of_known_items(scene: Scene) -> Outcome:
    """Fields of 15 KB for each of the thousand known items, where fifty items may be fresh."""
    target = scene.target
    fields = {f"field{number}": "x" * 1_500 for number in range(10)}
    answers: Counter[str] = Counter()
    end = time.monotonic() + scene.seconds
    with dial(target.address) as connection:
        for number in range(scene.count(1000)):
            put = post(f"/v1/items/{1 + number}", {"features": {}, "fields": fields}, key=target.writer)
            answers += statuses([asked_on(connection, b"PUT" + put[4:])])
            if time.monotonic() > end:
                break
    return Outcome(answers, held=bool(set(answers) - {"200"}))


def fresh_items_at_once(scene: Scene) -> Outcome:
    """New items put on sixteen connections at once, where fifty may be fresh and as many as are under way."""
    target = scene.target
    connections = [dial(target.address) for _ in range(16)]
    answers: Counter[str] = Counter()
    for start in range(0, 160, 16):
        for index, connection in enumerate(connections):
            body = {"features": {"size": float(start + index)}}
            put = post(f"/v1/items/{7001 + start + index}", body, key=target.writer)
            connection.sendall(b"PUT" + put[4:])
        answers += statuses(map(read_answer, connections))
    for connection in connections:
        connection.close()
    if not answers["200"]:
        raise NotCarriedOutError(f"no new item can be put at all: {dict(answers)}")
    beyond = max(0, answers["200"] - _FRESH_LIMIT)
    return Outcome(answers, held=beyond < len(connections), notes={"beyond_the_limit": beyond})


def _store(target: Target, event: dict[str, object]) -> Answer:
    return ask(target.address, post("/v1/events", {"events": [event]}, key=target.writer))


def _events(target: Target, user: str) -> list[dict[str, object]]:
    answer = ask(target.address, head("GET", f"/v1/users/{quote(user)}", key=target.writer))
    results: list[dict[str, object]] = answer.json.get("events", [])
    return results
