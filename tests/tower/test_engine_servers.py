"""The contract of engines, held to the engine of the tests, to Redis search and to Milvus really running."""

import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from redis import Redis

from benchmarks.engine_servers import SERVERS, EngineServer
from tests.support.memory_engine import MemoryEngine, met
from tests.support.tools import require
from tests.support.until import until
from turret.tower.catalog.columns import Interval
from turret.tower.catalog.conditions import Among, Condition, Every, Not, Present, Some, Within
from turret.tower.engines.engine import Engine, EngineField, EngineItems, Limits, open_engine
from turret.tower.errors import EngineError

LIMITS = Limits(search=5.0, load=60.0)
COUNT, WIDTH = 3000, 16


@pytest.fixture(
    scope="module",
    params=[
        "memory",
        pytest.param("redis", marks=pytest.mark.nightly),
        pytest.param("milvus", marks=pytest.mark.nightly),
    ],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineServer | None]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "memory":
        yield None
    else:
        # Milvus has a client of its own.
        require(*{"redis": ["redis_search"], "milvus": ["milvus", "milvus_server"]}[request.param])
        started = SERVERS[request.param](folder)
        try:
            started.start()
            yield started
        finally:
            started.kill()


@pytest.fixture(scope="module")
def engine(server: EngineServer | None) -> Iterator[Engine]:
    made = MemoryEngine("memory://", LIMITS) if server is None else open_engine(server.url, LIMITS)
    made.check()
    yield made
    made.close()


def codes(generator: np.random.Generator, count: int) -> EngineField:
    lengths = generator.integers(0, 4, count)
    found = [np.sort(generator.choice(12, length, replace=False)) for length in lengths]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return EngineField(np.concatenate(found).astype(np.int64), starts)


