import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.bundle_damage import rewrite
from turret.service.client import commands
from turret.service.errors import AnswerError, ServiceError
from turret.service.models.gate import read_report
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.format.pointer import current

Requests = list[tuple[str, str, Any, str | None]]
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


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Records the requests to a service and answers each at once."""
    calls: Requests = []

    def call(url: str, path: str, body: Any = None, key: str | None = None) -> dict[str, Any]:
        calls.append((url, path, body, key))
        events = [{"item_id": 3}, {"item_id": "x"}]
        return {"version": "v2", "previous": "v1", "events": events}

    monkeypatch.setattr(commands, "call", call)
    monkeypatch.setattr(commands, "wait_until_ready", lambda *waited: calls.append((*waited, None, None)))
    return calls


def test_a_key_that_may_only_ask_shows_no_stored_history(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recommendation is shown without the history; other errors are raised."""
    for status in (403, 401):

        def refuse(*_: Any, status: int = status, **__: Any) -> dict[str, Any]:
            raise AnswerError("no", status)

        monkeypatch.setattr(commands, "call", refuse)
        if status == 403:
            assert commands.stored_history("http://x", "ann") == []
            assert "scope write" in capsys.readouterr().err
        else:
            with pytest.raises(AnswerError):
                commands.stored_history("http://x", "ann")


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
    user: str | None, history: list[int | str] | None, body: dict[str, Any], requests: Requests
) -> None:
    """And the service is waited for first."""
    commands.recommend("http://x", 5, user, history, 2.5)
    assert requests == [("http://x", 2.5, None, None), ("http://x", "/v1/recommend", body, None)]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│┃").split("│")]


