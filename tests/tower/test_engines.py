"""Versions on a vector engine, with an engine in this process: searches and failures."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from redis.exceptions import AuthenticationError, ResponseError

from tests.support.memory_engine import (
    ITEMS,
    URL,
    MemoryEngine,
    Server,
    publish_shop,
    server,
    user_vectors,
)
from tests.support.repeats import TERM
from tests.support.until import until
from tests.support.virtual_time import Clock
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.filters import compile_filter
from turret.tower.catalog.masks import RowMask
from turret.tower.engines import access
from turret.tower.engines.access import (
    Connection,
    check_loaded,
    connection,
    engine_url,
    inherited_access,
    set_access,
)
from turret.tower.engines.circuit import Circuit
from turret.tower.engines.engine import Engine, EngineItems, Limits, open_engine
from turret.tower.engines.engine_index import EngineIndex
from turret.tower.engines.fields import engine_fields
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.index_settings import EngineEffort, EngineSettings
from turret.tower.index.index import Index
from turret.tower.index.planner import Planner
from turret.tower.repeats import ItemUse
from turret.tower.retrieval import Retriever

__all__ = ["server"]  # a fixture
QUERIES = user_vectors(5)


# --- Addresses


@pytest.mark.parametrize(
    "url", ["redis://user:secret@[::1", "localhost:6379", "", "redis+cluster://u:secret@e"]
)
def test_what_names_no_engine_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(EngineError, match=r"names no engine; write milvus://|in a Redis Cluster") as refused:
        open_engine(url, Limits())
    assert "secret" not in str(refused.value)


def test_the_operator_alone_names_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each product, by the environment or by the settings of the service."""
    monkeypatch.delenv("TURRET_ENGINE", raising=False)
    monkeypatch.setattr(access, "_urls", None)
    assert engine_url("redis") is None
    monkeypatch.setenv("TURRET_ENGINE", " rediss://:secret@two:6379 ")
    assert (engine_url("redis"), engine_url("milvus")) == ("rediss://:secret@two:6379", None)
    set_access("redis://three:6379 milvus://four:19530")
    assert (engine_url("redis"), engine_url("milvus")) == ("redis://three:6379", "milvus://four:19530")
    assert inherited_access() == {"TURRET_ENGINE": "redis://three:6379 milvus://four:19530"}
    refused = {"redis://a redis://b": "two addresses of redis; keep one", "http://a": "names no engine"}
    for urls, words in refused.items():
        with pytest.raises(EngineError, match=words):
            set_access(urls)
    assert engine_url("redis") == "redis://three:6379"


def test_an_engine_that_is_not_named_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, published: Bundle
) -> None:
    """The exact search answers, and no such version is activated."""
    monkeypatch.delenv("TURRET_ENGINE", raising=False)
    monkeypatch.setattr(access, "_urls", None)
    words = (
        "searched on milvus, and no address of one is named; set TURRET_ENGINE, such as milvus://HOST:19530"
    )
    assert words in searched(connection("milvus"))
    effort = EngineEffort(rows=ITEMS, k=100, breadth=900, recall=1.0)
    settings = EngineSettings(engine="milvus", collection="turret_items", efforts=(effort,))
    with pytest.raises(BundleError, match=words):
        check_loaded(published.manifest.model_copy(update={"index": settings}))
    index = EngineIndex(published.vectors, settings, connection("milvus"))
    planner = Planner(index, published.manifest.scoring)
    assert planner.nearest(QUERIES[0], 10).plan.kind == "fallback"


# --- The circuit, and the connection behind it


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def circuit(clock: Clock) -> Circuit:
    return Circuit(failures=3, seconds=10.0, clock=clock)


def enter(circuit: Circuit) -> object:
    token = circuit.admit()
    assert token is not None
    return token


def fail(circuit: Circuit, times: int) -> None:
    for _ in range(times):
        circuit.fail(enter(circuit))


def test_a_circuit_opens_after_so_many_failures_in_a_row(circuit: Circuit) -> None:
    fail(circuit, 2)
    circuit.succeed(enter(circuit))
    fail(circuit, 2)
    assert (circuit.state, circuit.wait()) == ("closed", 0)
    fail(circuit, 1)
    assert (circuit.state, circuit.wait()) == ("open", 10)
    assert circuit.admit() is None


