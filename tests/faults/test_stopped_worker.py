"""Files of a version that are replaced after it was checked, and workers that open them later."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.conftest import contents
from tests.support.service_calls import activate, admin, answered_versions, ask, children, client_of
from tests.support.service_process import Process, Start
from tests.support.until import until
from turret.tower.bundle.publish import publish

pytestmark = [pytest.mark.nightly, pytest.mark.fault(62)]
CHECKED = set(range(200, 240))  # the items of v2 as the fixture `three` publishes it


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The folder of another sound version that calls itself v2: items 400-439."""
    return publish(tmp_path / "elsewhere", contents("v2", ids=range(400, 440), seed=7))


def move(root: Path, other: Path) -> None:
    (root / "v2").rename(root / ".moved")
    shutil.copytree(other, root / "v2")


def overwrite(root: Path, other: Path) -> None:
    for path in (root / "v2").iterdir():
        path.chmod(0o644)
        with path.open("r+b") as file:  # not cut off first, which would end a worker that has it mapped
            file.write((other / path.name).read_bytes())
            file.truncate()


@contextmanager
def stopped(service: Process) -> Iterator[tuple[int, httpx2.Client]]:
    """Stop one of two workers, and give a client of the other one; it goes on at the end."""
    pid, other = children(service.process.pid)
    with closing(client_of(service, other)) as client:
        os.kill(pid, signal.SIGSTOP)
        try:
            yield pid, client
        finally:
            os.kill(pid, signal.SIGCONT)


def answers(service: Process, count: int = 60) -> set[tuple[str, bool]]:
    """The versions that connections of their own get, and whether their items are those that were checked."""
    found = set()
    for _ in range(count):
        answer = ask(service, k=5)
        found.add((answer["version"], {item["id"] for item in answer["items"]} <= CHECKED))
    return found


@pytest.mark.parametrize("replace", [move, overwrite])
def test_a_worker_that_was_stopped_serves_no_files_that_were_not_checked(
    start: Start, three: Path, other: Path, replace: Callable[[Path, Path], None]
) -> None:
    """It keeps the version that it has, and says why."""
    service = start(workers=2, activation_seconds=0.3)
    with stopped(service) as (pid, client):
        assert admin(service, three, "activate", {"version": "v2"}, client).json()["behind"] == [pid]
        replace(three, other)
    until(lambda: ("v1", False) in answers(service, 5), "the worker answers again")
    seen = answers(service)
    if replace is move:  # files that are overwritten change under the maps of those that have them open
        assert seen == {("v1", False), ("v2", True)}
    else:
        assert ("v1", False) in seen
    _, complaints = service.stop()
    assert "can't open the active version" in complaints
    assert "does not hold the files that were activated" in complaints


def test_a_forged_record_of_the_folder_leads_nobody_to_what_was_not_checked(
    start: Start, three: Path, other: Path
) -> None:
    """Who may write models may write that file too: what was checked is kept in memory."""
    service = start(workers=2, activation_seconds=0.3)
    shutil.copytree(other, three / "v9")
    with stopped(service) as (_, client):
        assert admin(service, three, "activate", {"version": "v2"}, client).status_code == 200
        move(three, other)
        path = three / "record.json"
        record = json.loads(path.read_text())
        record["live"]["manifest"] = "0" * 64
        path.write_text(json.dumps(record))
    until(lambda: ("v1", False) in answers(service, 5), "the worker answers again")
    assert answers(service) == {("v1", False), ("v2", True)}


def test_a_worker_that_takes_the_place_of_another_opens_what_was_activated_and_nothing_else(
    start: Start, three: Path, other: Path
) -> None:
    """Where that is gone, all go back to the version before."""
    service = start(workers=2)
    assert activate(service, three, "v2").status_code == 200
    move(three, other)
    pid = children(service.process.pid)[0]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the worker has ended")
    until(lambda: answered_versions(service, 10) == {"v1"}, "both workers serve v1")
    assert answers(service) == {("v1", False)}
    _, complaints = service.stop()
    assert "does not hold the files that were activated" in complaints


def test_the_way_back_leads_to_what_was_live_and_nothing_else(start: Start, three: Path, other: Path) -> None:
    service = start(workers=2)
    for version in ("v2", "v3"):
        assert activate(service, three, version).status_code == 200
    move(three, other)
    answer = admin(service, three, "rollback")
    assert answer.status_code == 409
    assert "activate it by its name" in answer.json()["error"]["message"]
    assert answered_versions(service) == {"v3"}
