import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat

import pytest

from tests.tower.engines.conftest import URL, user_vectors
from tests.tower.engines.memory_engine import MemoryEngine, Server
from turret.tower.engines import access
from turret.tower.engines.access import (
    Access,
    Connection,
    connection,
    current_access,
    engine_url,
    set_access,
)
from turret.tower.engines.engine import Engine
from turret.tower.engines.opening import Limits
from turret.tower.errors import EngineError


def test_another_address_is_taken_for_an_engine_of_the_same_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    set_access(Access())
    monkeypatch.delenv("TURRET_ENGINE", raising=False)
    assert engine_url("redis://one:6379") == "redis://one:6379"
    monkeypatch.setenv("TURRET_ENGINE", "rediss://:secret@two:6379")
    assert engine_url("redis://one:6379") == "rediss://:secret@two:6379"
    assert engine_url("milvus://one:19530") == "milvus://one:19530"
    set_access(Access(url="redis://three:6379"))
    assert engine_url("redis://one:6379") == "redis://three:6379"
    assert "secret" not in repr(Access(url="redis://:secret@two"))
    set_access(Access())


def test_an_address_of_no_engine_is_refused_when_it_is_set() -> None:
    before = current_access()
    with pytest.raises(EngineError, match="'localhost:6379' names no engine"):
        set_access(Access(url="localhost:6379"))
    assert current_access() is before


def test_versions_share_a_connection_whose_circuit_opens(server: Server) -> None:
    made = connection(URL)
    assert connection(URL) is made
    assert made.address == "redis://engine:6379"
    server.fault = "down"
    query = user_vectors(1)[0]
    for _ in range(3):
        with pytest.raises(EngineError, match="can't be reached"):
            made.search("turret_items", query, 3, 9, None)
    with pytest.raises(EngineError, match="redis://engine:6379 failed; the next try"):
        made.search("turret_items", query, 3, 9, None)
    set_access(replace(Access(), pause=9.0))
    assert connection(URL) is not made
    set_access(Access())


def test_the_first_of_several_failures_is_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Where requests are few, the circuit would open much later."""
    made = connection(URL)
    server.fault = "down"
    for _ in range(2):
        with pytest.raises(EngineError):
            made.search("turret_items", user_vectors(1)[0], 3, 9, None)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("vector engine at redis://engine:6379 failed: the engine at ")


def test_a_fault_of_the_caller_does_not_open_the_circuit(server: Server) -> None:
    made = connection(URL)
    for _ in range(5):
        with pytest.raises(KeyError):
            made.search("turret_none", user_vectors(1)[0], 3, 9, None)


def searched(made: Connection) -> str:
    """The message of a search of a collection, empty where it succeeded."""
    try:
        made.search("turret_items", user_vectors(1)[0], 3, 9, None)
    except KeyError:  # the engine is open, and has no such collection
        return ""
    except EngineError as error:
        return str(error)
    return ""


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Engine]], list[float]]:
    """Replace `open_engine`; returns the times of its calls."""

    def replaced(made: Callable[[], Engine]) -> list[float]:
        calls: list[float] = []

        def fake(url: str, limits: Limits) -> Engine:
            calls.append(time.monotonic())
            return made()

        monkeypatch.setattr(access, "open_engine", fake)
        return calls

    return replaced


Opening = Callable[[Callable[[], Engine]], list[float]]


def test_searches_share_one_attempt_to_connect(opening: Opening, server: Server) -> None:
    """None waits for the attempt of another after its own; the next search tries again."""
    asking = threading.Event()

    def slowly() -> Engine:
        asking.wait(10)
        time.sleep(0.1)
        raise EngineError("can't be reached")

    calls = opening(slowly)
    made = Connection(URL, Access(failures=99))
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(searched, repeat(made, 8))
        asking.set()
        assert set(answers) == {"can't be reached"}
    assert len(calls) < 4  # a search that its thread begins late may connect anew
    opening(lambda: MemoryEngine(URL, Limits()))
    assert searched(made) == ""


def test_an_open_circuit_refuses_at_once_while_the_trial_connects(opening: Opening, server: Server) -> None:
    is_over = threading.Event()

    def down() -> Engine:
        raise EngineError("can't be reached")

    def hanging() -> Engine:
        is_over.wait(10)
        return MemoryEngine(URL, Limits())

    made = Connection(URL, Access(failures=1, pause=0.0))
    opening(down)
    assert searched(made) == "can't be reached"
    calls = opening(hanging)
    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(searched, made)
        while not calls:
            time.sleep(0.001)
        begun = time.monotonic()
        assert "the next try is in some seconds" in searched(made)
        assert time.monotonic() - begun < 5
        is_over.set()
        assert trial.result() == ""


def test_a_search_waits_for_another_connection_no_longer_than_its_limit(
    opening: Opening, server: Server
) -> None:
    is_over = threading.Event()

    def hanging() -> Engine:
        is_over.wait(10)
        return MemoryEngine(URL, Limits())

    calls = opening(hanging)
    made = Connection(URL, Access(seconds=0.05))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(searched, made)
        while not calls:
            time.sleep(0.001)
        assert "took no connection within 0.05 s" in searched(made)
        is_over.set()
        assert first.result() == ""
    assert len(calls) == 1
