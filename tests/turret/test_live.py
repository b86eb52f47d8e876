"""The commands that ask a running service, or work on a folder of bundles."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from tests.conftest import contents
from turret import recommending
from turret.activation.live import activate_version
from turret.cli import app
from turret.client import AnswerError, Client, ClientError
from turret.client.answers import RecommendAnswer
from turret.service.errors import ServiceError
from turret.service.versions.folder_commands import print_versions
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.format.listing import current

URL = "http://turret.test:8000"
NONE_LIVE = {"error": {"field": "", "value": None, "message": "no version"}}
READY = {"status": "ready", "version": "v1"}


class Server:
    """A service that gives these answers in order, then the last one again; with none, nothing listens."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.requests: list[tuple[str, str, Any, str | None]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content) if request.content else None
        path = request.url.raw_path.decode()
        self.requests.append((request.method, path, body, request.headers.get("Authorization")))
        if not self.answers:
            raise httpx2.ConnectError("refused")
        status, answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return httpx2.Response(status, json=answer)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("TURRET_ADMIN_KEY", "TURRET_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    server = Server()
    transport = httpx2.MockTransport(server)
    with httpx2.Client(transport=transport) as http:
        monkeypatch.setattr("turret.client.client.httpx2.Client", lambda **_: http)
        monkeypatch.setattr(http, "close", lambda: None)
        yield server


# ---- Recommendations


@pytest.mark.parametrize(
    ("answers", "seconds", "asked", "refusal"),
    [
        ([(503, {}), (503, {}), (200, READY)], 30, 3, None),
        ([(503, NONE_LIVE)], 0.25, 4, "503: no version"),
        ([], 0, 1, "no service answers there"),
    ],
)
def test_waiting_ends_when_the_service_is_ready_or_the_time_is_over(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[tuple[int, Any]],
    seconds: float,
    asked: int,
    refusal: str | None,
) -> None:
    slept: list[float] = []  # time passes by sleeping alone
    clock = SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept))
    monkeypatch.setattr(recommending, "time", clock)
    server.answers = answers
    with pytest.raises(ClientError, match=refusal) if refusal else nullcontext():
        recommending.wait_until_ready(Client(URL), seconds)
    assert len(server.requests) == asked


TITLED = {"title": "Amélie", "genres": ["drama", "war"]}
ANSWER = {
    "version": "v1",
    "items": [
        {"id": 7, "score": 1.256, "source": "towers", "fields": TITLED},
        {"id": 8, "score": -2.0, "source": "popular", "fields": {"title": None, "genres": []}},
    ],
    "degraded": [],
}


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (["--user", "ann"], {"k": 5, "user_id": "ann", "among": "all"}),
        (
            ["--user", "ann", "--history", "3", "--history", "x"],
            {"k": 5, "history": ["3", "x"], "among": "all"},
        ),
        (["--among", "again"], {"k": 5, "among": "again"}),
    ],
)
def test_a_history_that_is_given_stands_for_the_user(
    server: Server, options: list[str], body: dict[str, Any]
) -> None:
    """And the service is waited for first."""
    server.answers = [(200, READY), (200, ANSWER), (200, {"user_id": "ann", "total": 0, "events": []})]
    done = CliRunner().invoke(app, ["recommend", "-k", "5", "--url", URL, *options])
    assert done.exit_code == 0, done.output
    assert server.requests[:2] == [("GET", "/readyz", None, None), ("POST", "/v1/recommend", body, None)]


