"""Versions that are activated, rolled back and refused while others ask."""

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.faults.processes import Traffic, activate, admin, admin_of, children, metric, until
from tests.service_process import HERE, START, Process, Start
from tower.contents import BundleContents
from tower.pointer import current
from tower.publishing import publish

Make = Callable[..., BundleContents]


@pytest.fixture
def three(bundles: Path, make_contents: Make) -> Path:
    """Versions with disjoint items: 100-159, 200-239 and 300-319."""
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    publish(bundles, make_contents("v3", ids=range(300, 320), seed=2))
    return bundles


def damage(root: Path, version: str, name: str = "item_vectors.npy") -> None:
    path = root / version / name
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[-3] ^= 0x40
    path.write_bytes(content)


@pytest.mark.fault(14)
def test_activations_at_once_take_turns_in_all_workers(start: Start, three: Path) -> None:
    """Each names what it took the place of, as if it had come alone; in the end all serve the last."""
    service = start(workers=2)
    with ThreadPoolExecutor(6) as pool:
        asked = [("v2", "v3", "v1")[place % 3] for place in range(12)]
        answers = list(pool.map(lambda version: activate(service, three, version).json(), asked))
    lines = [json.loads(line) for line in (three / "activations.jsonl").read_text().splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, 14))
    chain = [line["version"] for line in lines]
    assert [line.get("previous") for line in lines[1:]] == chain[:-1]
    assert sorted((answer["previous"], answer["version"]) for answer in answers) == sorted(pairwise(chain))
    assert not any("behind" in answer for answer in answers)
    assert current(three) == chain[-1]
    assert {ask(service)["version"] for _ in range(40)} == {chain[-1]}


def ask(service: Process, **body: Any) -> dict[str, Any]:
    """On a connection of its own, so that any worker may answer."""
    with httpx2.Client(base_url=service.urls[0], timeout=10, trust_env=False) as client:
        found: dict[str, Any] = client.post("/v1/recommend", json=body).json()
        return found


