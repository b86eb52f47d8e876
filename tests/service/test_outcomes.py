"""`GET /admin/outcomes`: the report of `turret outcomes` from the service's own log."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.conftest import contents
from tests.support.command_line import output
from tests.support.service_app import ADMIN, KEY, post_events, serving, settings_of
from turret.client.version_answers import OutcomesAnswer
from turret.service.errors import BusyError, ConflictError, ServiceError
from turret.service.outcomes import counting, reports
from turret.service.outcomes.counting import count_once
from turret.service.outcomes.process import count_in_process
from turret.service.outcomes.reports import OutcomeReports
from turret.service.outcomes.request import CountReport, CountRequest, read_report
from turret.service.stores.contract import now_ms
from turret.tower.bundle.publish import publish
from turret.tower.format.listing import point

VISITORS = "a-key-of-visitors-of-32-characters"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bundles, a store, and the log of answers to 20 users by a live version and a canary.

    Every second user buys the first item of an answer.
    """
    root = tmp_path_factory.mktemp("shop")
    for version in ("v1", "v2"):
        publish(root / "bundles", contents(version=version))
    point(root / "bundles", "v1")
    with serving(root / "bundles", **logged_in(root)) as client:
        routes = {"canary": {"version": "v2", "share": 0.5}}
        assert client.post("/admin/routes", json=routes, headers=ADMIN).status_code == 200
        for user in range(20):
            answer = client.post("/v1/recommend", json={"user_id": user, "k": 3}).json()
            item = answer["items"][0]["id"]
            event = {"event_id": f"e{user}", "user_id": user, "item_id": item}
            if user % 2:
                post_events(client, event | {"kind": "buy", "answer_id": answer["answer_id"]})
            else:
                post_events(client, event | {"kind": "view"})
    return root


def logged_in(root: Path) -> dict[str, Any]:
    """The settings of the store and the log in a folder."""
    log = {"answer_log": str(root / "log"), "answer_key": VISITORS}
    return {**log, "store": f"sqlite:///{root}/history.sqlite"}


def read(client: TestClient, status: int = 200, **parameters: Any) -> dict[str, Any]:
    answer = client.get("/admin/outcomes", params=parameters, headers=ADMIN)
    assert answer.status_code == status, answer.text
    fields: dict[str, Any] = answer.json()
    return fields if status == 200 else fields["error"]


