"""Users of events without one: who logs in during the session, else the session."""

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.data.conftest import Prepare, prepare_as
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append

START = 1_700_000_000
HEADER = "user_id,sid,item_id,timestamp\n"
Row = tuple[str, str, str, int]


def csv(rows: list[Row]) -> str:
    return HEADER + "".join(f"{user},{session},{item},{time}\n" for user, session, item, time in rows)


def naive(rows: list[Row], gap: float) -> dict[str, list[str]]:
    """Items of each user in order of time: a loop over the sessions."""
    users: dict[str, list[tuple[int, int, str]]] = {}
    for session in {row[1] for row in rows}:
        mine = sorted(
            (time, place, user, item) for place, (user, sid, item, time) in enumerate(rows) if sid == session
        )
        visits = [mine[:1]]
        for before, after in pairwise(mine):
            if after[0] - before[0] > gap:
                visits.append([])
            visits[-1].append(after)
        for number, visit in enumerate(visits, 1):
            stranger = f"session:{session}" + f"#{number}" * (number > 1) if session else None
            for at, (time, place, user, item) in enumerate(visit):
                # The next user, else the last one.
                others = [*visit[at:], *visit[at::-1]] if session else []
                known = next((other for _, _, other, _ in others if other), None)
                if name := user or known or stranger:
                    users.setdefault(name, []).append((time, place, item))
    return {user: [item for *_, item in sorted(events)] for user, events in users.items()}


@pytest.mark.parametrize(("seed", "gap"), [(0, None), (1, "2m"), (2, "1h"), (3, "90s")])
def test_events_without_a_user_are_of_who_logs_in_or_of_a_stranger(
    prepared: Prepare, seed: int, gap: str | None
) -> None:
    draw = random.Random(seed)
    rows = [
        (
            draw.choice(["", "", "u1", "u2"]),
            draw.choice(["", *"abcd"]),
            draw.choice("xyz"),
            START + draw.randrange(900),
        )
        for _ in range(60)
    ]
    data = prepared(csv(rows), {"columns.session": "sid", "filters.session_gap": gap, "on_bad": "drop=any"})
    found = {
        data.users.id(user): data.item_ids.ids(data.history(user, "end").tolist())
        for user in range(len(data.users))
    }
    assert found == naive(rows, {None: 9e9, "2m": 120, "1h": 3600, "90s": 90}[gap])
    homeless = sum(not user and not session for user, session, *_ in rows)
    assert [(bad.kind, bad.count) for bad in data.manifest.bad_rows] == [("null user", homeless)]


def naive_baskets(data: PreparedData, user: int, sessions: list[int]) -> list[list[str]]:
    """The items of each session of a user, by the numbers of the user's events."""
    items = data.item_ids.ids(data.history(user, "end").tolist())
    return [
        [str(item) for item, number in zip(items, sessions, strict=True) if number == session]
        for session in range(max(sessions, default=-1) + 1)
    ]


def test_events_keep_the_session_they_are_of(prepared: Prepare) -> None:
    """Two users have an order 1, an order goes on between the events of another, and some have none."""
    rows = [
        ("u1", "1", "a", START),
        ("u1", "2", "b", START + 60),
        ("u1", "1", "c", START + 120),
        ("u1", "", "d", START + 180),
        ("u2", "1", "e", START),
        ("u1", "1", "f", START + 7_200),
    ]
    for gap, expected in ((None, [["a", "c", "f"], ["b"]]), ("1h", [["a", "c"], ["b"], ["f"]])):
        data = prepared(csv(rows), {"columns.session": "sid", "filters.session_gap": gap})
        assert data.sessions is not None
        first, second = np.split(np.asarray(data.sessions), data.offsets[1:-1])
        assert naive_baskets(data, 0, first.tolist()) == expected
        assert first.tolist()[3] == -1
        assert second.tolist() == [0]
    assert prepared(csv(rows)).sessions is None


@pytest.mark.parametrize("kinds", [{}, {"buy": "target", "skip": "negative"}])
def test_sessions_of_an_appended_log_are_those_of_the_whole_log(
    tmp_path: Path, kinds: dict[str, str]
) -> None:
    draw = random.Random(5)
    rows = [
        (draw.choice(["u1", "u2", ""]), f"{time // 40}", draw.choice("xyz"), START + time, kind)
        for time in range(0, 800, 5)
        for kind in [draw.choice(["buy", "buy", "skip"] if kinds else ["buy"])]
    ]
    names = ["user_id", "sid", "item_id", "timestamp", "event"]
    log = pl.DataFrame([(user or None, *rest) for user, *rest in rows], schema=names, orient="row")
    settings = {"columns": {"session": "sid", "kind": "event" if kinds else None}, "kinds": kinds}
    for name, some in (("whole", log), ("first", log.head(80)), ("last", log.tail(80))):
        some.write_parquet(tmp_path / f"{name}.parquet")
    for name in ("whole", "first"):
        prepare_as(tmp_path / name, source=tmp_path / f"{name}.parquet", **settings)
    append(tmp_path / "last.parquet", tmp_path / "first")
    whole, grown = (PreparedData.open(tmp_path / name) for name in ("whole", "first"))
    assert whole.sessions is not None
    assert grown.sessions is not None
    assert whole.sessions.max() > 3
    np.testing.assert_array_equal(grown.sessions, whole.sessions)
    assert grown.fingerprint == whole.fingerprint


@pytest.mark.parametrize("name", ["sid", "session_id"])
def test_a_log_may_have_sessions_alone(prepared: Prepare, name: str) -> None:
    text = f"{name},item_id,timestamp\n7,x,1\n7,y,2\n8,x,1\n,y,4\n"
    data = prepared(text, {"columns.session": name, "on_bad": "drop"})
    assert data.users.ids(range(2)) == ["session:7", "session:8"]
    assert (data.manifest.columns.user, data.manifest.columns.session) == (name, name)


def test_ids_of_users_keep_their_type(tmp_path: Path) -> None:
    """Integers beside strangers are texts, as their ids are; without a stranger they stay integers."""
    for sessions, users, strangers, people in (
        (["a", "b"], ["7", "session:b"], "1 are of 1 stranger", "0 of users who log in"),
        (["a", "a"], [7], "0 are of 0 strangers", "1 of users who log in"),
    ):
        frame = pl.DataFrame({"user_id": [7, None], "s": sessions, "item_id": [1, 2], "timestamp": [5, 4]})
        frame.write_parquet(tmp_path / "log.parquet")
        report = prepare_as(tmp_path / "p", source=tmp_path / "log.parquet", columns__session="s")
        opened = PreparedData.open(tmp_path / "p")
        assert opened.users.ids(range(len(opened.users))) == users
        told = f"of 1 event without a user {strangers} (users session:...), and {people}"
        assert any(told in one for one in report.warnings)


def test_later_events_have_the_sessions_of_a_log_or_of_a_dump(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(csv([("", "a", "x", START), ("u", "b", "x", START)]))
    prepare_as(tmp_path / "p", source=tmp_path / "log.csv", columns__session="sid")
    for name in ("sid", "session_id"):
        later = {"user_id": [None, None, "v"], name: ["a", "c", None], "item_id": "y", "timestamp": START + 5}
        pl.DataFrame(later).write_parquet(tmp_path / "later.parquet")
        append(tmp_path / "later.parquet", tmp_path / "p")
        data = PreparedData.open(tmp_path / "p")
        assert data.users.ids(range(4)) == ["session:a", "session:c", "u", "v"]
        assert data.item_ids.ids(data.history(0, "end").tolist()) == ["x", "y"]