@pytest.mark.fault(15)
def test_no_answer_is_older_than_what_an_acknowledged_activation_promised(start: Start, three: Path) -> None:
    """Clients of two workers, versions back and forth: `min_version` holds, and without it the order of
    acknowledgements does too: an answer that begins after one has ended is of that activation or a later."""
    service = start(workers=2)
    order = ["v1"]  # what was asked to be live, in turn
    acknowledged = [0]
    wrong: list[Any] = []
    count = [0]
    over = threading.Event()

    def look(names_it: bool) -> None:
        client = httpx2.Client(base_url=service.urls[0], timeout=10, trust_env=False)
        while not over.is_set():
            least = acknowledged[0]
            body = {"min_version": order[least]} if names_it else {}
            answer = client.post("/v1/recommend", json={"k": 3, **body})
            possible = set(order[least:])  # also what is asked for meanwhile, and not yet acknowledged
            version = answer.json().get("version")
            items = {item["id"] // 100 for item in answer.json().get("items", [])}
            if answer.status_code != 200 or version not in possible or items != {int(version[1:])}:
                wrong.append((least, body, answer.status_code, answer.text))
            count[0] += 1
            if count[0] % 20 == 0:  # another connection, perhaps to the other worker
                client.close()
                client = httpx2.Client(base_url=service.urls[0], timeout=10, trust_env=False)
        client.close()

    clients = [threading.Thread(target=look, args=(place % 2 == 0,)) for place in range(6)]
    for client in clients:
        client.start()
    try:
        for place in range(1, 31):
            order.append(("v1", "v2", "v3")[place % 3])
            assert activate(service, three, order[-1]).status_code == 200
            acknowledged[0] = place
    finally:
        over.set()
        for client in clients:
            client.join()
    assert wrong == []
    assert count[0] > 200


@pytest.mark.fault(15)
def test_a_storm_of_activations_fails_no_request(start: Start, three: Path) -> None:
    service = start(workers=2)
    with Traffic(service.urls[0]).flowing(4) as traffic:
        time.sleep(1)
        steady = [took for _, took, _, _ in traffic.answers]
        begun = time.monotonic()
        for place in range(20):
            assert activate(service, three, f"v{place % 3 + 1}").status_code == 200
    storm = [took for at, took, _, _ in traffic.answers if at > begun]
    assert traffic.broken == []
    assert traffic.statuses() == {200}
    assert {version for *_, version in traffic.answers} == {"v1", "v2", "v3"}
    # Clients, service and the checks of versions share two cores here; the benchmark has the real bound.
    assert statistics.quantiles(storm, n=100)[98] < 20 * statistics.quantiles(steady, n=100)[98] + 0.1


def test_a_version_that_was_never_live_can_not_be_asked_for(start: Start, three: Path) -> None:
    service = start(workers=2)
    for version in ("v2", "nonsense", "../v1"):
        answer = service.client.post("/v1/recommend", json={"min_version": version})
        assert answer.status_code == (422 if "/" in version else 409)
        assert "never live" in answer.json()["error"]["message"]
    assert activate(service, three, "v2").status_code == 200
    for version in ("v1", "v2"):
        answer = service.client.post("/v1/recommend", json={"min_version": version})
        assert answer.json()["version"] == "v2"


@pytest.mark.fault(16)
@pytest.mark.parametrize("newest", ["sound", "damaged", "deleted"])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_way_back_takes_one_call_and_at_most_a_second(
    start: Start, three: Path, newest: str, restarted: bool
) -> None:
    service = start(workers=2)
    assert activate(service, three, "v2").status_code == 200
    if restarted:
        service.stop()
        service = start(workers=2)
    if newest == "damaged":
        damage(three, "v2")
    if newest == "deleted":
        for path in (three / "v2").iterdir():
            path.unlink()
    begun = time.monotonic()
    answer = admin(service, three, "rollback")
    took = time.monotonic() - begun
    assert answer.json() == {"version": "v1", "previous": "v2"}
    assert took < 1.0
    assert {ask(service)["version"] for _ in range(20)} == {current(three)} == {"v1"}


@pytest.mark.fault(16)
def test_a_start_finds_the_version_before_where_the_newest_is_damaged(start: Start, three: Path) -> None:
    service = start()
    assert activate(service, three, "v2").status_code == 200
    service.stop()
    damage(three, "v2", "golden.json")
    again = start()
    assert "serves version v1" in again.greeting
    last = json.loads((three / "activations.jsonl").read_text().splitlines()[-1])
    assert (last["version"], last["who"], last["previous"]) == ("v1", "fallback", "v2")
    assert "golden.json" in last["words"]


@pytest.mark.fault(11)
def test_a_version_that_memory_has_no_room_for_is_refused_before_it_is_opened(
    start: Start, three: Path
) -> None:
    service = start(memory_factor=1e9)
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    message = answer.json()["error"]["message"]
    assert "needs about" in message
    assert message.endswith("version v1 stays live")
    assert current(three) == "v1"
    assert metric(service, 'turret_reload_failures_total{reason="memory"}') == 1
    assert service.client.get("/readyz").json()["version"] == "v1"
    (kept,) = (one for one in service.client.get("/v1/versions").json()["versions"] if one["version"] == "v2")
    assert [check["name"] for check in kept["gate"]["checks"]] == ["memory"]


@pytest.mark.fault(11)
def test_a_check_that_is_killed_for_its_memory_refuses_the_version(start: Start, three: Path) -> None:
    """It has a process of its own: the workers, and what they serve, are left alone."""
    service = start(workers=2)
    workers = set(children(service.process.pid))
    killed = threading.Event()

    def kill_the_check() -> None:
        while not killed.is_set():
            for pid in set(children(service.process.pid)) - workers:
                os.kill(pid, signal.SIGKILL)
                killed.set()

    killer = threading.Thread(target=kill_the_check)
    killer.start()
    answer = activate(service, three, "v2")
    killed.set()
    killer.join()
    assert answer.status_code == 409
    assert "ended by SIGKILL" in answer.json()["error"]["message"]
    assert set(children(service.process.pid)) == workers
    assert activate(service, three, "v2").status_code == 200


@pytest.mark.fault(27)
@pytest.mark.parametrize(
    "version",
    ["../v2", "/etc/passwd", "http://127.0.0.1:1/v2", "v2/../v1", "current", ".gate", "v2\0", "%2e%2e"],
)
def test_what_is_no_name_of_a_version_opens_nothing(start: Start, three: Path, version: str) -> None:
    service = start(workers=1)
    for path, body in (
        ("activate", {"version": version}),
        ("routes", {"canary": {"version": version, "share": 0.5}}),
        ("routes", {"shadow": {"version": version, "share": 0.5}}),
    ):
        answer = admin(service, three, path, body)
        assert answer.status_code == 422
        assert answer.json()["error"]["field"].endswith("version")
    assert current(three) == "v1"
    assert sorted(path.name for path in three.glob(".gate/*")) == []


def test_answers_that_have_nothing_in_common_are_refused_unless_forced(start: Start, three: Path) -> None:
    service = start(overlap_minimum=0.2)
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    assert "0.000 in common" in answer.json()["error"]["message"]
    assert metric(service, 'turret_reload_failures_total{reason="overlap"}') == 1
    assert activate(service, three, "v2", force=True).json()["version"] == "v2"
    last = json.loads((three / "activations.jsonl").read_text().splitlines()[-1])
    assert (last["forced"], last["failed"]) == (True, ["overlap"])


def test_a_canary_has_its_users_in_every_worker_and_after_a_restart(start: Start, three: Path) -> None:
    service = start(workers=2)
    answer = admin(service, three, "routes", {"canary": {"version": "v2", "share": 0.3}})
    assert answer.json() == {
        "live": "v1",
        "canary": {"version": "v2", "share": 0.3},
        "shadow": None,
    }
    users = range(200)
    first = {user: ask(service, user_id=user, k=1)["version"] for user in users}
    share = list(first.values()).count("v2") / len(users)
    assert 0.15 < share < 0.45
    assert {user: ask(service, user_id=user, k=1)["version"] for user in users} == first
    service.stop()
    service = start(workers=2)
    assert {user: ask(service, user_id=user, k=1)["version"] for user in users} == first
    assert admin(service, three, "routes", {"canary": {"version": "v2", "share": 0.6}}).status_code == 200
    more = {user: ask(service, user_id=user, k=1)["version"] for user in users}
    assert all(more[user] == "v2" for user in users if first[user] == "v2")
    assert activate(service, three, "v2").status_code == 200, "a canary is promoted by activating it"
    assert admin(service, three, "routes").json() == {"live": "v2", "canary": None, "shadow": None}
    assert {ask(service, user_id=user, k=1)["version"] for user in users} == {"v2"}


def test_a_canary_that_does_not_pass_the_gate_is_refused(start: Start, three: Path) -> None:
    service = start(workers=2)
    damage(three, "v2")
    answer = admin(service, three, "routes", {"canary": {"version": "v2", "share": 0.3}})
    assert answer.status_code == 409
    assert "item_vectors.npy" in answer.json()["error"]["message"]
    assert admin(service, three, "routes").json()["canary"] is None


def test_a_shadow_answers_unseen_and_is_compared(start: Start, bundles: Path, make_contents: Make) -> None:
    publish(bundles, make_contents("twin"))
    service = start(workers=1)
    assert admin(service, bundles, "routes", {"shadow": {"version": "twin", "share": 1.0}}).status_code == 200
    for _ in range(10):
        assert ask(service, history=[101, 102])["version"] == "v1"
    until(lambda: metric(service, 'turret_shadow_answers_total{outcome="answered"}') == 10)
    assert metric(service, "turret_shadow_overlap ") == 1.0


# Runs in a mount namespace of its own: all is read-only but the folder of events, /tmp and /dev/shm too.
ENCLOSED = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
chmod 0777 /mnt
for place in $(awk '{print $2}' /proc/mounts | grep -v -e ^/proc -e ^/sys -e ^/mnt | sort -r); do
    mount -o remount,bind,ro "$place" 2>/dev/null || true
done
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""


def _can_enclose() -> bool:
    probe = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True, check=False
    )
    return probe.returncode == 0


