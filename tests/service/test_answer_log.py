"""The log of answers: its rows and files, what it drops, what it keeps, and whom it forgets."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from tests.conftest import USER_FEATURES, contents
from tests.support.service_app import ADMIN, activate, post_events, sample, serving, settings_of
from tests.support.service_calls import anew
from tests.support.service_process import Start
from turret.data.answers.form import LIVE, MINUTE, time_of, visitor_of
from turret.data.answers.log import read_answers
from turret.service.answer_log import log
from turret.service.answer_log.entries import LoggedAnswer, ShownItems, context_of
from turret.service.answer_log.files import SETTLED_MS, AnswerFiles
from turret.service.answer_log.log import AnswerLog
from turret.service.components import Components
from turret.service.errors import ServiceError
from turret.service.http.app import create_app
from turret.service.overlay.fresh import empty_overlay
from turret.service.settings import read_settings
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish

NOW = 1_714_557_600_000  # a full minute
_DAY = 86_400_000
NAME = re.compile(r"2024-05-01/\d{4}_0-[0-9a-f]{8}\.parquet")


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> int:
        return self.time


class Logged:
    """A log in a folder, with its clock and the outcomes that it has counted."""

    def __init__(self, place: Path | str, bundle: Bundle, **settings: Any) -> None:
        self.place, self.clock, self.counts, self.number = place, Clock(), Counter[str](), 0
        self.shown = ShownItems(empty_overlay(bundle), np.arange(3), np.ones(3, np.float32), "towers")
        self.files = AnswerFiles(str(place))
        self.log = AnswerLog(self.files, b"k", self._count, clock=self.clock, **settings)

    def _count(self, outcome: str, answers: int) -> None:
        self.counts[outcome] += answers

    def offer(self, count: int = 1, user: str | None = "u", time: int | None = None) -> None:
        for _ in range(count):
            time_of_answer = self.clock.time if time is None else time
            name = f"{time_of_answer:012x}{self.number:020x}"
            self.log.offer(
                LoggedAnswer(name, time_of_answer, "recommend", "v1", LIVE, user, self.shown, {}, ())
            )
            self.number += 1

    def minute(self, count: int = 1, user: str | None = "u") -> None:
        """Offer answers, and let the file of their minute appear."""
        self.offer(count, user)
        self.clock.time += MINUTE + log.LATE_MS
        self.log.turn()

    def names(self) -> list[str]:
        assert isinstance(self.place, Path)
        return sorted(path.relative_to(self.place).as_posix() for path in self.place.glob("[!.]*/*"))

    def answers(self) -> pl.DataFrame:
        assert isinstance(self.place, Path)
        return read_answers(self.place).collect().sort("answer_id")


@pytest.fixture
def bundle(published: Path) -> Bundle:
    return Bundle.open(published / "v1")


@pytest.fixture
def logged(tmp_path: Path, bundle: Bundle) -> Logged:
    return Logged(tmp_path / "log", bundle)


# ---- Rows


def test_a_row_has_the_answer_as_the_client_got_it(tmp_path: Path) -> None:
    publish(bundles := tmp_path / "bundles", contents(features=USER_FEATURES))
    key, place = "0123456789abcdef" * 2, tmp_path / "log"
    more = {"answer_log": str(place), "answer_key": key, "answer_context": "device, age,device"}
    with serving(bundles, popular="hour=1h", **more) as client:
        post_events(client, {"event_id": "e", "user_id": "ü", "item_id": 101})
        sent: list[tuple[str, dict[str, Any]]] = [
            (
                "recommend",
                {"user_id": "ü", "k": 4, "features": {"age": 3}, "pin": [{"item": 110, "position": 2}]},
            ),
            ("recommend", {"history": [101, 102], "k": 60}),
            ("recommend/batch", {"requests": [{"session_id": "s", "k": 1}, {"k": 2}]}),
            ("items/101/similar", {"k": 2}),
            ("popular", {"k": 2}),
        ]
        answers = [client.post(f"/v1/{path}", json=body).json() for path, body in sent]
        answers += [client.post("/v1/recommend", json={**sent[1][1], "k": 3}).json()]
        page = {"history": [101, 102], "k": 3, "cursor": answers[-1]["cursor"]}
        answers += [client.post("/v1/recommend", json=page).json()]
        answers[2:3] = answers[2]["results"]
    rows = {row["answer_id"]: row for row in read_answers(place).collect().to_dicts()}
    assert len(rows) == len(answers) == 8
    for answer in answers:
        row = rows[answer["answer_id"]]
        assert (row["version"], row["route"], row["rules"]) == ("v1", "live", [])
        for column, name in (("items", "id"), ("sources", "source")):
            assert row[column] == [str(item[name]) for item in answer["items"]]
        assert row["scores"] == [np.float32(item["score"]) for item in answer["items"]]
        assert row["propensities"] == [1.0] * len(answer["items"])
        assert int(row["time"].timestamp() * 1000) == time_of(answer["answer_id"])
    ordered = [rows[answer["answer_id"]] for answer in answers]
    named = ["ü", None, "session:s", *[None] * 5]
    assert [row["visitor"] for row in ordered] == [visitor_of(n, key.encode()) if n else "" for n in named]
    assert [row["call"] for row in ordered] == [*["recommend"] * 4, "similar", "popular", *["recommend"] * 2]
    for row, first in zip(ordered, [1] * 7 + [4], strict=True):
        assert row["places"] == [*range(first, first + len(row["items"]))]
    assert [json.loads(row["context"]) for row in ordered] == [{"age": 3}] + [{}] * 7


def test_an_answer_of_the_canary_is_one_of_its_route(three: Path, tmp_path: Path) -> None:
    app = create_app(settings_of(three, answer_log=str(tmp_path / "log")))
    with TestClient(app) as client:
        routes = {"canary": {"version": "v2", "share": 0.5}}
        assert client.post("/admin/routes", json=routes, headers=ADMIN).status_code == 200
        for user in range(40):
            client.post("/v1/recommend", json={"user_id": user})
        assert activate(client, "v2", force=True).status_code == 200
        client.post("/v1/recommend", json={"user_id": 0})
    text = app.state.components.metrics.export().decode()
    counts = Counter(read_answers(tmp_path / "log").collect().select("version", "route").rows())
    for (version, route), count in counts.items():
        labels = f'{{route="{route}",version="{version}"}}'
        assert sample(text, f"turret_logged_answers_total{labels}") == count
    assert counts["v2", "live"] == 1
    assert counts["v1", "live"] + counts["v2", "canary"] == 40
    assert counts["v1", "live"]
    assert counts["v2", "canary"]


@pytest.mark.parametrize("value", [[1], ["x"] * 2_000, None, {"a": 1}, "x" * 2_001])
def test_a_context_has_no_lists_and_no_long_texts(value: object) -> None:
    features = {"device": value, "country": "DE", "other": 1}
    assert context_of(features, ("country", "device", "missing")) == {"country": "DE"}


def test_a_place_behind_all_that_the_column_holds_is_the_last(logged: Logged) -> None:
    """The cursor of a page may be made up by its client."""
    logged.shown = logged.shown._replace(first_place=2**28)
    logged.minute()
    assert logged.answers()["places"].to_list() == [[2**16 - 1] * 3]


# ---- Files


def test_a_file_has_the_answers_of_a_minute_and_appears_complete(logged: Logged) -> None:
    logged.offer(3)
    logged.log.turn()
    logged.clock.time += MINUTE - 1
    logged.offer(2)
    logged.clock.time += log.LATE_MS
    logged.log.turn()
    assert logged.names() == []
    logged.clock.time += 1
    logged.log.turn()
    (name,) = logged.names()
    assert NAME.fullmatch(name)
    assert name.startswith("2024-05-01/1000_")
    assert logged.answers().height == logged.counts["written"] == 5


def test_minutes_that_waited_for_a_slow_disk_have_their_own_files(logged: Logged) -> None:
    for minute in range(3):
        logged.offer(2, time=NOW + minute * MINUTE + 59_000)
    logged.offer(1, time=NOW)  # a late one
    logged.clock.time = NOW + 2 * MINUTE + 59_500
    logged.log.turn()
    assert [name[:16] for name in logged.names()] == ["2024-05-01/1000_", "2024-05-01/1001_"]
    logged.log.close()
    assert len(logged.names()) == 3
    assert logged.answers().height == 7


def test_a_clock_that_was_set_back_holds_no_file_and_overwrites_none(logged: Logged) -> None:
    logged.minute(2)
    logged.offer(3)
    logged.log.turn()
    logged.clock.time = NOW
    logged.log.turn()
    logged.minute(4)
    assert len(logged.names()) == 3
    assert logged.answers().height == 9


def test_rows_are_written_in_groups_while_the_minute_lasts(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_GROUP_ROWS", 4)
    for _ in range(5):
        logged.offer(3)
        logged.log.turn()
    logged.minute(0)
    assert logged.answers().height == 15


# ---- What is lost


def _full_queue(logged: Logged, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log, "QUEUED_BYTES", 3_000)


def _no_room(logged: Logged, patch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    patch.setattr(log, "_GROUP_ROWS", 7)
    patch.setattr(log._Minute, "_write", full)


def _no_file(logged: Logged, patch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    patch.setattr(log, "new_writer", full)


def _faulty_row(logged: Logged, patch: pytest.MonkeyPatch) -> None:
    logged.shown = logged.shown._replace(rows=np.array([10_000]))


def _no_end(logged: Logged, patch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    patch.setattr(log._Minute, "close", full)


@pytest.mark.parametrize("fault", [_full_queue, _no_room, _no_file, _faulty_row, _no_end])
def test_every_answer_is_written_or_counted_as_dropped_and_told_once_a_minute(
    logged: Logged,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Callable[[Logged, pytest.MonkeyPatch], None],
) -> None:
    with monkeypatch.context() as patch:
        before = logged.shown
        fault(logged, patch)
        for _ in range(4):
            logged.offer(5)
            logged.log.turn()
        logged.minute(5)
        logged.shown = before
    logged.minute(7)
    assert logged.counts["dropped"] >= 5
    assert sum(logged.counts.values()) == 32
    assert logged.answers().height == logged.counts["written"] >= 7
    told = [int(record.args[0]) for record in caplog.records if "not in the log of answers" in record.msg]  # type: ignore[index,arg-type]
    assert sum(told) == logged.counts["dropped"]
    assert len(told) <= 2


@pytest.mark.parametrize("is_writing", [False, True])
def test_the_log_goes_on_after_its_folder_was_removed(logged: Logged, is_writing: bool) -> None:
    """The answers of the minute are lost; they hold up no later file."""
    assert isinstance(logged.place, Path)
    logged.minute()
    if is_writing:
        logged.offer(2)
        logged.log.turn()
    shutil.rmtree(logged.place)
    for _ in range(3):
        logged.minute(5)
    assert logged.counts == ({"written": 11, "dropped": 7} if is_writing else {"written": 16})
    assert len(logged.names()) == (2 if is_writing else 3)
    assert logged.place.stat().st_mode & 0o777 == 0o700
    logged.log.close()
    assert not [*logged.place.glob(".*")]


def test_files_that_an_object_store_refuses_are_tried_again(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged, uploaded = Logged("memory://answers/refused", bundle), list[str]()
    with monkeypatch.context() as patch:

        def refuse(name: str, file: Path) -> None:
            raise OSError("slow down")

        patch.setattr(logged.files, "publish", refuse)
        for _ in range(3):
            logged.minute(2)
        assert not logged.counts
        patch.setattr(log, "_RETRIED", 2)
        logged.minute(2)
        assert logged.counts == {"dropped": 2}
    monkeypatch.setattr(logged.files, "publish", lambda name, file: uploaded.append(name))
    logged.minute(2)
    assert logged.counts == {"dropped": 2, "written": 8}
    assert len(uploaded) == 4
    logged.log.close()


def test_a_service_counts_what_it_logs_and_what_it_drops(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "QUEUED_BYTES", -1)
    with serving(bundles, answer_log=str(tmp_path / "log")) as client:
        for _ in range(3):
            assert client.post("/v1/recommend", json={}).status_code == 200
        assert sample(client.get("/metrics").text, 'turret_answer_log_total{outcome="dropped"}') == 3


@pytest.mark.process
def test_a_service_that_ends_has_written_every_answer_of_all_workers(start: Start, tmp_path: Path) -> None:
    service = start(workers=2, answer_log=str(tmp_path / "log"))
    names = [
        anew(service, "POST", "/v1/recommend", json={"history": [101]}).json()["answer_id"] for _ in range(60)
    ]
    service.stop()
    answers = read_answers(tmp_path / "log").collect()
    assert sorted(answers["answer_id"].to_list()) == sorted(names)
    files = [path.name for path in (tmp_path / "log").glob("*/*")]
    assert {name.partition("_")[2].partition("-")[0] for name in files} == {"0", "1"}
    assert [path for path in (tmp_path / "log").iterdir() if path.name.startswith(".")] == []


# ---- Retention and forgetting


def test_the_oldest_files_are_removed_by_days_and_by_bytes(tmp_path: Path, bundle: Bundle) -> None:
    logged = Logged(tmp_path / "log", bundle, days=2)
    for _ in range(4):
        logged.minute()
        logged.clock.time += _DAY - MINUTE - log.LATE_MS
    logged.log.tidy()
    assert [name[:10] for name in logged.names()] == ["2024-05-03", "2024-05-04"]
    sizes = [(tmp_path / "log" / name).stat().st_size for name in logged.names()]
    logged.files.expire(None, sum(sizes), logged.clock.time)
    assert len(logged.names()) == 2
    logged.files.expire(None, sum(sizes) - 1, logged.clock.time)
    assert [name[:10] for name in logged.names()] == ["2024-05-04"]
    (tmp_path / "log" / "notes").mkdir()
    (tmp_path / "log" / "notes" / "mine.txt").write_text("is no file of the log")
    logged.files.expire(1, 0, logged.clock.time + 9 * _DAY)
    assert logged.names() == ["notes/mine.txt"]


@pytest.mark.parametrize("place", ["folder", "memory://answers/forget"])
async def test_a_forgotten_user_is_in_no_file_of_before_or_that_comes_late(
    tmp_path: Path, bundle: Bundle, place: str
) -> None:
    logged = Logged(tmp_path / "log" if place == "folder" else place, bundle)
    for user in ("a", "b", None):
        logged.minute(2, user)
    logged.offer(1, "a")
    await logged.log.forget("a")
    logged.log.tidy()
    logged.minute(1, "b")

    def visitors() -> Counter[str]:
        counts = Counter[str]()
        target = tmp_path / str(logged.clock.time)
        if place == "folder":
            target = tmp_path / "log"
        else:
            objects: Any = logged.files._files
            objects.download(objects.sizes(), target)
        counts.update(read_answers(target).collect()["visitor"].to_list())
        return counts

    a, b = visitor_of("a", b"k"), visitor_of("b", b"k")
    assert visitors() == {a: 1, b: 3, "": 2}
    logged.clock.time += SETTLED_MS
    logged.log.tidy()
    assert visitors() == {b: 3, "": 2}
    assert not [name for name in logged.files._files.sizes() if name.startswith("forgotten")]


async def test_a_file_that_can_not_be_read_is_told_and_its_users_stay_marked(
    logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    logged.minute(1, "a")
    assert isinstance(logged.place, Path)
    damaged = logged.place / "2024-05-01" / "0900_0-x.parquet"
    damaged.write_bytes(b"no Parquet")
    await logged.log.forget("a")
    logged.clock.time += SETTLED_MS
    logged.log.tidy()
    assert "0900_0-x.parquet of the log of answers can't be read" in caplog.text
    assert len(logged.names()) == 2  # the damaged file and the mark
    damaged.unlink()
    logged.log.tidy()
    assert logged.names() == []


async def test_files_of_others_do_not_keep_a_user_in_the_log(
    logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    """Files with other columns, that vanish, or that are no Parquet, among them."""
    for user in ("a", "b"):
        logged.offer(2, user)
    logged.minute(0)
    assert isinstance(logged.place, Path)
    folder = logged.place / "2024-05-01"
    (file,) = folder.iterdir()
    pl.read_parquet(file).write_parquet(folder / "0800_copy.parquet")  # with other types of texts and lists
    pl.DataFrame({"visitor": [visitor_of("a", b"k"), ""]}).write_parquet(folder / "0900_other.parquet")
    (folder / "0900_vanished.parquet").symlink_to("nothing")
    (folder / "0900_notes.txt").write_text("is no file of the log")
    await logged.log.forget("a")
    logged.log.tidy()
    assert "0900_other.parquet of the log of answers can't be read" in caplog.text
    assert "notes.txt" not in caplog.text
    (folder / "0900_other.parquet").unlink()
    (folder / "0900_vanished.parquet").unlink()
    assert logged.answers()["visitor"].to_list() == [visitor_of("b", b"k")] * 4
    logged.clock.time += SETTLED_MS
    logged.log.tidy()
    assert not [name for name in logged.names() if name.startswith("forgotten")]


def test_deleting_a_user_marks_the_user_first(bundles: Path, tmp_path: Path) -> None:
    key, place = "0123456789abcdef" * 2, tmp_path / "log"
    with serving(bundles, answer_log=str(place), answer_key=key) as client:
        assert client.delete("/v1/users/7").json() == {"user_id": "7", "deleted": 0}
        (mark,) = (place / "forgotten").iterdir()
        assert mark.name.endswith(visitor_of("7", key.encode()))
        mark.unlink()
        mark.parent.rmdir()
        mark.parent.touch()  # in its place, so that no mark can be written
        post_events(client, {"event_id": "e", "user_id": 7, "item_id": 101})
        refused = client.delete("/v1/users/7")
        assert refused.status_code == 503
        assert "can't note that it has to forget the user" in refused.json()["error"]["message"]
        assert client.get("/v1/users/7").json()["total"] == 1


# ---- Settings


def test_the_key_of_visitors_is_made_once_for_its_user_alone(bundles: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with serving(bundles, answer_log=str(tmp_path / "log")) as client:
            client.post("/v1/recommend", json={"user_id": 7})
    file = bundles.parent / "answer.key"
    assert file.stat().st_mode & 0o777 == 0o600
    (name,) = read_answers(tmp_path / "log").collect()["visitor"].unique().to_list()
    assert name == visitor_of("7", file.read_text().strip().encode())


def test_a_service_without_a_log_makes_no_key(bundles: Path) -> None:
    with serving(bundles, answer_log="") as client:
        client.post("/v1/recommend", json={"user_id": 7})
    assert not (bundles.parent / "answer.key").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"answer_log": "file"}, "can't be written to .*file.*; set TURRET_ANSWER_LOG to a folder"),
        ({"answer_log": "log", "answer_key": "secret"}, "TURRET_ANSWER_KEY: it has fewer than 32 characters"),
        ({"answer_log": "log", "answer_key": "secret" * 11}, "has 66 characters; take at most 64"),
        ({"answer_log": "nothing://secret/x"}, "is no object store"),
        ({"answer_log": "s3://"}, "s3:// names no bucket; write it like s3://BUCKET/FOLDER"),
    ],
)
def test_a_log_that_can_not_be_written_stops_the_start(
    bundles: Path, tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    (tmp_path / "file").touch()
    place = settings["answer_log"]
    place = place if "://" in place else str(tmp_path / place)
    with pytest.raises(Exception, match=words) as raised:
        Components(settings_of(bundles, **{**settings, "answer_log": place}))
    assert "secret" not in str(raised.value) or "://" in place


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("answer_days", 0, "setting answer_days can't be 0.*TURRET_ANSWER_DAYS"),
        ("answer_bytes", 0, "TURRET_ANSWER_BYTES"),
        ("answer_context", ",".join(map(str, range(21))), "21 features; name at most 20"),
    ],
)
def test_a_setting_that_can_not_be_is_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(ServiceError, match=words):
        read_settings(**{name: value})