def test_a_key_that_may_only_ask_shows_no_stored_history(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recommendation is shown without the history; other errors are raised."""
    server.answers = [(403, {}), (401, {})]
    assert recommending.stored_history(Client(URL), "ann") == []
    assert "scope write" in capsys.readouterr().err
    with pytest.raises(AnswerError):
        recommending.stored_history(Client(URL), "ann")


def test_the_stored_history_is_shown_by_the_titles_of_its_newest_items(server: Server) -> None:
    """Who does not know the ids can judge the answer; an item that the service does not know keeps its id."""
    used = [*range(12), 7, "gone"]
    events = [{"event_id": "e", "item_id": item, "time": UNTIL, "kind": None} for item in used]
    known = {"version": "v1", "items": [{"id": 7, "fields": TITLED, "training_events": 3}]}
    server.answers = [(200, {"user_id": "ann", "total": 14, "events": events}), (200, known)]
    shown = recommending.stored_history(Client(URL), "ann", "title")
    assert shown[:8] == ["0", "1", "2", "3", "4", "5", "6", "Amélie (drama, war) [7]"]
    assert shown[-2:] == ["Amélie (drama, war) [7]", "gone"]
    (call,) = server.requests[1:]
    assert call[1] == "/v1/items?" + "&".join(f"id={item}" for item in (*range(4, 12), "gone"))


def cells(printed: str) -> list[list[str]]:
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_the_answer_stands_beside_the_newest_of_the_history(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten of it at most, the newest first; items unknown to the version are named."""
    answer = RecommendAnswer.model_validate({**ANSWER, "unknown_items": [3, "x"]})
    shown = recommending.recommendations(answer, [f"old {n}" for n in range(12)])
    first, second, *others = cells(shown)
    assert first == ["old 11", "Amélie (drama, war) [7]", "1.26", "towers"]
    assert second == ["old 10", "8", "-2.00", "popular"]
    assert [row[0] for row in others] == [f"old {n}" for n in range(9, 1, -1)]
    assert shown.endswith("not in this version's catalog: 3, x")
    recommending.print_answer(RecommendAnswer.model_validate(ANSWER), "", as_json=True)
    assert json.loads(capsys.readouterr().out) == ANSWER


# ---- Versions


UNTIL = "2024-05-01T12:30:00.000+00:00"


def test_the_table_of_versions_marks_the_current_one_and_the_broken_ones(
    bundles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {"test": {"towers": {"ndcg@10": {"mean": 0.123456}}}}
    publish(bundles, contents("v2", seed=3, metrics=measured, data_until=UNTIL))
    publish(bundles, contents("v3", seed=4))
    (bundles / "v3" / "manifest.json").unlink()
    print_versions(bundles, as_json=False)
    rows = {row[1]: row for row in cells(capsys.readouterr().out)}
    assert (rows["v1"][0], *rows["v1"][3:]) == ("*", "", "60", "0.5000", "current", "")
    assert (rows["v2"][0], *rows["v2"][3:]) == ("", UNTIL[:16], "60", "0.1235", "", "")
    assert rows["v3"][:6] == ["", "v3", "", "", "", "not evaluated"]
    print_versions(bundles, as_json=True)
    listed = {one["version"]: one for one in json.loads(capsys.readouterr().out)}
    assert (listed["v1"]["is_current"], listed["v1"]["item_count"]) == (True, 60)
    assert "can't be read" in listed["v3"]["error"]


def test_a_folder_has_the_gate_of_a_service(bundles: Path) -> None:
    """Answers that have nothing in common with the current ones are refused there too, unless forced."""
    publish(bundles, contents("v2", ids=range(200, 240), seed=1))
    with pytest.raises(BundleError, match=r"in common.*force"):
        activate_version("v2", bundles, None)
    assert current(bundles) == "v1"
    activate_version("v2", bundles, None, force=True)
    assert current(bundles) == "v2"


@pytest.mark.parametrize("place", ["the-environment", "a-file-elsewhere", "beside-the-bundles"])
def test_a_running_service_gets_its_key(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The one of the environment, or else of the file of the settings, or the one that the service wrote."""
    server.answers = [(200, {"version": "v2", "previous": "v1"})]
    (tmp_path / "admin.key").write_text("of-beside-the-bundles\n")
    if place == "a-file-elsewhere":
        (tmp_path / "elsewhere.key").write_text("of-a-file-elsewhere\n")
        monkeypatch.setenv("TURRET_ADMIN_KEY_FILE", str(tmp_path / "elsewhere.key"))
    elif place == "the-environment":
        monkeypatch.setenv("TURRET_ADMIN_KEY", "of-the-environment")
    said = activate_version("v2", tmp_path, URL)
    assert server.requests == [("POST", "/admin/activate", {"version": "v2"}, f"Bearer of-{place}")]
    assert said == f"{URL} serves v2 now (before: v1)."


def test_without_a_key_it_is_said_where_one_would_be(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"admin\.key.*TURRET_ADMIN_KEY.*--bundles"):
        activate_version("v2", tmp_path, URL)
    assert server.requests == []
