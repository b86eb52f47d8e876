import asyncio
from pathlib import Path

import pytest

from tests.contracts.stores import THIRD_PARTY
from tests.support.service_process import Start
from turret.service.errors import ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import Stores
from turret.service.stores.memory import MemoryHistory
from turret.service.stores.redis.histories import RedisHistory
from turret.service.stores.registry import guarded, open_stores


def opened(address: str) -> Stores:
    return open_stores(Settings(store=address))


def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(opened("sqlite:///here/a.sqlite").close())
    asyncio.run(opened(f"sqlite:///{tmp_path}/there/b.sqlite").close())
    assert (tmp_path / "here" / "a.sqlite").exists()
    assert (tmp_path / "there" / "b.items.sqlite").exists()


def test_memory() -> None:
    assert isinstance(opened("memory://").histories, MemoryHistory)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "rediss+cluster"])
def test_redis_is_opened_before_it_is_there(scheme: str) -> None:
    assert isinstance(opened(f"{scheme}://127.0.0.1:1/0").histories, RedisHistory)


@pytest.mark.parametrize("address", ["", "sqlite", "mongodb://x", "/a/path"])
def test_other_addresses_are_refused_with_those_that_work(address: str) -> None:
    with pytest.raises(ServiceError, match=r"sqlite:///PATH.*redis://.*memory://.*journal:///PATH"):
        opened(address)
    with pytest.raises(ServiceError, match=r"or install a package .* entry point .* in turret\.stores"):
        opened(address)


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///"])
def test_a_file_needs_a_name(address: str) -> None:
    with pytest.raises(ServiceError, match="write sqlite:///PATH"):
        opened(address)


def test_a_password_is_not_in_a_refusal() -> None:
    with pytest.raises(ServiceError) as caught:
        opened("mysql://me:a-secret@host/0")
    assert "mysql://***@host/0" in str(caught.value)


def test_the_settings_are_those_of_the_breaker() -> None:
    settings = Settings(store="memory://", breaker_failures=1, breaker_seconds=30.0)
    breaker = guarded(open_stores(settings).histories, settings)
    circuit = breaker.circuits["read"]
    token = circuit.admit()
    assert token is not None
    circuit.fail(token)
    assert 29 < circuit.wait() <= 30


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder on the path, for packages that `add` installs."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def add(folder: Path, name: str, entry: str) -> None:
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[turret.stores]\n{entry}\n")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("not_there_at_all:STORE", "can't be loaded: .*No module named 'not_there_at_all'"),
        ("json:STORE", "can't be loaded: .*has no attribute 'STORE'"),
        ("json:dumps", "of the package faulty is .*, not of the type StoreKind"),
    ],
)
def test_a_faulty_package_is_named(package: Path, value: str, message: str) -> None:
    add(package, "faulty", f"faulty = {value}")
    with pytest.raises(ServiceError, match=message):
        opened("faulty://x")
    with pytest.raises(ServiceError, match=r"memory://.*faulty://"):
        opened("another://x")


def test_two_packages_with_one_scheme_are_refused(package: Path) -> None:
    add(package, "one", "both = one:STORE")
    add(package, "two", "both = two:STORE")
    with pytest.raises(ServiceError, match="one:STORE and two:STORE both add"):
        opened("both://x")


def test_no_package_replaces_a_shipped_store(package: Path) -> None:
    add(package, "thief", "memory = thief:STORE")
    assert isinstance(opened("memory://").histories, MemoryHistory)


def test_a_service_keeps_histories_in_a_store_of_another_package(start: Start, tmp_path: Path) -> None:
    """Events that one worker acknowledges are read by both."""
    before = f"import sys\nsys.path.append({str(THIRD_PARTY)!r})\n"
    service = start(before=before, store=f"journal:///{tmp_path}/histories.journal", workers=2)
    events = [{"event_id": "e", "user_id": 7, "item_id": 101}]
    assert service.client.post("/v1/events", json={"events": events}).status_code == 200
    for _ in range(4):
        answer = service.client.post("/v1/recommend", json={"user_id": 7}).json()
        assert (answer["degraded"], answer["items"][0]["source"]) == ([], "towers")
        assert service.client.get("/v1/users/7").json()["total"] == 1
    service.client.close()
    assert (tmp_path / "histories.journal").read_text().count("\n") == 1


FAULTY = """
from turret.service.stores.contract import StoreKind, Stores
class Faulty:
    def __getattr__(self, name):
        async def method(*arguments):
            raise KeyError("a bug in the package")
        return method
FAULTY = StoreKind("faulty://", lambda settings: Stores(Faulty(), Faulty()))
BROKEN = StoreKind("broken://", lambda settings: 1 / 0)
"""


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    """A package whose stores fail; gives the code that puts it on the path of a service."""
    add(tmp_path, "faulty", "faulty = faulty_store:FAULTY\nbroken = faulty_store:BROKEN")
    (tmp_path / "faulty_store.py").write_text(FAULTY)
    return f"import sys\nsys.path.append({str(tmp_path)!r})\n"


def test_a_service_continues_where_a_store_of_another_package_raises(start: Start, faulty: str) -> None:
    """From its start on: it answers without histories, refuses events, and logs the bug."""
    service = start(before=faulty, store="faulty://x")
    for request in ({"user_id": 7}, {"history": [101]}):
        answer = service.client.post("/v1/recommend", json=request)
        assert answer.status_code == 200
        assert answer.json()["degraded"] == (["history", "items"] if "user_id" in request else ["items"])
    events = [{"event_id": "e", "user_id": 7, "item_id": 101}]
    refused = service.client.post("/v1/events", json={"events": events})
    assert (refused.status_code, refused.json()["error"]["field"]) == (503, "store")
    assert "Retry-After" in refused.headers
    assert service.client.get("/v1/users/7").status_code == 503
    assert service.client.delete("/v1/items/101").status_code in (404, 503)
    status, log = service.stop()
    assert status == 0
    assert "of the package faulty: the history store failed in recent: KeyError" in log


def test_a_builder_that_raises_ends_the_start_with_a_sentence(start: Start, faulty: str) -> None:
    service = start(before=faulty, store="broken://x")
    _, log = service.process.communicate(timeout=20)
    last = log.splitlines()[-1]
    assert "broken" in last
    assert "StoreKind.open failed for 'broken://x': ZeroDivisionError: division by zero" in last
    assert "Traceback" not in log


def test_workers_that_share_no_store_are_warned_of(start: Start) -> None:
    status, log = start(store="memory://", workers=2).stop()
    assert (status, "each of the 2 workers has a store of its own" in log) == (0, True)
    status, log = start(store="memory://", workers=1).stop()
    assert (status, "a store of its own" in log) == (0, False)
