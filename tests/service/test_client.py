"""The commands that ask a service, or work on a folder of bundles, and their HTTP client."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents
from turret.service import client
from turret.service.client import call, wait_until_ready
from turret.service.errors import AnswerError, ServiceError
from turret.service.versions.gate import read_report
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.format.listing import current

URL = "http://turret.test:8000"


class Server:
    """Answers HTTP over pairs of sockets, without a port: the next answer each, then the last one again.

    An answer without a status is sent as it is; with none at all nothing is listening.
    """

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = [(200, b"{}")]
        self.requests: list[tuple[str, str, Any, str | None]] = []
        self.addresses: list[object] = []
        self._threads: list[threading.Thread] = []

    def connect(self, connection: HTTPConnection) -> None:
        """In the place of `HTTPConnection.connect`."""
        self.addresses.append((connection.host, connection.port))
        if not self.answers:
            raise ConnectionRefusedError("refused")
        ours, theirs = socket.socketpair()
        self._threads.append(threading.Thread(target=self._serve, args=(theirs,)))
        self._threads[-1].start()
        connection.sock = ours

    def close(self) -> None:
        for thread in self._threads:
            thread.join()

    def _serve(self, theirs: socket.socket) -> None:
        with theirs:
            _Handler(theirs, ("a client", 0), self)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: Server  # type: ignore[assignment]

    def do_GET(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(content) if content else None
        self.server.requests.append((self.command, self.path, body, self.headers.get("Authorization")))
        answers = self.server.answers
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if status:
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815 - http.server names it so

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "TURRET_ADMIN_KEY", "TURRET_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    server = Server()
    monkeypatch.setattr(HTTPConnection, "connect", lambda connection: server.connect(connection))
    yield server
    server.close()


# ---- The client


def test_without_a_body_it_gets_and_with_one_it_posts_json(server: Server) -> None:
    server.answers = [(200, '{"title": "Amélie"}'.encode()), (200, b'{"done": true}')]
    assert call(URL + "/", "/v1/version") == {"title": "Amélie"}
    assert call(URL, "/v1/recommend", {"k": 3}, key="secret") == {"done": True}
    assert server.requests == [
        ("GET", "/v1/version", None, None),
        ("POST", "/v1/recommend", {"k": 3}, "Bearer secret"),
    ]


@pytest.mark.parametrize(
    ("status", "content", "sentence"),
    [
        (422, b'{"error": {"field": "k", "value": 0, "message": "send 1"}}', "answered 422: k: send 1"),
        (401, b'{"error": {"field": "", "message": "no key"}}', "answered 401: no key"),
        (404, b"<html>", "answered 404: it did not say why; is it a Turret service?"),
        (500, b'{"error": "oh"}', "answered 500: it did not say why; is it a Turret service?"),
        (200, b"<html>", "not with a JSON object; is it a Turret service?"),
        (200, b"[1]", "not with a JSON object; is it a Turret service?"),
        (200, b"\xff", "not with a JSON object; is it a Turret service?"),
        (0, b"SSH-2.0-OpenSSH\r\n", "no service answers there (SSH-2.0-OpenSSH"),
        (0, b"", "no service answers there (Remote end closed connection"),
    ],
)
def test_what_is_no_answer_becomes_one_sentence(
    server: Server, status: int, content: bytes, sentence: str
) -> None:
    """The service's message; of another server, that it is not a Turret service."""
    server.answers = [(status, content)]
    with pytest.raises(ServiceError) as refused:
        call(URL, "/v1/recommend", {"k": 0})
    assert str(refused.value).startswith(URL)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("localhost:8000", "is not an address"),
        ("file:///etc/hostname", "is not an address"),
        ("http://a b", "is not an address"),
        ("http://127.0.0.1:nothing", "is not an address"),
        ("http://[::1", "is not an address"),
    ],
)
def test_what_is_no_address_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(ServiceError, match=sentence) as refused:
        call(url, "/readyz")
    assert url in str(refused.value)


def test_a_password_in_an_address_is_neither_used_nor_shown() -> None:
    with pytest.raises(
        ServiceError, match=r"http://host:8000' is not an address without user.*TURRET_API_KEY"
    ) as caught:
        call("http://me:pa/ss@host:8000", "/readyz")
    assert "pa/ss" not in str(caught.value)


