"""Keys that are wrong, missing or guessed; and nothing of any key in what the service writes."""

import secrets
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from tests.faults.asking import ASK, Asker, bearer, make
from tests.support.service_process import Process, Start
from turret.service.keys.key_file import remove_key

GUESSES = 100_000


def memory_of(service: Process) -> int:
    """The resident memory of the workers, in bytes."""
    pids = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * 4096


@pytest.mark.nightly
@pytest.mark.nightly
@pytest.mark.fault(26)
def test_a_hundred_thousand_guesses_cost_nothing_and_find_nothing(start: Start, bundles: Path) -> None:
    """Latency and memory are after them what they were before, and the right key is answered all along."""
    right = make(bundles, "shop", "read")
    service = start()
    asker = Asker(service)
    for _ in range(2000):
        asker.ask(f"turret_shop_{secrets.token_urlsafe(32)}")
    before, memory = asker.seconds(right), memory_of(service)
    statuses: Counter[int] = Counter()
    for number in range(GUESSES):
        name = "shop" if number % 2 else f"n{number}"
        statuses[asker.ask(f"turret_{name}_{secrets.token_urlsafe(32)}")] += 1
        if number % 10_000 == 0:
            assert asker.ask(right) == 200
    assert set(statuses) <= {401, 429}
    assert statuses[429] > 0.9 * GUESSES
    assert memory_of(service) - memory < 10_000_000
    assert asker.seconds(right) < 3 * before + 0.002
    asker.close()


@pytest.mark.fault(26)
def test_each_call_needs_a_key_of_its_scope(start: Start, bundles: Path) -> None:
    """On both ports; the probes are open, and an unknown key is the same as none."""
    keys = {name: make(bundles, name, name) for name in ("read", "write", "admin")}
    service = start(admin_port=0)
    client, admin = service.client, service.urls[-1]
    events = {"events": [{"event_id": "1", "user_id": "7", "item_id": 101}]}

    def statuses(headers: dict[str, str]) -> list[int]:
        return [
            client.post("/v1/recommend", content=ASK, headers=headers).status_code,
            client.post("/v1/events", json=events, headers=headers).status_code,
            client.get("/v1/users/7", headers=headers).status_code,
            httpx2.post(f"{admin}/admin/rollback", headers=headers, trust_env=False).status_code,
        ]

    assert statuses(bearer(keys["read"])) == [200, 403, 403, 403]
    assert statuses(bearer(keys["write"])) == [403, 200, 200, 403]
    assert statuses(bearer(keys["admin"]))[:3] == [403] * 3
    assert statuses(bearer(keys["admin"]))[3] == 409  # there is no version before this one
    assert statuses({}) == statuses(bearer("x")) == statuses(bearer(keys["read"][:-1])) == [401] * 4
    assert client.post("/admin/rollback", headers=bearer(keys["admin"])).status_code == 404
    assert [client.get(path).status_code for path in ("/livez", "/readyz")] == [200, 200]


@pytest.mark.fault(26)
def test_keys_change_while_the_service_runs(start: Start, bundles: Path) -> None:
    """Open as long as there is no file; then a new key counts, and a revoked one does not, within seconds."""
    service = start(workers=2)
    post = service.client.post

    def until(status: int, key: str | None) -> None:
        deadline = time.monotonic() + 5
        right = 0
        while right < 8:  # of both workers
            headers = {"Connection": "close", **(bearer(key) if key else {})}
            answer = post("/v1/recommend", content=ASK, headers=headers)
            right = right + 1 if answer.status_code == status else 0
            assert time.monotonic() < deadline, answer.text

    until(200, None)
    first = make(bundles, "first", "read")
    until(401, None)
    until(200, first)
    second = make(bundles, "second", "read")
    remove_key(bundles.parent / "keys.json", "first")
    until(401, first)
    until(200, second)
    (bundles.parent / "keys.json").write_text("{")
    time.sleep(1.2)
    until(200, second)
    until(401, None)
    _, complaints = service.stop()
    assert complaints.count("stay valid") in (1, 2)


@pytest.mark.fault(26)
def test_a_rate_is_of_a_key_and_of_all_workers_together(start: Start, bundles: Path) -> None:
    slow, fast = make(bundles, "slow", "read", rate=10), make(bundles, "fast", "read")
    service = start(workers=2)

    def count(key: str) -> Counter[int]:
        headers = {"Connection": "close", **bearer(key)}
        asked = [service.client.post("/v1/recommend", content=ASK, headers=headers) for _ in range(60)]
        for answer in asked:
            if answer.status_code == 429:
                assert int(answer.headers["Retry-After"]) >= 1
        return Counter(answer.status_code for answer in asked)

    began = time.monotonic()
    counted = count(slow)
    # A burst of a second and what comes in meanwhile; one more for each worker, by rounding.
    assert 5 <= counted[200] <= 10 + 10 * (time.monotonic() - began) + 2
    assert counted[429] >= 1
    assert count(fast) == {200: 60}


@pytest.mark.fault(26)
def test_nothing_of_a_key_is_ever_written(start: Start, bundles: Path) -> None:
    """Keys that are right, wrong, too long, in the path, in the query and in the body; nor in any file."""
    right = make(bundles, "shop", "read", "write")
    service = start(admin_port=0)
    admin_key = (bundles / "admin.key").read_text().strip()
    secret = right.rsplit("_", 1)[0][-6:] + right[-30:]
    sent = [right, right[:-1], right + "x", right * 20, admin_key, admin_key[:-1]]
    said = ""
    for key in sent:
        for method, url in (
            ("POST", "/v1/recommend"),
            ("GET", f"/v1/version?key={key[:90]}"),
            ("POST", f"{service.urls[-1]}/admin/activate"),
            ("POST", "/v1/events"),
            ("BREW", "/v1/version"),
        ):
            answer = service.client.request(method, url, content=b"{", headers=bearer(key))
            said += answer.text + str(answer.headers)
    said += service.client.get("/metrics").text + service.client.get("/openapi.json").text
    output, complaints = "", ""
    service.process.terminate()
    output, complaints = service.process.communicate(timeout=20)
    files = [one for one in bundles.parent.rglob("*") if one.is_file() and one.name != "admin.key"]
    said += output + complaints
    for text in (right[-30:], secret, admin_key[-30:], admin_key[:30]):
        assert text not in said
        assert not [one for one in files if text.encode() in one.read_bytes()]
