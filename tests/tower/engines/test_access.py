from dataclasses import replace

import pytest

from tests.tower.engines.conftest import URL, user_vectors
from tests.tower.engines.memory_engine import Server
from turret.tower.engines.access import Access, connection, engine_url, set_access
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


def test_a_fault_of_the_caller_does_not_open_the_circuit(server: Server) -> None:
    made = connection(URL)
    for _ in range(5):
        with pytest.raises(KeyError):
            made.search("turret_none", user_vectors(1)[0], 3, 9, None)