class Time:
    """In the place of the module: the time passes by sleeping alone."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("answers", "seconds", "asked", "refusal"),
    [
        ([(503, b"{}"), (503, b"{}"), (200, b"{}")], 30, 3, None),
        ([(503, b'{"error": {"message": "no version yet"}}')], 0.25, 4, "503: no version yet"),
        ([], 0.25, 4, "no service answers there"),
        ([], 0, 1, "no service answers there"),
    ],
)
def test_waiting_ends_when_the_service_is_ready_or_the_time_is_over(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[tuple[int, bytes]],
    seconds: float,
    asked: int,
    refusal: str | None,
) -> None:
    monkeypatch.setattr(client, "time", Time())
    server.answers = answers
    if refusal is None:
        wait_until_ready(URL, seconds)
    else:
        with pytest.raises(ServiceError, match=refusal):
            wait_until_ready(URL, seconds)
    assert len(server.addresses) == asked


# ---- Recommendations


ANSWER = {
    "version": "v1",
    "items": [
        {
            "id": 7,
            "score": 1.256,
            "source": "towers",
            "fields": {"title": "Amélie", "genres": ["drama", "war"]},
        },
        {"id": 8, "score": -2.0, "source": "popular", "fields": {"title": None, "genres": []}},
    ],
    "degraded": [],
}


@pytest.mark.parametrize(
    ("user", "history", "body"),
    [
        ("ann", None, {"k": 5, "user_id": "ann"}),
        ("ann", [3, "x"], {"k": 5, "history": [3, "x"]}),
        (None, [], {"k": 5, "history": []}),
        (None, None, {"k": 5}),
    ],
)
def test_a_history_that_is_given_stands_for_the_user(
    server: Server, user: str | None, history: list[int | str] | None, body: dict[str, Any]
) -> None:
    """And the service is waited for first."""
    client.recommend(URL, 5, user, history, 2.5)
    assert server.requests == [("GET", "/readyz", None, None), ("POST", "/v1/recommend", body, None)]


def test_a_stored_history_is_requested_by_an_id_of_any_letters(server: Server) -> None:
    """Slashes, blanks, question marks and accents are part of the id, not of the address."""
    server.answers = [(200, b'{"events": [{"item_id": 3}, {"item_id": "x"}]}')]
    assert client.stored_history(URL, "a/b c?é") == ["3", "x"]
    assert server.requests == [("GET", "/v1/users/a%2Fb%20c%3F%C3%A9", None, None)]


def test_a_key_that_may_only_ask_shows_no_stored_history(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recommendation is shown without the history; other errors are raised."""
    server.answers = [(403, b"{}"), (401, b"{}")]
    assert client.stored_history(URL, "ann") == []
    assert "scope write" in capsys.readouterr().err
    with pytest.raises(AnswerError):
        client.stored_history(URL, "ann")


def cells(printed: str) -> list[list[str]]:
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_the_answer_stands_beside_the_newest_of_the_history(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten of it at most, the newest first, and the number of all; what the version doesn't know is named."""
    answer = {**ANSWER, "unknown_items": [3, "x"]}
    client.print_recommendations(answer, [f"old {n}" for n in range(12)], as_json=False)
    shown = capsys.readouterr().out
    assert cells(shown)[:2] == [
        ["old 11", "Amélie (drama, war) [7]", "1.26", "towers"],
        ["old 10", "8", "-2.00", "popular"],
    ]
    assert [row[0] for row in cells(shown)[2:]] == [f"old {n}" for n in range(9, 1, -1)]
    assert "version v1" in shown
    assert "(12 items)" in shown
    assert shown.endswith("not in this version's catalog: 3, x\n")
    client.print_recommendations(ANSWER, [], as_json=False)
    assert [row[0] for row in cells(capsys.readouterr().out)] == ["", ""]
    client.print_recommendations(ANSWER, ["something"], as_json=True)
    shown = capsys.readouterr().out
    assert json.loads(shown) == ANSWER
    assert "Amélie" in shown


# ---- Versions


UNTIL = "2024-05-01T12:30:00.000+00:00"


def test_the_table_of_versions_marks_the_current_one_and_the_broken_ones(
    bundles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {"test": {"towers": {"ndcg@10": {"mean": 0.123456}}}}
    publish(bundles, replace(contents("v2", seed=3), metrics=measured, data_until=UNTIL))
    publish(bundles, contents("v3", seed=4))
    (bundles / "v3" / "manifest.json").unlink()
    client.print_versions(bundles, as_json=False)
    rows = cells(capsys.readouterr().out)
    first, second = (next(row for row in rows if row[1] == name) for name in ("v1", "v2"))
    assert (first[0], *first[3:]) == ("*", "", "60", "not evaluated", "current", "")
    assert (second[0], *second[3:]) == ("", UNTIL[:16], "60", "0.1235", "", "")
    broken = [row for row in rows if row not in (first, second)]
    assert broken[0][:6] == ["", "v3", "", "", "", "not evaluated"]
    assert "can't be read" in " ".join(row[6] for row in broken)
    client.print_versions(bundles, as_json=True)
    listed = {one["version"]: one for one in json.loads(capsys.readouterr().out)}
    assert (listed["v1"]["is_current"], listed["v1"]["item_count"]) == (True, 60)


def test_a_folder_has_the_gate_of_a_service(bundles: Path) -> None:
    """Answers that have nothing in common with the current ones are refused there too, unless forced."""
    publish(bundles, contents("v2", ids=range(200, 240), seed=1))
    with pytest.raises(BundleError, match=r"in common.*force"):
        client.activate_version("v2", bundles, None)
    assert current(bundles) == "v1"
    report = read_report(bundles, "v2")
    assert report is not None
    assert report.reason == "overlap"
    client.activate_version("v2", bundles, None, force=True)
    assert current(bundles) == "v2"
    forced = read_report(bundles, "v2")
    assert forced is not None
    assert forced.passed


@pytest.mark.parametrize("place", ["environment", "file elsewhere", "beside the bundles"])
def test_a_running_service_gets_its_key(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The one of the environment, or else of the file of the settings, or the one that the service wrote."""
    server.answers = [(200, b'{"version": "v2", "previous": "v1"}')]
    (tmp_path / "admin.key").write_text("of beside the bundles\n")
    if place == "file elsewhere":
        (tmp_path / "elsewhere.key").write_text("of file elsewhere\n")
        monkeypatch.setenv("TURRET_ADMIN_KEY_FILE", str(tmp_path / "elsewhere.key"))
    elif place == "environment":
        monkeypatch.setenv("TURRET_ADMIN_KEY", "of environment")
    said = client.activate_version("v2", tmp_path, URL)
    assert server.requests == [("POST", "/admin/activate", {"version": "v2"}, f"Bearer of {place}")]
    assert said == f"{URL} serves v2 now (before: v1)."


def test_without_a_key_it_is_said_where_one_would_be(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"admin\.key.*TURRET_ADMIN_KEY.*--bundles"):
        client.activate_version("v2", tmp_path, URL)
    assert server.requests == []