@pytest.mark.fault(33)
@pytest.mark.skipif(not _can_enclose(), reason="making a mount namespace needs root")
def test_it_starts_where_everything_is_read_only_and_no_privilege_is_left(three: Path) -> None:
    """It serves, stores events on the one place that can be written, and refuses to activate in words."""
    settings = {
        "bundles": str(three),
        "port": 0,
        "store": "sqlite:////mnt/history.sqlite",
        "admin_key": "a-key",
        "admin_port": "same",
        "workers": 2,
        "drain_delay": 0,
        "overlap_minimum": 0,
    }
    enclose = ["unshare", "--mount", "bash", "-c", ENCLOSED, "enclosed"]
    process = subprocess.Popen(
        [*enclose, sys.executable, "-B", "-c", START, json.dumps(settings)],
        cwd=HERE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), "HOME": "/nonexistent"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            greeting = process.stdout.readline()
            if not greeting:
                raise AssertionError(process.stderr.read())
            url = greeting.split(" at ")[1].split()[0]
            with httpx2.Client(base_url=url, timeout=20, trust_env=False) as client:
                assert client.post("/v1/recommend", json={"history": [101]}).json()["version"] == "v1"
                event = {"event_id": 1, "user_id": 7, "item_id": 101, "time": 1}
                assert client.post("/v1/events", json={"events": [event]}).json()["stored"] == 1
                header = {"Authorization": "Bearer a-key"}
                refused = client.post("/admin/activate", json={"version": "v2"}, headers=header)
                assert refused.status_code == 409
                assert "can't be written" in refused.json()["error"]["message"]
                assert client.get("/readyz").json()["version"] == "v1"
                assert "turret" in client.get("/metrics").text
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert not (three / "activations.jsonl").exists()


def test_the_header_is_what_the_service_wrote(start: Start, bundles: Path) -> None:
    """Else every refusal above would be one of a wrong key."""
    assert admin_of(start(), bundles)["Authorization"] != "Bearer "
