"""Attacks of several requests: floods, slow clients, bombs, and sequences that lost or changed data.

Each attack is a generator of the doors that it finds open; its cost to others is measured beside it.
"""

import asyncio
import itertools
import json
import os
import secrets
import select
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from benchmarks.abuse_requests import JSON_TYPE, LINES_TYPE, RULES, Request, json_request
from benchmarks.abuse_target import Target

SLOW_SECONDS, FLOOD_SECONDS = 4.0, 3.0
PACE_MS = 0.5  # between two connections: the memory that they hold is measured, not their rate
_HISTORY = [f"i{number:04d}" for number in range(50)]
_CAPS = {"brand": 1, "category": 1, "tags": 1, "fair_trade": 1}  # caps that can't be met
_PERMITTED = (200, 400, 404, 409, 413, 422, 429, 503)


Attack = Callable[[Target], Iterator[str]]
# Clients run in a thread of low priority, as they have other machines than the service.
_other_machine = partial(ThreadPoolExecutor, 1, initializer=os.nice, initargs=(10,))


def ask(target: Target, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send one request with every scope: status, and the answer as JSON."""
    status, content = target.exchange(json_request(method, path, body))
    return status, json.loads(content or b"null")


def wire(path: str, body: bytes, key: str | None, more: str = "", length: int | None = None) -> bytes:
    """A POST request as bytes; `length` replaces the true length of its body."""
    bearer = f"Authorization: Bearer {key}\r\n" if key else ""
    framing = more or f"Content-Length: {len(body) if length is None else length}"
    head = f"POST {path} HTTP/1.1\r\nHost: abuse\r\nContent-Type: {JSON_TYPE}\r\n{bearer}{framing}\r\n\r\n"
    return head.encode() + body


def crowd(target: Target, clients: int, requests: Iterable[bytes], at_once: int = 1) -> None:
    """Send requests on `clients` connections as fast as they are answered."""
    taken, end = iter(requests), time.monotonic() + FLOOD_SECONDS * (0.3 if target.quick else 1)

    async def ask_on_one() -> None:
        while time.monotonic() < end and (sent := list(itertools.islice(taken, at_once))):
            with suppress(OSError, EOFError):
                reader, writer = await asyncio.open_connection(*target.public)
                with suppress(OSError, EOFError, ValueError):
                    while sent and time.monotonic() < end:
                        writer.write(b"".join(sent))
                        for _ in sent:
                            head = (await reader.readuntil(b"\r\n\r\n")).lower()
                            await reader.readexactly(
                                int(head.partition(b"content-length:")[2].split(b"\r")[0])
                            )
                        sent = list(itertools.islice(taken, at_once))
                writer.close()

    async def ask_on_all() -> None:
        tasks = [asyncio.create_task(ask_on_one()) for _ in range(clients)]
        await asyncio.wait(tasks, timeout=3 * FLOOD_SECONDS)
        for task in tasks:
            task.cancel()

    asyncio.run(ask_on_all())


def held(target: Target, count: int, request: bytes, more: bytes = b"", read: int = 0) -> None:
    """Open connections, send a request on each, and stay: send `more`, or read a few bytes, now and then.

    The next connection is opened when an answer has begun, or after `PACE_MS`.
    """
    end = time.monotonic() + SLOW_SECONDS * (0.3 if target.quick else 1)
    with ExitStack() as stack:
        connections = []
        for _ in range(count // 5 if target.quick else count):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with suppress(OSError):
                connection.settimeout(1.0)
                connection.connect(target.public)
                connection.setblocking(False)
                connection.send(request)
                connections.append(connection)
                answer = select.poll()
                answer.register(connection, select.POLLIN)
                answer.poll(PACE_MS)
            if time.monotonic() > end:
                break
        while time.monotonic() < end:
            for connection in connections:
                with suppress(OSError):
                    connection.send(more)
                    connection.recv(read)
            time.sleep(0.1)


def plain(attack: Callable[..., None], *arguments: Any, **named: Any) -> Attack:
    """An attack that is judged by its cost alone; callables among its arguments get the target."""

    def run(target: Target) -> Iterator[str]:
        resolved = [argument(target) if callable(argument) else argument for argument in arguments]
        with _other_machine() as pool:
            pool.submit(attack, target, *resolved, **named).result()
        yield from ()

    return run


def _recommend(target: Target) -> bytes:
    return wire("/v1/recommend", json.dumps({"history": _HISTORY, "k": 10}).encode(), target.keys["read"])


def _half_sent(target: Target) -> bytes:
    return wire("/v1/recommend", b" " * 64_000, target.keys["read"], "", 65_000)


def _batch(target: Target) -> bytes:
    body = json.dumps({"requests": [{"history": _HISTORY, "k": 100}] * 100}).encode()
    return wire("/v1/recommend/batch", body, target.keys["read"])


def _guesses(target: Target) -> Iterator[bytes]:
    return (
        wire("/v1/recommend", b"{}", f"turret_all_{secrets.token_urlsafe(9_000)}") for _ in itertools.count()
    )


def _open_paths(target: Target) -> Iterator[bytes]:
    paths = ("/docs", "/openapi.json", "/metrics", "/livez", "/readyz")
    return itertools.cycle([f"GET {path} HTTP/1.1\r\nHost: abuse\r\n\r\n".encode() for path in paths])


def _chunks(target: Target) -> Iterator[bytes]:
    chunked = wire("/v1/recommend", b"", target.keys["read"], "Transfer-Encoding: chunked")
    return itertools.repeat(chunked + b"1\r\n \r\n" * 990_000 + b"0\r\n\r\n")


def _trailers(target: Target) -> list[bytes]:
    begin = wire("/v1/recommend", b"2\r\n{}\r\n0\r\n", None, "Transfer-Encoding: chunked")
    return [begin + b"".join(b"x%07d: short\r\n" % number for number in range(2_000_000))]


def _large_bodies(target: Target) -> Iterator[bytes]:
    """Valid bodies near the limit: long ids in a batch, and long events."""
    ids = [f"{number:0490d}" for number in range(19)]
    batch = {"requests": [{"history": ids, "k": 1}] * 100}
    events = [
        {"event_id": f"{n}-{'e' * 400}", "user_id": f"{n}-{'u' * 300}", "item_id": "i0001"}
        for n in range(1_000)
    ]
    key = target.keys["all"]
    bodies = ("/v1/recommend/batch", batch), ("/v1/events", {"events": events})
    return itertools.cycle([wire(path, json.dumps(body).encode(), key) for path, body in bodies])


def _bulk(target: Target, body: bytes) -> Iterator[str]:
    with suppress(TimeoutError):
        status, answer = target.exchange(Request("", "", "POST", "/v1/items", (body,), LINES_TYPE))
        if status not in _PERMITTED:
            yield f"POST /v1/items {body[:40]!r}... ({len(body)} bytes): {status} {answer[:100]!r}"
        return
    yield f"POST /v1/items {body[:40]!r}... ({len(body)} bytes): no answer"


def bulk_bombs(target: Target) -> Iterator[str]:
    """Send 16 MB in one line of items, in blank lines, in lines without JSON, and in the longest lines."""
    size = 15_900_000
    item = b'{"id":"i0001","features":{"title":"%b"}}'
    yield from _bulk(target, item % (b"a" * size))
    yield from _bulk(target, b'{"id":"i0001","fields":{"x":[%b1]}}' % (b"1," * (size // 2)))
    yield from _bulk(target, b"\n" * size)
    yield from _bulk(target, b"[\n" * (size // 2))
    yield from _bulk(target, (item % (b" > " * 650) + b"\n") * 8_000)


def padded_items(target: Target) -> Iterator[str]:
    """Send 87 kB of items: one with the longest lists, and many without lists, four times."""
    long = {
        "title": " ".join(["cedar"] * 330),
        "tags": ["t1"] * 2_000,
        "category": " > ".join(["Food"] * 280),
    }
    for call in range(4):
        lines = [{"id": f"long{call}", "features": long}]
        lines += [{"id": f"pad{call}-{number}", "features": {"price": 1}} for number in range(1_500)]
        yield from _bulk(target, "\n".join(map(json.dumps, lines)).encode())


def blank_items(target: Target) -> Iterator[str]:
    """Store items with texts of blanks and separators, and then filter as everybody does."""
    body = {"history": _HISTORY, "filter": {"category": {"under": "Food"}}}
    texts = (" " * 30_000, "\u00a0" * 15_000, ">" * 30_000, "a > " * 7_000, "/ " * 15_000)
    for number, text in enumerate(texts):
        for method, path, payload in (
            ("PUT", f"/v1/items/blank{number}", {"features": {}, "fields": {"category": text}}),
            ("POST", "/v1/recommend", body),
        ):
            status, answer = ask(target, method, path, payload)
            if status not in _PERMITTED or (payload is body and status != 200):
                yield f"{method} {path} with {text[:4]!r}...: {status} {str(answer)[:100]}"


def batch_of(**conditions: Any) -> Attack:
    """A batch of 100 requests with these conditions."""

    def run(target: Target) -> Iterator[str]:
        request = {"history": _HISTORY, "k": 100, **conditions}
        status, answer = ask(target, "POST", "/v1/recommend/batch", {"requests": [request] * 100})
        if status not in _PERMITTED:
            yield f"a batch of {conditions}: {status} {str(answer)[:100]}"

    return run


def metrics_flood(target: Target) -> Iterator[str]:
    """Flood /metrics without a key, while an operator activates and rolls back."""
    with _other_machine() as pool:
        metrics = itertools.repeat(b"GET /metrics HTTP/1.1\r\nHost: abuse\r\n\r\n")
        flood = pool.submit(crowd, target, 320, metrics)
        time.sleep(0.5)
        for call, body in (
            ("activate", {"version": "second", "force": True}),
            ("rollback", {"version": "second"}),
        ):
            status, answer = ask(target, "POST", f"/admin/{call}", body)
            if status != 200:
                yield f"POST /admin/{call} in a flood of /metrics: {status} {answer}"
        flood.result()


def large_rules(target: Target) -> Iterator[str]:
    """Set the largest rules that are accepted, twice, and restart the service."""
    for size in (950_000, 450_000, 200_000, 100_000):
        for name in ("before", "large"):
            each = {"filter": {"brand": {"equals": "b" * (size // 95)}}}
            status, _ = ask(
                target, "PUT", "/v1/rules", {"rules": {f"{name} {number}": each for number in range(90)}}
            )
        if status == 200:
            break
    target.restart()
    kept = ask(target, "GET", "/v1/rules")[1].get("rules", {})
    if len(kept) != 90:
        yield f"90 rules of {size} bytes were acknowledged ({status}); after a restart {len(kept)} are there"


def many_rules(target: Target) -> Iterator[str]:
    """Send requests that name 20 rules of 49 values."""
    values = {f"r{n}": {"filter": {"title": {"any_of": [f"{n} {v}" for v in range(49)]}}} for n in range(20)}
    status, _ = ask(target, "PUT", "/v1/rules", {"rules": values})
    body = {"history": _HISTORY, "rules": list(values)}
    for _ in range(20 if status == 200 else 0):
        if (status := ask(target, "POST", "/v1/recommend", body)[0]) != 200:
            yield f"a request that names 20 rules: {status}"


def repeated_rollback(target: Target) -> Iterator[str]:
    """Send one rollback of rules twice, as a proxy may."""
    ask(target, "PUT", "/v1/rules", {"rules": {}})
    rules = ask(target, "PUT", "/v1/rules", {"rules": {"newest": RULES["in stock"]}})[1]
    body = {"since": rules.get("since")}
    first, _ = ask(target, "POST", "/v1/rules/rollback", body)
    second, _ = ask(target, "POST", "/v1/rules/rollback", body)
    kept = ask(target, "GET", "/v1/rules")[1]["rules"]
    if first != 200 or kept:
        yield f"POST /v1/rules/rollback sent twice ({first}, {second}) leaves the rules {list(kept)}"


def withdrawals(calls: int, items: int, form: str) -> Attack:
    """Withdraw thousands of unknown items; changes of items have to be accepted afterwards."""

    def run(target: Target) -> Iterator[str]:
        for call in range(1 if target.quick else calls):
            ids = (form.format(call, number) for number in range(items))
            lines = (json.dumps({"id": item_id, "method": "DELETE"}, ensure_ascii=False) for item_id in ids)
            yield from _bulk(target, "\n".join(lines).encode())
        yield from _still_changes(target)

    return run


def _still_changes(target: Target) -> Iterator[str]:
    for method, path in (("PUT", "/v1/items/fresh"), ("PATCH", "/v1/items/i0003")):
        status, answer = ask(target, method, path, {"features": {"price": 2}, "fields": {"stock": 1}})
        if status != 200:
            yield f"{method} {path} after many withdrawals: {status} {answer}"


def late_appends(target: Target) -> Iterator[str]:
    """Append events while the store is locked until their calls give up, and then forget the user."""

    def append(number: int) -> int:
        events = [
            {"event_id": f"{number}-{n}", "user_id": "gone", "item_id": "i0001", "kind": "view"}
            for n in range(500)
        ]
        return target.exchange(json_request("POST", "/v1/events", {"events": events}))[0]

    lock = sqlite3.connect(target.folder / "history.sqlite", isolation_level=None)
    append(0)
    lock.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(20) as pool:
        answers = set(pool.map(append, range(1, 20)))
    lock.execute("COMMIT")
    lock.close()
    end = time.monotonic() + 20.0  # the circuit of the store is open for a while
    while (status := ask(target, "DELETE", "/v1/users/gone")[0]) != 200 and time.monotonic() < end:
        time.sleep(0.5)
    if status != 200:
        yield f"DELETE /v1/users/gone is answered with {status} after appends that timed out"
    time.sleep(2.0)
    _, answer = ask(target, "GET", "/v1/users/gone")
    if "i0001" in json.dumps(answer):
        yield f"/v1/users/gone is back after DELETE and appends answered with {answers}: {str(answer)[:100]}"


GUARDED = {"metrics_open": "true"}
_SHORTEST = b"GET / HTTP/1.1\r\n\r\n" * 14_000
# The attacks by name, with settings of their service.
ATTACKS: dict[str, tuple[Attack, dict[str, str]]] = {
    "bulk_bombs": (bulk_bombs, {}),
    "padded_items": (padded_items, {}),
    "blank_items": (blank_items, {}),
    "unmet_caps": (batch_of(cap=_CAPS, diversity=1.0), {}),
    "made_up_cursors": (batch_of(cursor="first~0~0~5~fe967699"), {}),  # the cursor is behind a score of -1e38
    "metrics_flood": (metrics_flood, GUARDED),
    "large_rules": (large_rules, {}),
    "many_rules": (many_rules, {}),
    "repeated_rollback": (repeated_rollback, {}),
    "long_ids": (withdrawals(4, 7_000, chr(0x1F600) * 500 + "{}-{}"), {}),
    "unknown_withdrawals": (withdrawals(6, 10_000, "n{}-{}"), {}),
    "late_appends": (late_appends, {"write_timeout": "0.3"}),
    "endless_trailers": (plain(crowd, 1, _trailers), {}),
    "one_byte_chunks": (plain(crowd, 4, _chunks), {}),
    "large_bodies": (plain(crowd, 1, _large_bodies), {}),
    "wrong_keys": (plain(crowd, 4, _guesses), {}),
    "open_paths": (plain(crowd, 320, _open_paths), GUARDED),
    "overload": (plain(crowd, 400, lambda target: itertools.repeat(_recommend(target))), {}),
    "pipelining": (plain(crowd, 50, lambda target: itertools.repeat(_recommend(target)), at_once=16), {}),
    "pipelined_heads": (plain(held, 60, _SHORTEST, more=_SHORTEST), {}),
    "unread_batches": (plain(held, 60, _batch), {}),
    "slow_readers": (plain(held, 200, _batch, read=100), {}),
    "half_sent_bodies": (plain(held, 2_000, wire("/v1/recommend", b" " * 64_000, None, "", 65_000)), {}),
    "half_sent_with_key": (plain(held, 2_000, _half_sent), {}),
    "slow_heads": (plain(held, 1_000, b"GET /livez HTTP/1.1\r\nX: ", more=b"y"), {}),
    "kept_connections": (plain(held, 3_000, b"GET /livez HTTP/1.1\r\nHost: abuse\r\n\r\n"), {}),
}