def test_after_its_time_one_call_tries_and_the_others_are_refused(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now += 9.9
    assert circuit.admit() is None
    clock.now += 0.1
    assert circuit.wait() == 0
    trial = enter(circuit)
    states = [circuit.state]
    assert circuit.admit() is None
    circuit.succeed(trial)
    fail(circuit, 2)
    assert [*states, circuit.state] == ["half_open", "closed"]


def test_a_trial_that_fails_opens_it_for_as_long_again(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now += 10
    fail(circuit, 1)
    assert (circuit.state, circuit.wait()) == ("open", 10)
    clock.now += 10
    circuit.cancel(enter(circuit))  # a caller that went away leaves the trial to the next
    circuit.succeed(enter(circuit))
    assert circuit.state == "closed"


def test_answers_to_calls_from_before_it_opened_change_nothing(circuit: Circuit, clock: Clock) -> None:
    """An old success doesn't close it, an old failure doesn't keep it open for longer."""
    early, late, gone = enter(circuit), enter(circuit), enter(circuit)
    fail(circuit, 3)
    circuit.succeed(early)
    clock.now += 5
    circuit.fail(late)
    circuit.cancel(gone)
    assert (circuit.state, circuit.wait()) == ("open", 5)


def searched(made: Connection) -> str:
    """The message of a search, empty where it succeeded."""
    MemoryEngine.server.items["turret_items"] = EngineItems(np.eye(8, dtype=np.float32), ())
    try:
        made.search("turret_items", QUERIES[0], 3, 40, None, 8)
    except EngineError as error:
        return str(error)
    return ""


def test_versions_share_a_connection_whose_circuit_opens(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The first failure is logged: where requests are few, the circuit would open much later."""
    made = connection("redis")
    assert connection("redis") is made
    assert made.address == "redis://engine:6379"
    assert searched(made) == ""
    server.fault = "down"
    for _ in range(4):
        assert "can't be reached" in searched(made)
    (line,) = caplog.messages
    assert line.startswith("vector engine at redis://engine:6379 failed: the engine at ")
    assert "can't be reached" in searched(made)
    assert caplog.messages[1] == "vector engine at redis://engine:6379 unavailable: circuit open"
    assert "redis://engine:6379 failed; the next try" in searched(made)


def test_an_open_circuit_refuses_at_once_while_the_trial_connects(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    calls, is_over = list[str](), threading.Event()

    def connect(url: str, limits: Limits) -> Engine:
        calls.append(url)
        if len(calls) == 1:
            raise EngineError("can't be reached")
        is_over.wait(60)
        return MemoryEngine(url, limits)

    monkeypatch.setattr(access, "open_engine", connect)
    made = Connection(URL, 60.0, Circuit(failures=1, seconds=0.0))
    assert searched(made) == "can't be reached"
    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(searched, made)
        until(lambda: len(calls) == 2, "the trial")
        assert "the next try is in some seconds" in searched(made)
        is_over.set()
        assert trial.result() == ""


REPLIES = [[], None, 3, b"OK", [1, b"c:nan"], [1, b"c:99999999999999999999"], [1, b""], [1, 5], [1, None]]


@pytest.mark.parametrize("reply", REPLIES, ids=repr)
def test_a_reply_that_no_redis_search_gives_is_an_engine_error(
    monkeypatch: pytest.MonkeyPatch, reply: Any
) -> None:
    engine = open_engine("redis://engine:6379", Limits())
    for client in ("_search_client", "_client"):
        monkeypatch.setattr(getattr(engine, client), "execute_command", lambda *_: reply)
    for method, *given in (("search", "c", QUERIES[0], 3, 9), ("count", "c"), ("check",)):
        with pytest.raises(EngineError, match="can't be read"):
            getattr(engine, str(method))(*given)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ResponseError("unknown command 'FT.SEARCH'"), "has no search; start one with the search module"),
        (ResponseError("c: no such index"), "c: no such index; publish the version there"),
        (ResponseError("OOM command not allowed"), "engine:6379 refuses: OOM command not allowed"),
        (AuthenticationError("WRONGPASS"), "refuses user or password .* TURRET_ENGINE"),
    ],
)
def test_a_failure_of_redis_is_told_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    engine = open_engine("redis://:secret@engine:6379", Limits())

    def fails(*given: Any) -> None:
        raise error

    for client in ("_search_client", "_client"):
        monkeypatch.setattr(getattr(engine, client), "execute_command", fails)
    with pytest.raises(EngineError, match=words) as told:
        engine.search("c", QUERIES[0], 3, 9)
    assert "secret" not in str(told.value)
    if "no such index" in words:
        assert engine.count("c") is None


# --- Searches


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return Bundle.open(publish_shop(tmp_path_factory.mktemp("published")) / "v1")


@pytest.fixture
def bundle(published: Bundle, server: Server) -> Bundle:
    """Its items are on the engine; only single rows are searched exactly."""
    collection = "turret_items"
    server.items[collection] = EngineItems(published.vectors, engine_fields(published.catalog))
    efforts = tuple(EngineEffort(rows=rows, k=100, breadth=900, recall=1.0) for rows in (ITEMS, 120, 12))
    settings = EngineSettings(engine="redis", collection=collection, efforts=efforts, subset_rows=1)
    published.index = EngineIndex(published.vectors, settings, connection("redis"))
    return published


def found(index: Index, k: int, allowed: RowMask | None = None) -> list[list[int]]:
    return [index.nearest(query, k, allowed)[0].tolist() for query in QUERIES]


def filtered(bundle: Bundle, given: dict[str, Any]) -> RowMask:
    return compile_filter(given, bundle.catalog).allowed()


def test_more_than_was_measured_is_searched_exactly(bundle: Bundle, server: Server) -> None:
    for k, searches in ((100, len(QUERIES)), (500, 0)):
        server.searches.clear()
        assert found(bundle.index, k) == found(bundle.index.exact, k)
        assert len(server.searches) == searches


def test_items_of_the_history_are_scored_here_and_merged(bundle: Bundle, server: Server) -> None:
    """With a repeat term the engine is asked for the other items alone."""
    bonus = TERM.bonus(np.array([5, 7, 5, 9]), ItemUse(bundle.popularity, bundle.usual_gaps))
    for query in QUERIES:
        exact = Retriever(bundle, bundle.index.exact).nearest(query, 10, bonus=bonus)
        answer = Retriever(bundle).nearest(query, 10, bonus=bonus)
        assert answer.rows.tolist() == exact.rows.tolist()
        assert np.array_equal(answer.scores, exact.scores)
    assert server.searches


def test_the_engine_filters(bundle: Bundle, server: Server) -> None:
    for given, breadth in (({"year": {"lt": 1960}}, 900), ({"year": {"equals": 1903}}, None)):
        server.searches.clear()
        mask = filtered(bundle, given)
        assert found(bundle.index, 5, mask) == found(bundle.index.exact, 5, mask)
        where = {(effort, asked is None) for _, _, effort, asked in server.searches}
        assert where == ({(breadth, False)} if breadth else set()), "below a hundredth nothing was measured"


def test_withdrawn_and_replaced_items_are_respected(bundle: Bundle, server: Server) -> None:
    """The mask has lost rows that meet the filter, and has got rows that don't in the engine."""
    base = filtered(bundle, {"year": {"lt": 2000}})
    mask = base.mask.copy()
    mask[bundle.index.exact.nearest(QUERIES[0], 6, base)[0][:3]] = False
    outside = np.flatnonzero(~base.mask)
    mask[outside[np.argsort(-(bundle.vectors[outside] @ QUERIES[0]))[:2]]] = True
    changed = RowMask(mask, base.origin)
    assert found(bundle.index, 10, changed) == found(bundle.index.exact, 10, changed)
    assert len(server.searches) == len(QUERIES)


@pytest.mark.parametrize("fault", ["short", "wrong", "odd"])
def test_short_and_wrong_answers_are_replaced_and_open_the_circuit(
    bundle: Bundle, server: Server, fault: str
) -> None:
    """A filter may leave an answer short; without one, an engine that answers short has lost items."""
    mask = filtered(bundle, {"year": {"lt": 1960}})
    planner = Planner(bundle.index, bundle.manifest.scoring)
    server.fault = fault
    for allowed in (mask, None):
        rows = [planner.nearest(query, 10, allowed=allowed).rows.tolist() for query in QUERIES]
        assert rows == found(bundle.index.exact, 10, allowed)
        if fault == "short" and allowed is not None:
            assert len(server.searches) == len(QUERIES)
            server.searches.clear()
    assert len(server.searches) == 5, "as many failures open the circuit"
    assert planner.nearest(QUERIES[0], 10).plan.kind == "fallback"
