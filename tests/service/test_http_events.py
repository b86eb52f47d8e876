"""`/v1/events` and `/v1/users`: stored histories of users and sessions, and the kinds of events."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

import turret
from tests.conftest import contents
from tests.support.service_app import ADMIN, ids, post_events, recommended, sample, serving
from turret.data.kinds import Kind
from turret.data.vocabulary import plain_id
from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.tower.bundle.publish import publish


def event(
    event_id: int | str, user_id: int | str = 7, item_id: int | str = 101, **more: Any
) -> dict[str, Any]:
    return {"event_id": event_id, "user_id": user_id, "item_id": item_id, **more}


def test_an_event_is_in_the_users_next_answer(fresh_client: TestClient) -> None:
    stored = post_events(fresh_client, event("a"), event("b", item_id="102"))
    assert stored == {"stored": 2, "duplicates": 0}
    after = recommended(fresh_client, user_id="7")
    assert after["items"] == recommended(fresh_client, history=[101, 102])["items"]


def test_an_answer_counts_the_times_that_were_moved_and_the_events_that_are_too_old(bundles: Path) -> None:
    sent = [event("a", time=time.time() + 9e6), event("b", time="0001-01-01"), event("c", time=1), event("d")]
    with serving(bundles, keep_days=2) as client:
        assert post_events(client, *sent) == {"stored": 2, "duplicates": 0, "clamped": 2, "expired": 2}


def test_events_of_unknown_items_are_stored_with_a_warning(fresh_client: TestClient) -> None:
    """With their number, and the first items; ids of a history are of any text."""
    items: list[int | str] = ["i1", "i1", 101, "x" * 200, 5, "\n", "102"]
    answer = post_events(fresh_client, *(event(n, item_id=item) for n, item in enumerate(items)))
    assert (answer["stored"], answer["duplicates"]) == (7, 0)
    start, end = answer["warning"].split("xxx", 1)
    assert start == "5 of 7 events are of items that version v1 lacks: 'i1', '"
    assert end.endswith(", '5', and 1 more; check the ids, or put these items")
    assert len(end) < 130


def test_of_many_events_the_newest_thousand_are_shown(fresh_client: TestClient) -> None:
    for numbers in (range(1000), range(1000, 1005)):
        post_events(fresh_client, *(event(n, item_id=n, time=n) for n in numbers))
    answer = fresh_client.get("/v1/users/7").json()
    assert answer["total"] == 1005
    assert [one["item_id"] for one in answer["events"]] == list(range(5, 1005))


def test_what_is_stored_of_a_user_is_shown(fresh_client: TestClient) -> None:
    post_events(fresh_client, event("e", "a/b é", "101", time=0, kind="view"))
    shown = {"event_id": "e", "item_id": "101", "time": "1970-01-01T00:00:00.000+00:00", "kind": "view"}
    answer = fresh_client.get("/v1/users/a%2Fb%20%C3%A9").json()
    assert answer == {"user_id": "a/b é", "total": 1, "events": [shown]}


def test_an_event_keeps_the_id_of_its_answer(fresh_client: TestClient) -> None:
    """The first event of an id counts, with its answer, however often others of the id are sent."""
    name = "0190a7b2c4d8" + "0123456789abcdef0123"
    assert post_events(fresh_client, event("e", answer_id=name))["stored"] == 1
    assert post_events(fresh_client, event("e", answer_id="f" * 32), event("e"))["duplicates"] == 2
    (shown,) = fresh_client.get("/v1/users/7").json()["events"]
    assert shown["answer_id"] == name


def test_new_events_that_name_an_answer_are_counted(fresh_client: TestClient) -> None:
    """Not those that were stored before, nor others of their request, as nobody knows which are new."""
    post_events(fresh_client, event("e", answer_id="a" * 32), event("f"))
    post_events(fresh_client, event("e", answer_id="a" * 32))
    post_events(fresh_client, event("e", answer_id="a" * 32), event("g", answer_id="a" * 32))
    post_events(fresh_client, event("h", answer_id="a" * 32))
    counted = sample(fresh_client.get("/metrics").text, 'turret_outcome_events_total{kind="other"}')
    assert counted == 2


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0" * 31,
        "0" * 33,
        "A" * 32,
        "0" * 31 + "\n",
        "0" * 32 + "\n",
        "\u0660" * 32,
        "g" * 32,
        7,
        ["0" * 32],
    ],
)
def test_an_event_with_an_answer_that_is_no_id_is_refused(fresh_client: TestClient, name: object) -> None:
    answer = fresh_client.post("/v1/events", json={"events": [event("e", answer_id=name)]})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "events.0.answer_id")
    assert answer.json()["error"]["message"] in (
        "send it unchanged from an answer, or leave it out",
        "send a text",
    )
    assert fresh_client.get("/v1/users/7").json()["total"] == 0


def test_a_forgotten_user_is_a_new_one(fresh_client: TestClient) -> None:
    post_events(fresh_client, *(event(number) for number in range(3)), event("other", user_id=8))
    assert fresh_client.delete("/v1/users/7").json() == {"user_id": "7", "deleted": 3}
    assert fresh_client.get("/v1/users/7").json()["total"] == 0
    assert fresh_client.get("/v1/users/8").json()["total"] == 1
    assert recommended(fresh_client, user_id=7, k=1)["items"][0]["source"] == "popular"


def test_a_random_user_has_stored_events(fresh_client: TestClient) -> None:
    missing = fresh_client.get("/v1/random-user")
    assert missing.status_code == 404
    assert "turret history load" in missing.json()["error"]["message"]
    post_events(fresh_client, event(1, "a/b"), event(1, "ü"))
    drawn = {fresh_client.get("/v1/random-user").json()["user_id"] for _ in range(40)}
    assert drawn == {"a/b", "ü"}


@pytest.fixture
def decoding(settings: Settings) -> Iterator[TestClient]:
    """Paths are decoded once, as uvicorn does; the test client alone does it twice."""
    app = create_app(settings)

    async def decoded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = unquote(scope["raw_path"].decode("ascii"))
        await app(scope, receive, send)

    with TestClient(decoded) as client:
        yield client


def test_a_path_that_is_not_utf_8_names_nobody(decoding: TestClient) -> None:
    """Else all of them would be one user, whom anybody of them could read and delete."""
    post_events(decoding, event(1, "\ufffd"), event(1, "a\ufffdb"))
    for path in ("%ff", "a%FEb", "%ED%A0%80", "%C0%AF", "%F4%90%80%80", "%E2%82", "%C3%A9%C3"):
        for method in ("GET", "DELETE"):
            answer = decoding.request(method, f"/v1/users/{path}")
            assert (answer.status_code, answer.json()["error"]["field"]) == (422, "user_id"), path
            assert "UTF-8" in answer.json()["error"]["message"]
    for user in ("%EF%BF%BD", "a%EF%BF%BDb"):
        assert decoding.get(f"/v1/users/{user}").json()["total"] == 1


# The path of a user and the user.
USERS = [
    *(("%EF%BF%BD", "\ufffd"), ("a%2Fb", "a/b"), ("a/b", "a/b"), ("a%252Fb", "a%2Fb"), ("%25ff", "%ff")),
    *(("a+b", "a+b"), ("a%20b", "a b"), ("a%00b", "a\0b"), ("%F0%9F%8E%AC", "🎬"), ("e%CC%81", "e\u0301")),
    *(("a%zz", "a%zz"), ("..%2F..%2Fetc", "../../etc"), ("a%0D%0AX:%20y", "a\r\nX: y"), ("%0Aa", "\na")),
]


def test_a_path_is_decoded_once_and_names_one_user(decoding: TestClient) -> None:
    post_events(decoding, event(1, "other"), *(event(1, user + "?") for _, user in USERS))
    for path, user in USERS:
        post_events(decoding, event(1, user))
        plain = plain_id(user)
        assert decoding.get(f"/v1/users/{path}").json()["user_id"] == plain
        assert decoding.delete(f"/v1/users/{path}").json() == {"user_id": plain, "deleted": 1}
    assert decoding.get("/v1/users/other").json()["total"] == 1


# ---- Kinds of events


DAY = 86_400
KINDS = {
    "view": Kind(role="signal"),
    "buy": Kind(consume=True),
    "refill": Kind(consume=2),
    "return": Kind(role="negative", consume=True),
    "banner": Kind(role="ignored"),
}
NOW = time.time()
# One item of each kind, the day of each event before now, and one without a kind.
USED = [("view", 9), ("refill", 3), ("buy", 2), ("banner", 2), ("refill", 1), ("return", 1), (None, 0)]
ITEMS = range(101, 101 + len(USED))
EVENTS = [
    {"event_id": item, "user_id": 7, "item_id": item, "kind": kind, "time": NOW - days * DAY}
    for item, (kind, days) in zip(ITEMS, USED, strict=True)
]
HISTORY: dict[str, Any] = {
    "history": [{"item": item, "kind": kind} for item, (kind, _) in zip(ITEMS, USED, strict=True)],
    "history_times": [event["time"] for event in EVENTS],
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[TestClient]:
    publish(tmp_path, contents(kinds=KINDS, default_kind="view", exclude_seen=None))
    with serving(tmp_path) as client:
        yield client


def left_out(client: TestClient, **body: Any) -> set[Any]:
    return set(ITEMS) - set(ids(recommended(client, k=60, **body)))


def test_events_that_name_an_answer_are_counted_by_kind(shop: TestClient) -> None:
    post_events(shop, event("n", kind="view", answer_id="a" * 32), event("m", answer_id="b" * 32))
    text = shop.get("/metrics").text
    counts = [sample(text, f'turret_outcome_events_total{{kind="{kind}"}}') for kind in ("view", "other")]
    assert counts == [1, 1]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, {103, 105, 106}),
        (True, {101, 102, 103, 105, 106, 107}),
        (False, set()),
        ([], set()),
        (["view"], {101, 107}),
        (["refill", "return"], {102, 105, 106}),
    ],
)
def test_an_answer_leaves_out_the_items_of_kinds_that_consume_or_that_are_named(
    shop: TestClient, seen: Any, expected: set[int]
) -> None:
    """Items that are consumed for some days come again after these; of stored events and given ones alike."""
    post_events(shop, *EVENTS)
    assert left_out(shop, user_id=7, exclude_seen=seen) == expected
    assert left_out(shop, **HISTORY, exclude_seen=seen) == expected
    if seen is None:  # without times, all is of now; later, less
        assert left_out(shop, history=HISTORY["history"]) == expected | {102}
        assert left_out(shop, **HISTORY, at=NOW + 5 * DAY) == {103, 106}
        assert left_out(shop, history=[101, 102]) == set()


def test_a_tower_reads_the_events_of_targets_and_signals(shop: TestClient) -> None:
    post_events(shop, *EVENTS)
    read = [one for one in HISTORY["history"] if one["kind"] not in ("banner", "return")]
    expected = recommended(shop, history=read, exclude_seen=False)["items"]
    for body in (HISTORY, {"user_id": 7}):
        assert recommended(shop, **body, exclude_seen=False)["items"] == expected
    views = [one["item"] for one in read]  # the tower reads kinds, and these have the default one
    assert recommended(shop, history=views, exclude_seen=False)["items"] != expected
    batched = shop.post("/v1/recommend/batch", json={"requests": [{**HISTORY, "exclude_seen": False}, {}]})
    assert batched.json()["results"][0]["items"] == expected
    returned = recommended(shop, history=[{"item": 106, "kind": "return"}], k=60)
    assert {item["source"] for item in returned["items"]} == {"popular"}
    assert 106 not in ids(returned)


@pytest.mark.parametrize("seen", [None, True, False, ["refill", "return"]])
def test_the_python_api_answers_as_the_service(shop: TestClient, tmp_path: Path, seen: Any) -> None:
    model = turret.load(tmp_path)
    answer = recommended(shop, history=[1, *HISTORY["history"]], exclude_seen=seen, k=60)
    found = model.recommend([1, *HISTORY["history"]], k=60, exclude_seen=seen)
    assert [(one.id, one.score) for one in found] == [(one["id"], one["score"]) for one in answer["items"]]
    for wrong, words in (
        ({"item": 1, "kind": "x"}, "has no kind 'x'"),
        ({"itm": 1}, "is no event; give an id"),
    ):
        with pytest.raises(ValueError, match=words):
            model.recommend([wrong])


@pytest.mark.parametrize("duplicates", ["keep", "last"])
def test_a_version_without_kinds_leaves_out_the_items_of_any_kind(tmp_path: Path, duplicates: str) -> None:
    publish(tmp_path, contents(duplicates=duplicates))
    history: list[Any] = [{"item": 101, "kind": "view"}, 102]
    with serving(tmp_path) as client:
        answer = ids(recommended(client, history=history, k=60))
    assert answer == [one.id for one in turret.load(tmp_path).recommend(history, k=60)]
    assert {101, 102}.isdisjoint(answer)


@pytest.mark.parametrize(
    ("path", "body", "field", "names"),
    [
        ("events", {"events": [EVENTS[0], EVENTS[1] | {"kind": "purchse"}]}, "events.1.kind", list(KINDS)),
        ("recommend", {"history": [101, {"item": 1, "kind": "x"}]}, "history.1.kind", list(KINDS)),
        ("recommend", {"exclude_seen": ["buy", "x"]}, "exclude_seen.1", ["view", "buy", "refill", "return"]),
        ("recommend", {"exclude_seen": ["banner"]}, "exclude_seen.0", ["view", "buy", "refill", "return"]),
    ],
)
def test_an_unknown_kind_is_refused_with_the_known_ones(
    shop: TestClient, path: str, body: Any, field: str, names: list[str]
) -> None:
    answer = shop.post(f"/v1/{path}", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["field"]) == (422, field)
    assert error["message"] == f"version v1 has no such kind; send one of {', '.join(names)}"
    assert shop.get("/v1/users/7").json()["total"] == 0


def test_all_unknown_kinds_of_a_call_are_named(shop: TestClient) -> None:
    kinds = ["x", "view", "y"]
    events = shop.post("/v1/events", json={"events": [EVENTS[0] | {"kind": kind} for kind in kinds]}).json()
    body = {"history": [{"item": 101, "kind": kind} for kind in kinds], "exclude_seen": kinds}
    asked = shop.post("/v1/recommend", json=body).json()
    found = [[one["field"] for one in (told["error"], *told["others"])] for told in (events, asked)]
    places = ["history.0.kind", "history.2.kind", "exclude_seen.0", "exclude_seen.2"]
    assert found == [["events.0.kind", "events.2.kind"], places]


@pytest.mark.parametrize("default", [None, "view"])
def test_events_that_training_leaves_out_by_their_kind_are_stored_with_a_warning(
    tmp_path: Path, default: str | None
) -> None:
    made = contents(default_kind=default, exclude_seen=None)
    publish(tmp_path, replace(made, card=made.card.model_copy(update={"kinds": KINDS})))
    sent = [
        {**EVENTS[0], "event_id": place, "kind": kind} for place, kind in enumerate(("banner", "buy", " "))
    ]
    message = f"{1 if default else 2} of 3 events have no kind, or one that training leaves out"
    with serving(tmp_path) as client:
        assert post_events(client, *sent)["warning"].startswith(message)
        assert "warning" not in post_events(client, EVENTS[0])
        assert client.get("/v1/users/7").json()["events"][2]["kind"] is None
        assert left_out(client, history=[101], exclude_seen=True) == {101}
        assert left_out(client, history=[101]) == set()
        described = client.get("/v1/version").json()
        assert described["kinds"]["refill"] == {"role": "target", "weight": 1.0, "consume": 2.0}


def test_pages_follow_each_other_while_consumed_items_come_back(shop: TestClient) -> None:
    """An answer leaves out the items that were left out when the first page was requested."""
    body = {**HISTORY, "k": 20, "exclude_seen": None, "history_times": [NOW - 2 * DAY + 600] * len(USED)}
    pages = [recommended(shop, **body)]
    while "cursor" in pages[-1]:
        pages.append(recommended(shop, **body, cursor=pages[-1]["cursor"]))
    found = [item for page in pages for item in ids(page)]
    assert len(found) == len(set(found)) == 56
    assert all(
        first["items"][-1]["score"] >= later["items"][0]["score"] for first, later in pairwise(pages[:-1])
    )


def test_a_version_without_kinds_leaves_out_the_kinds_that_are_named(client: TestClient) -> None:
    history = [{"item": 101, "kind": "buy"}, 102, {"item": 103, "kind": "view"}]
    assert left_out(client, history=history, exclude_seen=["buy", "like"]) == {101}
    assert recommended(client, history=history) == recommended(client, history=[101, 102, 103])


def test_a_version_with_kinds_is_compared_with_one_without(tmp_path: Path) -> None:
    publish(tmp_path, contents())
    publish(tmp_path, contents("v2", kinds=KINDS, default_kind="view", exclude_seen=None))
    with serving(tmp_path) as client:
        post_events(client, *EVENTS)
        assert client.post("/admin/comparison", json={"version": "v2"}, headers=ADMIN).status_code == 200
        for body in ({"user_id": 7}, HISTORY):
            answer = client.post("/admin/comparison/recommend", json={**body, "k": 50}, headers=ADMIN).json()
            shown = [{*ITEMS} - {*ids(answer[side])} for side in ("live", "other")]
            assert shown[0] == {*ITEMS}
            assert {103, 105, 106} <= shown[1] < {*ITEMS}
        measured = client.get("/admin/comparison/overlap?users=1&k=50", headers=ADMIN).json()
        assert (measured["source"], measured["overlap_mean"]) == ("users", answer["overlap"])
        unknown = {"history": [{"item": 101, "kind": "x"}]}
        refused = client.post("/admin/comparison/recommend", json=unknown, headers=ADMIN).json()["error"]
        assert "version v2 has no such kind" in refused["message"]


# --- Sessions


def sent(event_id: int, item: int, **more: Any) -> dict[str, Any]:
    return {"event_id": event_id, "item_id": item, "time": NOW - 100 + event_id, **more}


def test_a_stranger_is_recommended_by_the_session_and_is_somebody_after_the_login(
    fresh_client: TestClient,
) -> None:
    def items(user: str) -> list[int]:
        return [one["item_id"] for one in fresh_client.get(f"/v1/users/{user}").json()["events"]]

    def answered(**body: Any) -> Any:
        return recommended(fresh_client, **body)["items"]

    strangers = [sent(1, 101, session_id="s"), sent(2, 102, session_id="s")]
    assert post_events(fresh_client, *strangers, sent(3, 103, user_id="u"))["stored"] == 3
    assert items("session:s") == [101, 102]
    for body, history in (
        ({"session_id": "s"}, [101, 102]),
        ({"user_id": "session:s"}, [101, 102]),
        ({"user_id": "u", "session_id": "s"}, [101, 102, 103]),
    ):
        assert answered(**body) == answered(history=history)
    login = sent(4, 104, user_id="u", session_id="s")
    assert post_events(fresh_client, login) == {"stored": 1, "duplicates": 0, "moved": 2}
    assert (items("u"), items("session:s")) == ([101, 102, 103, 104], [])
    again = post_events(fresh_client, strangers[1], login)  # the client hasn't had the answer
    assert again == {"stored": 1, "duplicates": 1, "moved_duplicates": 1}
    assert answered(user_id="u") == answered(history=[101, 102, 103, 104])
    assert fresh_client.delete("/v1/users/session:s").json()["deleted"] == 0


def test_the_first_user_of_a_session_gets_its_events(fresh_client: TestClient) -> None:
    """Also within one call, and each session by itself."""
    strangers = [sent(1, 101, session_id=1), sent(2, 102, session_id=2)]
    logins = [sent(3, 103, session_id=1, user_id="a"), sent(4, 104, session_id="1", user_id="b")]
    assert post_events(fresh_client, *strangers, *logins) == {"stored": 4, "duplicates": 0, "moved": 1}
    totals = [fresh_client.get(f"/v1/users/{user}").json()["total"] for user in ("a", "b", "session:2")]
    assert totals == [2, 1, 1]
