"""Redis search beside the contract: refusals, and drops that hold nobody up and leave nothing behind."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from redis import Redis

from tests.support.engine_servers import RedisSearchServer, running
from turret.tower.engines.engine import Engine, EngineField, EngineItems
from turret.tower.engines.opening import Limits, open_engine
from turret.tower.engines.where import AllMet, AnyMet, HasValue, InRange, NotMet
from turret.tower.errors import EngineError

ITEMS = EngineItems(np.random.default_rng(0).standard_normal((700, 4)).astype(np.float32), ())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisSearchServer]:
    with running("redis", tmp_path_factory.mktemp("redis")) as started:
        assert isinstance(started, RedisSearchServer)
        yield started


@pytest.fixture
def redis(server: RedisSearchServer) -> Iterator[Redis]:
    with Redis(port=server.port, protocol=2) as client:
        client.flushall()
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def engine(server: RedisSearchServer, redis: Redis) -> Iterator[Engine]:
    made = open_engine(server.url, Limits(search=1.0, load=10.0))
    made.check()
    yield made
    made.close()


def test_a_drop_leaves_no_hash_and_touches_no_other_key(engine: Engine, redis: Redis) -> None:
    engine.load("turret_a", ITEMS)
    engine.load("turret_ab", EngineItems(ITEMS.vectors[:10], ()))
    redis.set("turret_a", "of another program")
    engine.drop("turret_a")
    assert redis.dbsize() == 11
    assert engine.count("turret_ab") == 10


def test_a_drop_that_died_is_a_collection_to_be_dropped(
    engine: Engine, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.load("turret_a", ITEMS)
    call = engine._call  # type: ignore[attr-defined]

    def dying(*arguments: object) -> object:
        if arguments[0] == "UNLINK":
            raise EngineError("the server died")
        return call(*arguments)

    monkeypatch.setattr(engine, "_call", dying)
    with pytest.raises(EngineError, match="died"):
        engine.drop("turret_a")
    monkeypatch.undo()
    assert engine.count("turret_a") is None
    assert engine.collections("turret_") == ["turret_a"]
    engine.drop("turret_a")
    assert engine.collections("turret_") == []
    assert redis.dbsize() == 0


def test_a_collection_is_dropped_from_a_full_memory(engine: Engine, redis: Redis) -> None:
    engine.load("turret_a", ITEMS)
    redis.config_set("maxmemory", 1)
    with pytest.raises(EngineError, match="maxmemory"):
        engine.load("turret_b", ITEMS)
    engine.drop("turret_a")
    redis.config_set("maxmemory", 0)
    assert redis.dbsize() == 0


def test_a_server_that_may_evict_items_is_refused(engine: Engine, redis: Redis) -> None:
    redis.config_set("maxmemory-policy", "allkeys-lru")
    engine.check()
    redis.config_set("maxmemory", 10**9)
    with pytest.raises(EngineError, match=r"allkeys-lru.*set it to noeviction"):
        engine.check()


class PlainServer(RedisSearchServer):
    """Redis without the search module."""

    options: tuple[str, ...] = ()

    def _command(self) -> list[str]:
        return [str(self._program), "--port", str(self.port), "--bind", "127.0.0.1", *self.options]


class ClusterNode(PlainServer):
    """A node of a Redis Cluster."""

    options = ("--cluster-enabled", "yes")


@pytest.mark.parametrize(
    ("kind", "message"), [(PlainServer, "has no search; start one"), (ClusterNode, "Redis Cluster")]
)
def test_a_server_that_cannot_search_everything_is_refused(
    tmp_path: Path, kind: type[PlainServer], message: str
) -> None:
    try:
        started = kind(tmp_path)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    try:
        started.start()
        with pytest.raises(EngineError, match=message):
            open_engine(started.url, Limits(search=1.0, load=5.0)).check()
    finally:
        started.kill()


def test_the_url_of_a_cluster_is_refused() -> None:
    with pytest.raises(EngineError, match=r"redis\+cluster://engine:6379: in a Redis Cluster"):
        open_engine("redis+cluster://user:secret@engine:6379")


def test_a_negation_inside_another_one_loses_and_adds_nothing(engine: Engine) -> None:
    """Redis search answers with one item where a double negation that holds for all is intersected."""
    rows = np.arange(len(ITEMS), dtype=np.float64)
    no_codes = np.empty(0, dtype=np.int64)
    field = EngineField("number", rows, no_codes, no_codes)
    engine.load("turret_a", EngineItems(ITEMS.vectors, (field,)))
    everything, few = HasValue(0), InRange(0, None, 100.0, high_open=True)
    for where, count in (
        (AllMet((NotMet(NotMet(everything)), everything)), 700),
        (AllMet((NotMet(NotMet(everything)), NotMet(few))), 600),
        (NotMet(AllMet((NotMet(NotMet(everything)), everything))), 0),
        (NotMet(AllMet((NotMet(few), NotMet(NotMet(everything))))), 100),
        (NotMet(AnyMet((NotMet(few), NotMet(AllMet((everything, few)))))), 100),
    ):
        found = engine.search("turret_a", ITEMS.vectors[0], len(ITEMS), 1400, where)
        assert len(found) == count, where


def test_a_load_does_not_scan_the_keys_that_are_there(engine: Engine, redis: Redis) -> None:
    """Of a server with millions of keys, a scan takes longer than the load: here one would find a hash."""
    redis.hset("turret_a:900", "v", ITEMS.vectors[0].tobytes())
    engine.load("turret_a", ITEMS)
    assert engine.count("turret_a") == 700


def test_a_wrong_password_is_told_from_a_server_that_is_gone(server: RedisSearchServer, redis: Redis) -> None:
    made = open_engine(f"redis://:secret@127.0.0.1:{server.port}", Limits(search=1.0, load=10.0))
    with pytest.raises(EngineError, match=r"refuses user or password .*TURRET_ENGINE") as caught:
        made.check()
    assert "secret" not in str(caught.value)
    made.close()
