"""Bodies below the limit that cost more than they should."""

import time
from collections import Counter
from collections.abc import Callable

from benchmarks.abuse_attacks.attack import Outcome, Scene
from benchmarks.abuse_attacks.target import HISTORY
from benchmarks.abuse_attacks.wire import asked_on, dial, post, statuses

_BYTES = 980_000
_RECOMMEND, _BATCH, _EVENTS = "/v1/recommend", "/v1/recommend/batch", "/v1/events"

_WRONG_LIST = b"[%b]" % b",".join([b"[]"] * 1000)
_WRONG_REQUEST = b'{"history":%b,"exclude":%b,"history_times":%b}' % ((_WRONG_LIST,) * 3)


def _list(field: str, value: str) -> bytes:
    """A list of as many values as there is room for."""
    values = ",".join([value] * (_BYTES // (len(value) + 1)))
    return b'{"%b":[%b]}' % (field.encode(), values.encode())


def _keys(value: str) -> str:
    count = _BYTES // (len(value) + 12)
    return ",".join(f'"k{number:07d}":{value}' for number in range(count))


# Path and body by name; made when they are needed, as all together are some 30 MB.
BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "history of null": (_RECOMMEND, lambda: _list("history", "null")),
    "history of true": (_RECOMMEND, lambda: _list("history", "true")),
    "history of lists": (_RECOMMEND, lambda: _list("history", "[]")),
    "history_times of null": (_RECOMMEND, lambda: _list("history_times", "null")),
    "history_times of texts": (_RECOMMEND, lambda: _list("history_times", '"x"')),
    "exclude of objects": (_RECOMMEND, lambda: _list("exclude", "{}")),
    "batch of numbers": (_BATCH, lambda: _list("requests", "1")),
    "batch of small objects": (_BATCH, lambda: _list("requests", "{}")),
    "batch of unknown fields": (_BATCH, lambda: _list("requests", '{"x":1}')),
    "batch of wrong lists": (
        _BATCH,
        lambda: b'{"requests":[%b]}' % b",".join([_WRONG_REQUEST] * 100),
    ),
    "events of numbers": (_EVENTS, lambda: _list("events", "1")),
    "events of small objects": (_EVENTS, lambda: _list("events", "{}")),
    "events of wrong ids": (_EVENTS, lambda: _list("events", '{"event_id":[],"user_id":{},"item_id":null}')),
    "unknown fields": (_RECOMMEND, lambda: b"{%b}" % _keys("1").encode()),
    "many features": (_RECOMMEND, lambda: b'{"features":{%b}}' % _keys("1").encode()),
    "a cap of wrong counts": (_RECOMMEND, lambda: b'{"cap":{%b}}' % _keys("-1").encode()),
    "a filter of many values": (
        _RECOMMEND,
        lambda: b'{"filter":{"title":{"any_of":[%b]}}}' % b",".join([b'"x"'] * (_BYTES // 4)),
    ),
    "a filter of many fields": (_RECOMMEND, lambda: b'{"filter":{%b}}' % _keys("{}").encode()),
    "lists in lists": (_RECOMMEND, lambda: b"[" * (_BYTES // 2) + b"]" * (_BYTES // 2)),
    "objects in objects": (_RECOMMEND, lambda: b'{"a":' * (_BYTES // 6) + b"1" + b"}" * (_BYTES // 6)),
    "lists in lists below the depth": (_RECOMMEND, lambda: _list("x", "[" * 30 + "]" * 30)),
    "a text of colons": (_RECOMMEND, lambda: b'{"user_id":"%b"}' % (b":" * _BYTES)),
    "objects beside a colon in a text": (
        _RECOMMEND,
        lambda: b'{"user_id":":","x":[%b]}' % b",".join([b'{"a":1,"b":2}'] * (_BYTES // 14)),
    ),
    "huge integers": (_RECOMMEND, lambda: _list("history", "9" * 400)),
    "one huge integer": (_RECOMMEND, lambda: b'{"k":%b}' % (b"9" * _BYTES)),
    "huge integers beside a colon": (
        _RECOMMEND,
        lambda: b'{"user_id":":","history":[%b]}' % b",".join([b"9" * 4000] * (_BYTES // 4001)),
    ),
    "long fractions": (_RECOMMEND, lambda: _list("history", "0." + "1" * 300)),
    "escapes": (_RECOMMEND, lambda: b'{"user_id":"%b"}' % (b"\\u00e9" * (_BYTES // 6))),
}


def wrong_bodies(scene: Scene) -> Outcome:
    """Each body twice, by one client with a key; `seconds` are those until its answer."""
    return _send_all(scene, scene.target.both)


def wrong_bodies_without_key(scene: Scene) -> Outcome:
    """The same without a key, which should cost next to nothing."""
    outcome = _send_all(scene, None)
    outcome.held = set(outcome.answers) <= {"401"}
    return outcome


def large_right_bodies(scene: Scene) -> Outcome:
    """Bodies just below the limit that are as they should be: long ids in a batch, and events."""
    ids = [f"{number:0490d}" for number in range(19)]
    batch = {"requests": [{"history": ids, "exclude": HISTORY, "k": 1}] * 100}
    events = [
        {
            "event_id": f"{number}-{'e' * 400}",
            "user_id": f"{number}-{'u' * 300}",
            "item_id": 7,
            "kind": "k" * 90,
        }
        for number in range(1000)
    ]
    answers: Counter[str] = Counter()
    end = time.monotonic() + scene.seconds
    with dial(scene.target.address) as connection:
        while time.monotonic() < end:
            for path, body in ((_BATCH, batch), (_EVENTS, {"events": events})):
                request = post(path, body, key=scene.target.both)
                answers += statuses([asked_on(connection, request)])
            time.sleep(0.2)
    return Outcome(answers, held=set(answers) <= {"200", "413", "422"})


def _send_all(scene: Scene, key: str | None) -> Outcome:
    answers: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    for name, (path, make) in BODIES.items():
        request = post(path, make(), key=key)
        for _ in range(1 if scene.quick else 2):
            time.sleep(0.02)
            with dial(scene.target.address) as connection:
                began = time.monotonic()
                answers += statuses([asked_on(connection, request)])
            seconds[name] = round(max(seconds.get(name, 0.0), time.monotonic() - began), 4)
    worst = sorted(seconds.items(), key=lambda one: -one[1])
    refused = all(status.startswith("4") for status in answers)
    return Outcome(answers, held=refused, notes={"seconds": dict(worst)})