def some_items(count: int, seed: int = 0) -> EngineItems:
    """Around 40 directions; a number with gaps, two fields of codes, and a draw."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((40, WIDTH))
    vectors = centres[generator.integers(0, 40, count)] + 0.7 * generator.standard_normal((count, WIDTH))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    numbers = generator.integers(-5, 5, count) / 2
    numbers[generator.random(count) < 0.2] = np.nan
    draw = EngineField(generator.permutation(count).astype(np.float64))
    fields = (EngineField(numbers), codes(generator, count), codes(generator, count), draw)
    return EngineItems(vectors.astype(np.float32), fields)


ITEMS, FEW = some_items(COUNT), some_items(150)
QUERIES = some_items(25, seed=1).vectors


@pytest.fixture(scope="module")
def loaded(engine: Engine) -> str:
    engine.load("turret_items", ITEMS)
    return "turret_items"


def nearest(engine: Engine, loaded: str) -> list[set[int]]:
    return [set(engine.search(loaded, query, 10, 400).tolist()) for query in QUERIES]


def test_right_after_the_load_the_largest_effort_finds_the_best(engine: Engine, loaded: str) -> None:
    """A graph of which a tenth is allowed may be broken in parts at any effort: there the tuning finds none,
    and the items are searched exactly.
    """
    assert engine.count(loaded) == COUNT
    assert loaded in engine.collections("turret_")
    assert loaded not in engine.collections("turret_x")
    assert engine.count("turret_none") is None
    with pytest.raises((EngineError, KeyError), match=r"turret_none|not found|[nN]o such index"):
        engine.search("turret_none", QUERIES[0], 3, 100)
    for selectivity, enough in ((1.0, 0.99), (0.1, 0.9), (0.01, 0.99)):
        where = None if selectivity == 1 else Within("3", Interval(None, COUNT * selectivity, high_open=True))
        for k in (1, 10, 100):
            assert recall_of(engine, loaded, where, k) >= enough


def recall_of(engine: Engine, loaded: str, where: Condition | None, k: int) -> float:
    """The share of the best `k` allowed items that the largest effort finds, over all queries."""
    rows = np.arange(COUNT) if where is None else np.flatnonzero(met(where, ITEMS))
    shares = []
    for query in QUERIES:
        found = engine.search(loaded, query, k, engine.breadths(k)[-1], where)
        assert found.dtype == np.int64
        assert len(set(found.tolist())) == len(found) <= min(k, len(rows))
        assert set(found.tolist()) <= set(rows.tolist())
        best = rows[np.argsort(-(ITEMS.vectors[rows] @ query))[:k]]
        shares.append(len(set(best.tolist()) & set(found.tolist())) / len(best))
    return float(np.mean(shares))


def random_where(generator: np.random.Generator, depth: int) -> Condition:
    chosen = int(generator.integers(0, 7 if depth else 3))
    if chosen == 0:
        wanted = sorted(set(generator.integers(0, 14, generator.integers(0, 5)).tolist()))
        return Among(str(generator.integers(1, 3)), tuple(wanted))
    if chosen == 1:
        low, high = (float(bound) for bound in np.sort(generator.integers(-6, 6, 2) / 2))
        opens = [bool(generator.random() < 0.5) for _ in range(4)]
        interval = Interval(None if opens[0] else low, None if opens[1] else high, opens[2], opens[3])
        return Within("0", interval)
    if chosen == 2:
        return Present(str(generator.integers(0, 4)))
    inner = tuple(random_where(generator, depth - 1) for _ in range(generator.integers(1, 4)))
    return Not(inner[0]) if chosen == 3 else (Every if chosen == 4 else Some)(inner)


def test_a_collection_is_replaced_and_its_filters_allow_what_they_say(engine: Engine) -> None:
    """Every nesting and negation, empty sets, open and missing bounds, and items without a value."""
    engine.load("turret_few", some_items(20, seed=1))
    engine.load("turret_few", FEW)
    assert engine.count("turret_few") == len(FEW)
    generator = np.random.default_rng(7)
    for _ in range(150):
        where = random_where(generator, 3)
        found = engine.search("turret_few", FEW.vectors[0], len(FEW), 2 * len(FEW), where)
        assert sorted(found.tolist()) == np.flatnonzero(met(where, FEW)).tolist(), where
    for _ in range(2):
        engine.drop("turret_few")
    assert engine.count("turret_few") is None


def test_bounds_are_exact_to_the_last_digit(engine: Engine) -> None:
    """Numbers of every size, as values and as bounds, on either side of each; a catalog has no infinity."""
    numbers = [0.1 + 0.2, 0.3, -1e-7, 5e-324, 0.0, 1e16, 2.0**53 + 2, 1 / 3, -1.7e308, 1e300]
    field = EngineField(np.array([*numbers, np.nan]))
    items = EngineItems(FEW.vectors[: len(numbers) + 1], (field,))
    engine.load("turret_numbers", items)
    for bound in numbers:
        for is_open in (False, True):
            for where in (
                Within("0", Interval(bound, None, low_open=is_open)),
                Within("0", Interval(None, bound, high_open=is_open)),
                Not(Within("0", Interval(bound, bound, low_open=is_open))),
            ):
                found = engine.search("turret_numbers", FEW.vectors[0], len(items), 200, where)
                assert sorted(found.tolist()) == np.flatnonzero(met(where, items)).tolist(), where
    engine.drop("turret_numbers")


@pytest.mark.parametrize("scheme", ["redis", pytest.param("milvus", marks=pytest.mark.nightly)])
def test_an_engine_that_is_not_there_is_said(scheme: str) -> None:
    """Nothing listens on the port of tcpmux."""
    if scheme == "milvus":
        require("milvus")
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1 can't be reached.*start") as caught:
        open_engine(f"{scheme}://user:secret@127.0.0.1:1", Limits(search=1.0, load=1.0)).check()
    assert "secret" not in str(caught.value)


# --- Servers that hang and die


@pytest.mark.nightly
@pytest.mark.parametrize("server", ["redis", "milvus"], indirect=True)
def test_an_engine_that_hangs_is_left_within_the_limit(
    server: EngineServer, engine: Engine, loaded: str
) -> None:
    """The same engine answers when the server goes on."""
    assert server.process is not None
    hurried = open_engine(server.url, Limits(search=1.0, load=5.0))
    assert len(hurried.search(loaded, QUERIES[0], 3, 100)) == 3
    server.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(EngineError, match="too slow"):
            hurried.search(loaded, QUERIES[0], 3, 100)
    finally:
        server.process.send_signal(signal.SIGCONT)
    until(lambda: answers(hurried, loaded), "an answer of the server that goes on")
    hurried.close()


def answers(engine: Engine, loaded: str) -> bool:
    try:
        return len(engine.search(loaded, QUERIES[0], 3, 100)) == 3
    except EngineError:
        return False


@pytest.mark.nightly
@pytest.mark.parametrize("server", ["redis"], indirect=True)  # Milvus takes half a minute to come back
def test_an_engine_that_dies_and_comes_back(server: EngineServer, engine: Engine, loaded: str) -> None:
    before = nearest(engine, loaded)
    server.kill()
    with pytest.raises(EngineError, match=r"127\.0\.0\.1"):
        engine.search(loaded, QUERIES[0], 3, 100)
    starting = threading.Thread(target=server.start)
    starting.start()
    # It refuses as long as its index isn't whole: the first answer is as good as those before.
    until(lambda: answers(engine, loaded), "an answer of the server that is back")
    first = nearest(engine, loaded)
    starting.join()
    # The graph is built anew, perhaps in another order.
    shared = sum(len(one & other) for one, other in zip(first, before, strict=True))
    assert shared >= 0.99 * sum(map(len, before))


@pytest.mark.nightly
@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_a_drop_leaves_no_hash_and_touches_no_other_key(
    server: EngineServer, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that died half way is a collection to be dropped."""
    with Redis.from_url(server.url, protocol=2) as redis:
        before = redis.dbsize()
        engine.load("turret_drop", EngineItems(ITEMS.vectors, ()))
        engine.load("turret_drop2", EngineItems(FEW.vectors[:10], ()))
        redis.set("turret_drop", "of another program")
        call = engine._call  # type: ignore[attr-defined]

        def dying(*arguments: object) -> object:
            if arguments[0] == "UNLINK":
                raise EngineError("the server died")
            return call(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(engine, "_call", dying)
            with pytest.raises(EngineError, match="died"):
                engine.drop("turret_drop")
        assert engine.count("turret_drop") is None
        assert sorted(engine.collections("turret_drop")) == ["turret_drop", "turret_drop2"]
        engine.drop("turret_drop")
        assert engine.collections("turret_drop") == ["turret_drop2"]
        assert redis.dbsize() == before + 11
        engine.drop("turret_drop2")
        redis.delete("turret_drop")