def test_the_answer_is_the_report_of_the_command(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISITORS", VISITORS)
    words = ("--answers", "log", "--store", f"sqlite:///{shop}/history.sqlite", "--key", "VISITORS", "--json")
    with serving(shop / "bundles", **logged_in(shop)) as client:
        for kinds in ([], ["buy"], ["buy", "view"]):
            answer = read(client, kind=kinds, within="1h")
            OutcomesAnswer.model_validate(answer)
            options = [word for kind in kinds for word in ("--kind", kind)]
            told = json.loads(output("outcomes", *words, "--within", "1h", *options, folder=shop))
            assert {name: answer[name] for name in told} == told
            assert (answer["kinds"], answer["within"], answer["value"]) == (kinds, "1h", None)
            assert sum(row["outcomes"] for row in answer["versions"]) == (10 if kinds == ["buy"] else 20)


def test_a_report_is_kept_and_counted_anew_when_it_is_old(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = list[CountRequest]()

    def counted(request: CountRequest) -> None:
        counts.append(request)
        count_once(request)

    monkeypatch.setattr(counting, "count_once", counted)
    with serving(shop / "bundles", **logged_in(shop)) as client:
        first = read(client, kind="buy")
        assert read(client, kind="buy")["time"] == first["time"]
        assert len(counts) == 1
        now = now_ms() + 2 * reports.FRESH_MS
        monkeypatch.setattr(reports, "now_ms", lambda: now)
        old = read(client, kind="buy")  # at once, while the next one is counted
        assert old["time"] == first["time"]
        assert old["age_seconds"] > 100
        assert read(client, kind="view")["kinds"] == ["view"]
        now += 2 * reports.STALE_MS
        monkeypatch.setattr(counting, "now_ms", lambda: now)
        stale = read(client, kind="view")  # nobody is answered by a report of an hour ago
        assert stale["age_seconds"] < 1
    assert [request.kinds for request in counts] == [("buy",), ("buy",), ("view",), ("view",)]


def test_a_report_of_a_clock_that_was_set_back_since_is_counted_anew(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = now_ms() + 2 * reports.STALE_MS
    with serving(shop / "bundles", **logged_in(shop)) as client:
        with monkeypatch.context() as patch:
            patch.setattr(counting, "now_ms", lambda: later)
            patch.setattr(reports, "now_ms", lambda: later)
            assert read(client, kind="buy", within="3h")["age_seconds"] < 1
        assert OutcomesAnswer.model_validate(read(client, kind="buy", within="3h")).age_seconds < 60
        report = CountReport(time=later, outcomes={})
        name = tmp_path / "a.outcomes"
        name.write_text(report.model_dump_json())
        request = reports_of(shop, tmp_path, count_nothing)._request(("buy",), 1, None)
        count_once(request.model_copy(update={"report": name}))
        assert (after := read_report(name)) is not None
        assert after.time < later


def test_a_service_that_can_not_count_says_why(shop: Path, tmp_path: Path) -> None:
    for changed, words in (
        ({"answer_log": None}, "logs no answers; set TURRET_ANSWER_LOG"),
        ({"store": "memory://"}, "set TURRET_STORE"),
        ({"answer_log": str(tmp_path / "empty")}, "has no answers (no file of the log)"),
    ):
        with serving(shop / "bundles", **(logged_in(shop) | changed)) as client:
            assert words in read(client, 409)["message"]
    with serving(shop / "bundles", **logged_in(shop)) as client:
        error = read(client, 422, kind="sale")
        assert (error["field"], "other kinds: buy, view" in error["message"]) == ("kind", True)
        error = read(client, 422, value="price")
        assert (error["field"], error["value"]) == ("value", "price")
        assert "no item of v1, v2 has a number in the field 'price'" in error["message"]
        for pause, words in (
            *(
                (text, "is no pause; give a number and a unit, such as")
                for text in ("soon", "0", "nan", "-1h")
            ),
            ("1e20d", "is longer than 100000d"),
            ("", "send a text that is not empty"),
        ):
            error = read(client, 422, within=pause)
            assert (error["field"], words in error["message"]) == ("within", True)
        assert read(client, within="0.5h")["within"] == "0.5h"
    with pytest.raises(ConflictError, match="object store; copy it into a folder"):
        OutcomeReports(
            settings_of(shop, answer_log="s3://logs/answers", store="redis://x"), shop, list, count_nothing
        )._request((), 1, None)


async def count_nothing(request: CountRequest) -> None:
    """A count that writes no report."""


def reports_of(shop: Path, folder: Path, count: reports.Count) -> OutcomeReports:
    return OutcomeReports(settings_of(shop / "bundles", **logged_in(shop)), folder, list, count)


def test_one_report_is_counted_at_a_time(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is refused meanwhile, and so is the first question when the count takes long."""
    monkeypatch.setattr(reports, "WAIT_SECONDS", 0.0)
    counted = list[Sequence[str]]()

    async def check() -> None:
        may_end = asyncio.Event()

        async def count(request: CountRequest) -> None:
            counted.append(request.kinds)
            await may_end.wait()
            request.report.write_text(CountReport(time=now_ms(), outcomes={}).model_dump_json())

        of_service = reports_of(shop, tmp_path, count)
        for kind, words in (("buy", "are being counted; retry"), ("view", "with other parameters")):
            with pytest.raises(BusyError, match=words):
                await of_service.read([kind], "1h", None)
        may_end.set()
        while not list(tmp_path.glob("*.outcomes")):
            await asyncio.sleep(0)
        assert (await of_service.read(["buy"], "1h", None))["kinds"] == ["buy"]
        await of_service.close()

    asyncio.run(check())
    assert counted == [("buy",)]


@pytest.mark.parametrize("error", [ServiceError("the process ended by SIGKILL"), ValueError("by SIGKILL")])
def test_a_count_that_fails_is_told(shop: Path, tmp_path: Path, error: Exception) -> None:
    async def fail(request: CountRequest) -> None:
        raise error

    with pytest.raises(ConflictError, match="by SIGKILL"):
        asyncio.run(reports_of(shop, tmp_path, fail).read([], "1h", None))


def test_the_second_process_of_a_machine_takes_the_report_of_the_first(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And old reports with other parameters are removed."""
    request = reports_of(shop, tmp_path, count_nothing)._request(("buy",), 3_600_000, None)
    for number in range(12):
        (tmp_path / f"{number}.outcomes").write_text("{}")
    count_once(request)
    assert len(list(tmp_path.glob("*.outcomes"))) == 8
    first = read_report(request.report)
    assert first is not None
    monkeypatch.setattr(counting, "outcomes_of", None)
    count_once(request)
    assert read_report(request.report) == first


def test_more_events_than_the_memory_holds_are_refused(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MOST_EVENTS", 15)
    request = reports_of(shop, tmp_path, count_nothing)._request((), 3_600_000, None)
    count_once(request)
    report = read_report(request.report)
    assert report is not None
    assert "more than 15 events may be outcomes; name the kinds" in (report.error or "")


@pytest.mark.process
def test_the_process_counts_and_ends_at_its_limit(shop: Path, tmp_path: Path) -> None:
    request = reports_of(shop, tmp_path, count_nothing)._request(("buy",), 3_600_000, None)
    with pytest.raises(ServiceError, match=r"longer than 0\.001 seconds"):
        asyncio.run(count_in_process(request, 0.001))
    assert read_report(request.report) is None
    asyncio.run(count_in_process(request, 300))
    report = read_report(request.report)
    assert report is not None
    assert report.outcomes is not None
    assert sum(row["outcomes"] for row in report.outcomes["versions"]) == 10
    assert KEY not in report.model_dump_json()