def test_the_answer_stands_beside_the_newest_of_the_history(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten of it at most, the newest first, and the number of all."""
    commands.print_recommendations(ANSWER, [f"old {n}" for n in range(12)], as_json=False)
    shown = capsys.readouterr().out
    rows = [cells(line) for line in shown.splitlines() if line.startswith("│")]
    assert rows[0] == ["old 11", "Amélie (drama, war) [7]", "1.26", "towers"]
    assert rows[1] == ["old 10", "8", "-2.00", "popular"]
    assert [row[0] for row in rows[2:]] == [f"old {n}" for n in range(9, 1, -1)]
    assert "version v1" in shown
    assert "(12 items)" in shown


def test_an_answer_without_a_history_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    commands.print_recommendations(ANSWER, [], as_json=False)
    rows = [cells(line) for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [row[:2] for row in rows] == [["", "Amélie (drama, war) [7]"], ["", "8"]]


def test_items_that_the_version_does_not_know_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    commands.print_recommendations({**ANSWER, "unknown_items": [3, "x"]}, ["3", "x"], as_json=False)
    assert capsys.readouterr().out.endswith("not in this version's catalog: 3, x\n")


def test_json_is_the_answer_as_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    """Accents are letters, and the history is not added."""
    commands.print_recommendations(ANSWER, ["something"], as_json=True)
    shown = capsys.readouterr().out
    assert json.loads(shown) == ANSWER
    assert "Amélie" in shown


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "5"),
        ({"title": "Up", "genres": ["war"]}, "Up (war) [5]"),
        ({"price": 3.5, "name": "Cup", "title": None}, "Cup [5]"),
        ({"title": "[bold]1984[/bold]"}, "[bold]1984[/bold] [5]"),
        ({"price": 3.5, "genres": ["war"]}, "5"),
        ({"title": "Up", "tags": [], "years": [1999, 2001]}, "Up (1999, 2001) [5]"),
    ],
)
def test_the_text_of_an_item(fields: dict[str, Any], words: str) -> None:
    """Its title, or the first text that is known of it; its first list; its id."""
    assert commands.item_text(5, fields) == words


def test_brackets_of_titles_and_ids_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    title = {"title": "[bold]1984[/bold]"}
    answer = {"version": "v1", "items": [{"id": "a", "score": 1.0, "source": "towers", "fields": title}]}
    commands.print_recommendations(answer, ["[red]x"], as_json=False)
    shown = capsys.readouterr().out
    assert "[bold]1984[/bold] [a]" in shown
    assert "[red]x" in shown


def test_a_stored_history_is_requested_by_an_id_of_any_letters(requests: Requests) -> None:
    """Slashes, blanks, question marks and accents are part of the id, not of the address."""
    assert commands.stored_history("http://x", "a/b c?é") == ["3", "x"]
    assert requests == [("http://x", "/v1/users/a%2Fb%20c%3F%C3%A9", None, None)]


UNTIL = "2024-05-01T12:30:00.000+00:00"


def test_the_table_of_versions_marks_the_current_one_and_the_broken_ones(
    bundles: Path, make_contents: Callable[..., BundleContents], capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {"test": {"towers": {"ndcg@10": {"mean": 0.123456}}}}
    contents = make_contents("v2", seed=3)
    publish(bundles, BundleContents(**{**vars(contents), "metrics": measured, "data_until": UNTIL}))
    publish(bundles, make_contents("v3", seed=4))
    (bundles / "v3" / "manifest.json").unlink()
    commands.print_versions(bundles, as_json=False)
    rows = [cells(line) for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    first, second = (next(row for row in rows if row[1] == name) for name in ("v1", "v2"))
    assert (first[0], *first[3:]) == ("*", "", "60", "not evaluated", "current")
    assert (second[0], *second[3:]) == ("", UNTIL[:16], "60", "0.1235", "")
    broken = [row for row in rows if row not in (first, second)]
    assert broken[0][:6] == ["", "v3", "", "", "", "not evaluated"]
    assert "can't be read" in " ".join(row[6] for row in broken)


def test_versions_as_json_can_be_read_back(bundles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands.print_versions(bundles, as_json=True)
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["version"], one["is_current"], one["item_count"]) == ("v1", True, 60)


def test_activating_in_a_folder_moves_its_pointer(
    bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
    publish(bundles, make_contents("v2", seed=3))
    said = commands.activate_version("v2", bundles, None)
    assert current(bundles) == "v2"
    assert said.startswith("v2 is current")
    assert "--url" in said


def test_a_folder_has_the_gate_of_a_service(
    bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
    """Answers that have nothing in common with the current ones are refused there too, unless forced."""
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    with pytest.raises(BundleError, match=r"in common.*force"):
        commands.activate_version("v2", bundles, None)
    assert current(bundles) == "v1"
    report = read_report(bundles, "v2")
    assert report is not None
    assert report.reason == "overlap"
    commands.activate_version("v2", bundles, None, force=True)
    assert current(bundles) == "v2"
    forced = read_report(bundles, "v2")
    assert forced is not None
    assert forced.passed


def test_a_damaged_bundle_is_not_activated(
    bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
    publish(bundles, make_contents("v2", seed=3))
    (bundles / "v2" / "user_tower.onnx").unlink()
    with pytest.raises(BundleError, match=r"user_tower\.onnx"):
        commands.activate_version("v2", bundles, None)
    assert current(bundles) == "v1"


def test_a_bundle_that_fails_its_recorded_queries_is_not_activated(
    bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
    publish(bundles, make_contents("v2", seed=1))
    rewrite(bundles / "v2", "golden.json", (bundles / "v1" / "golden.json").read_bytes())
    with pytest.raises(BundleError, match="different models"):
        commands.activate_version("v2", bundles, None)
    assert current(bundles) == "v1"


def test_an_unknown_version_is_answered_with_the_known_ones(bundles: Path) -> None:
    with pytest.raises(BundleError, match="there are: v1"):
        commands.activate_version("v9", bundles, None)


def test_the_key_may_be_in_a_file_elsewhere(
    requests: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere.key").write_text("of the file elsewhere\n")
    monkeypatch.delenv("TURRET_ADMIN_KEY", raising=False)
    monkeypatch.setenv("TURRET_ADMIN_KEY_FILE", str(tmp_path / "elsewhere.key"))
    commands.activate_version("v2", tmp_path, "http://x")
    assert [key for *_, key in requests] == ["of the file elsewhere"]


@pytest.mark.parametrize("stored", ["of the environment", None])
def test_a_running_service_gets_its_key(
    stored: str | None, requests: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of the environment, or else the one that the service wrote beside its bundles."""
    (tmp_path / "admin.key").write_text("of the file\n")
    monkeypatch.delenv("TURRET_ADMIN_KEY", raising=False)
    if stored:
        monkeypatch.setenv("TURRET_ADMIN_KEY", stored)
    said = commands.activate_version("v2", tmp_path, "http://x")
    assert requests == [("http://x", "/admin/activate", {"version": "v2"}, stored or "of the file")]
    assert said == "http://x serves v2 now (before: v1)."


def test_the_warning_of_a_rollback_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"version": "v1", "previous": "v2", "warning": "the fallback (exact) answers for v1"}
    monkeypatch.setenv("TURRET_ADMIN_KEY", "a key")
    monkeypatch.setattr(commands, "call", lambda *_, **__: answer)
    assert commands.roll_back(tmp_path, "http://x") == (
        "http://x serves v1 now (before: v2). Warning: the fallback (exact) answers for v1."
    )


def test_without_a_key_it_is_said_where_one_would_be(
    requests: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURRET_ADMIN_KEY", raising=False)
    with pytest.raises(ServiceError, match=r"admin\.key.*TURRET_ADMIN_KEY.*--bundles"):
        commands.activate_version("v2", tmp_path, "http://x")
    assert requests == []
