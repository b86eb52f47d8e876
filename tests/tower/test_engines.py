"""Versions on a vector engine, with an engine in this process: publication, searches, and what goes wrong."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from redis.exceptions import AuthenticationError, ResponseError
from typer.testing import CliRunner

import turret.cli
from tests.support.memory_engine import (
    ITEMS,
    URL,
    MemoryEngine,
    Server,
    engine_in_process,
    met,
    publish_shop,
    server,
    shop,
    user_vectors,
)
from tests.support.repeats import TERM
from tests.support.until import until
from tests.support.virtual_time import Clock
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.conditions import Within
from turret.tower.catalog.filters import compile_filter
from turret.tower.catalog.masks import RowMask
from turret.tower.engines import access, publishing
from turret.tower.engines.access import (
    Connection,
    connection,
    engine_url,
    set_access,
)
from turret.tower.engines.circuit import Circuit
from turret.tower.engines.engine import Engine, EngineItems, Limits, open_engine
from turret.tower.engines.engine_index import EngineIndex
from turret.tower.engines.fields import engine_fields, where_of
from turret.tower.engines.publishing import (
    NAMESPACE_FILE,
    collection_name,
    namespace,
    publish_to_engine,
)
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.index_settings import EngineEffort, EngineSettings
from turret.tower.format.listing import current
from turret.tower.format.manifest import MeasuredRecall, read_manifest
from turret.tower.index.index import Index
from turret.tower.index.planner import Planner
from turret.tower.retrieval import Retriever
from turret.tower.tuning.recall import measure_recall

__all__ = ["server", "shop"]  # fixtures
QUERIES = user_vectors(5)


@pytest.fixture
def clock() -> Clock:
    return Clock()


# --- Addresses


@pytest.mark.parametrize(
    "url",
    [
        "redis://[::1",
        "redis://user:secret@[::1",
        "localhost:6379",
        "http://a",
        "",
        "redis+cluster://u:secret@e",
    ],
)
def test_what_names_no_engine_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(EngineError, match=r"names no engine; write milvus://|in a Redis Cluster") as refused:
        open_engine(url)
    assert "secret" not in str(refused.value)


def test_another_address_is_taken_for_an_engine_of_the_same_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURRET_ENGINE", raising=False)
    monkeypatch.setattr(access, "_url", None)
    assert engine_url("redis://one:6379") == "redis://one:6379"
    monkeypatch.setenv("TURRET_ENGINE", "rediss://:secret@two:6379")
    assert engine_url("redis://one:6379") == "rediss://:secret@two:6379"
    assert engine_url("milvus://one:19530") == "milvus://one:19530"
    set_access("redis://three:6379")
    with pytest.raises(EngineError, match="'localhost:6379' names no engine"):
        set_access("localhost:6379")
    assert engine_url("redis://one:6379") == "redis://three:6379"


# --- The circuit, and the connection behind it


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


def test_it_opens_after_so_many_failures_in_a_row(circuit: Circuit) -> None:
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
    made = connection(URL)
    assert connection(URL) is made
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
        (ConnectionError("refused"), "can't be reached or is too slow .* start it, or name another"),
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


# --- Publication


def settings_of(folder: Path) -> EngineSettings:
    settings = read_manifest(folder).index
    assert isinstance(settings, EngineSettings)
    return settings


def test_a_version_is_loaded_tuned_and_measured(shop: Path, server: Server) -> None:
    told: list[str] = []
    target = publish_to_engine(shop / "v1", URL, report=told.append)
    assert target == shop / "v1-redis"
    assert current(shop) == "v1", "only an activation moves the pointer"
    manifest, settings = read_manifest(target), settings_of(target)
    assert settings.url == "redis://engine:6379"
    assert b"secret" not in b"".join(path.read_bytes() for path in target.iterdir())
    assert list(server.items) == [settings.collection]
    items = server.items[settings.collection]
    assert np.array_equal(items.vectors, np.load(shop / "v1" / "item_vectors.npy"))
    assert [field.starts is None for field in items.fields] == [True, False, False, True]
    cells = {(one.selectivity, one.k) for one in manifest.recall}
    assert cells == {
        *((1.0, k) for k in (10, 100, 1000)),
        *((share, k) for share in (0.3, 0.1) for k in (10, 100)),
        *((share, 10) for share in (0.03, 0.01)),
    }
    assert min(one.recall for one in manifest.recall) >= 0.99
    assert {(one.rows, one.k) for one in settings.efforts} > {(ITEMS, 10), (120, 32)}
    assert (settings.efforts[0].breadth or 0) >= MemoryEngine.enough, "a lower effort misses the best item"
    assert any("loading 1,200 items" in line for line in told)
    assert "secret" not in "".join(told)
    server.fault = "down"
    assert isinstance(load(shop, target.name).index, EngineIndex), "it opens while the engine is down"


def test_a_share_at_which_no_effort_suffices_is_searched_exactly(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between it and the next larger share, where nothing was measured."""
    search = MemoryEngine.search

    def misses(self: MemoryEngine, *given: Any) -> Any:
        where = given[4]
        self.enough = 10**9 if isinstance(where, Within) and where.interval.high == 0.3 * ITEMS else 40
        return search(self, *given)

    monkeypatch.setattr(MemoryEngine, "search", misses)
    told: list[str] = []
    settings = settings_of(publish_to_engine(shop / "v1", URL, report=told.append))
    assert settings.subset_rows == 360
    assert settings.breadth(ITEMS, 10) is not None
    assert settings.breadth(ITEMS - 1, 10) is None
    assert any("0.3 of the items are allowed: no effort for k = 10 (recall 0.9" in line for line in told)


@pytest.mark.parametrize("misses", [1, 3])
def test_efforts_that_miss_the_recall_on_more_queries_are_tuned_for_a_higher_one(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch, misses: int
) -> None:
    """And refused where no margin is enough."""
    tables: list[tuple[MeasuredRecall, ...]] = []
    targets: list[float] = []
    tuned = publishing._Tuner.index

    def some_miss(*given: Any, **named: Any) -> tuple[MeasuredRecall, ...]:
        first, *others = measure_recall(*given, **named)
        if len(tables) < misses:
            first = first.model_copy(update={"recall": 0.5})
        tables.append((first, *others))
        return tables[-1]

    def told(self: publishing._Tuner, target: float) -> Any:
        targets.append(target)
        return tuned(self, target)

    monkeypatch.setattr(publishing, "measure_recall", some_miss)
    monkeypatch.setattr(publishing._Tuner, "index", told)
    if misses == 3:
        with pytest.raises(BundleError, match="recall"):
            publish_to_engine(shop / "v1", URL)
        assert server.items == {}
    else:
        target = publish_to_engine(shop / "v1", URL)
        assert read_manifest(target).recall == tables[1]
    assert targets == pytest.approx([0.992, 0.995, 0.998][: misses + 1])


def test_the_command_publishes_on_the_engine_of_the_environment(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURRET_ENGINE", raising=False)
    words = ["publish", str(shop), "--version", "served", "--json"]
    refused = CliRunner().invoke(turret.cli.app, words)
    assert "no engine is named: add --engine" in refused.stderr
    done = CliRunner().invoke(turret.cli.app, words, env={"TURRET_ENGINE": URL})
    assert json.loads(done.stdout)["version"] == "served"
    assert isinstance(settings_of(shop / "served"), EngineSettings)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("enough", 10**9, r"fewer than 0.992 of the true best 10 .* nothing was published"),
        ("count", lambda *_: ITEMS - 1, "holds 1199 of 1200 items"),
    ],
)
def test_an_engine_that_misses_items_is_refused(
    shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch, name: str, changed: Any, message: str
) -> None:
    monkeypatch.setattr(MemoryEngine, name, changed)
    with pytest.raises((BundleError, EngineError), match=message):
        publish_to_engine(shop / "v1", URL)
    assert not (shop / "v1-redis").exists()
    assert server.items == {}


def test_a_publication_that_died_is_cleared_away_by_the_next(shop: Path, server: Server) -> None:
    """So is one of a deleted version; those of other versions, and of other folders on this engine, stay."""
    live, _ = (settings_of(publish_to_engine(shop / "v1", URL, version=name)) for name in ("one", "gone"))
    of_others = server.items["turret_0123456789ab_v1_0"] = server.items[live.collection]
    server.fault = "load"
    drop = MemoryEngine.drop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryEngine, "drop", lambda self, name: self.server.items["dead"] or drop(self, name))
        with pytest.raises((EngineError, KeyError)):
            publish_to_engine(shop / "v1", URL, version="two")
    assert len(server.items) == 4
    server.fault = None
    (shop / "gone").rename(shop.parent / "gone")
    told: list[str] = []
    two = settings_of(publish_to_engine(shop / "v1", URL, version="two", report=told.append))
    assert set(server.items) == {live.collection, two.collection, "turret_0123456789ab_v1_0"}
    assert server.items["turret_0123456789ab_v1_0"] is of_others
    assert sum("dropped the collection" in line for line in told) == 2


def test_a_version_that_can_not_be_read_keeps_all_collections(shop: Path, server: Server) -> None:
    one = publish_to_engine(shop / "v1", URL, version="one")
    collection = settings_of(one).collection
    (one / "manifest.json").chmod(0o644)
    (one / "manifest.json").write_text("{}")
    told: list[str] = []
    publish_to_engine(shop / "v1", URL, version="two", report=told.append)
    assert collection in server.items
    assert any("no collection is dropped" in line for line in told)


@pytest.mark.parametrize(
    ("url", "recall", "version", "message"),
    [
        ("ftp://engine", 0.99, None, "names no engine; write milvus://"),
        (URL, 1.5, None, "a recall is above 0 and at most 1"),
        (URL, 0.99, "v1", "exists, and a published bundle is never changed"),
        (URL, 0.99, "down", "can't be reached"),
    ],
)
def test_a_publication_that_is_refused_leaves_nothing(
    shop: Path, server: Server, url: str, recall: float, version: str | None, message: str
) -> None:
    server.fault = version
    with pytest.raises((BundleError, EngineError), match=message):
        publish_to_engine(shop / "v1", url, recall, version)
    assert server.items == {}


# --- The names of collections


def test_a_folder_keeps_its_names_and_no_other_has_them(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    assert namespace(folders[0]) == namespace(folders[0]) != namespace(folders[1])
    first, second = (collection_name(folders[0], "spring.2-a") for _ in range(2))
    assert first != second
    assert first.startswith(f"{namespace(folders[0])}_spring_2_a_")
    effort = {"rows": 1, "k": 1, "breadth": 1, "recall": 1.0}
    fields = {"engine": "redis", "url": URL, "efforts": (effort,)}
    longest = collection_name(folders[0], "v" * 64)
    EngineSettings.model_validate({**fields, "collection": longest})
    (folders[0] / NAMESPACE_FILE).write_text("*")
    with pytest.raises(BundleError, match="names no collections; write back its content"):
        namespace(folders[0])


# --- Filters in the engine's words

FIELDS: dict[str, list[Any]] = {
    "title": ["Heat", "Alien", None, "Łódź", "Heat"],
    "genres": [["Drama", "Crime"], ["Drama"], [], None, ["Comedy"]],
    "year": [1995, 1979, None, 2001.5, 1995],
    "sizes": [[1, 2.5], [], [2.5], None, [7]],
    "new": [True, False, None, True, False],
    "odd": [1, "one", None, 2, 3],
    "none": [None] * 5,
}
FILTERS: list[dict[str, Any]] = [
    {},
    {"title": {"equals": "Heat"}},
    {"title": {"any_of": ["Heat", "nothing"]}},
    {"title": {"none_of": ["Heat"]}},
    {"title": {"gte": "B", "lt": "Z"}},
    {"genres": {"any_of": ["Drama", "Comedy"]}},
    {"genres": {"any_of": []}},
    {"genres": {"not_null": False}},
    {"year": {"gt": 1979, "lte": 2001.5}},
    {"year": {"any_of": [1979, 1995]}},
    {"year": {"any_of": []}},
    {"sizes": {"gte": 2, "lt": 7}},
    {"sizes": {"equals": 2.5}},
    {"new": {"equals": True}},
    {"new": {"equals": False}},
    {"odd": {"not_null": True}},
    {"none": {"not_null": True}},
    {"not": {"year": {"gte": 1990}}},
    {"any": [{"year": {"lt": 1990}}, {"genres": {"equals": "Comedy"}}], "new": {"not_null": True}},
    {"any": []},
    {"all": []},
    {"not": {"any": [{"title": {"equals": "Heat"}}, {"not": {"genres": {"not_null": True}}}]}},
]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.build(range(5), FIELDS)


@pytest.mark.parametrize("given", FILTERS, ids=str)
def test_the_engine_is_asked_for_the_items_that_the_filter_allows(
    catalog: Catalog, given: dict[str, Any]
) -> None:
    items = EngineItems(np.zeros((5, 2), dtype=np.float32), engine_fields(catalog))
    filtering = compile_filter(given, catalog)
    where = where_of(filtering.condition, catalog)
    assert where is not None
    assert met(where, items).tolist() == filtering.allowed().mask.tolist()


def test_a_range_of_very_many_texts_is_not_sent() -> None:
    catalog = Catalog.build(range(3000), {"name": [f"n{row:04d}" for row in range(3000)]})
    few, many = {"name": {"lt": "n0500"}}, {"name": {"lt": "n2500"}}
    assert where_of(compile_filter(few, catalog).condition, catalog) is not None
    assert where_of(compile_filter(many, catalog).condition, catalog) is None
    assert where_of(compile_filter({"not": many}, catalog).condition, catalog) is None
    assert where_of(compile_filter({"any": [few, many]}, catalog).condition, catalog) is None


# --- Searches


@pytest.fixture(scope="module")
def on_engine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Server]:
    """A bundle that is published on the engine, and the state of that."""
    root = publish_shop(tmp_path_factory.mktemp("published") / "shop")
    with pytest.MonkeyPatch.context() as patch:
        made = engine_in_process(patch)
        return load(root, publish_to_engine(root / "v1", URL).name), made


@pytest.fixture
def bundle(on_engine: tuple[Bundle, Server], server: Server) -> Bundle:
    """Published on the engine; only single rows are searched exactly."""
    bundle, published = on_engine
    server.items = dict(published.items)
    settings = bundle.manifest.index
    assert isinstance(settings, EngineSettings)
    efforts = tuple(EngineEffort(rows=rows, k=100, breadth=900, recall=1.0) for rows in (ITEMS, 120, 12))
    settings = settings.model_copy(update={"subset_rows": 1, "efforts": efforts})
    bundle.index = EngineIndex(bundle.vectors, settings, connection(URL))
    server.searches.clear()
    return bundle


def found(index: Index, k: int, allowed: RowMask | None = None) -> list[list[int]]:
    return [index.nearest(query, k, allowed)[0].tolist() for query in QUERIES]


def filtered(bundle: Bundle, given: dict[str, Any]) -> RowMask:
    return compile_filter(given, bundle.catalog).allowed()


def test_answers_are_those_of_the_exact_search(bundle: Bundle, server: Server) -> None:
    for k in (1, 10, 100):
        assert found(bundle.index, k) == found(bundle.index.exact, k)
    _, scores = bundle.index.nearest(QUERIES[0], 10)
    assert np.array_equal(scores, bundle.index.exact.nearest(QUERIES[0], 10)[1])
    assert len(server.searches) == 16
    assert {where for *_, where in server.searches} == {None}
    server.searches.clear()
    assert found(bundle.index, 500) == found(bundle.index.exact, 500)
    assert server.searches == [], "more than was measured"


def test_items_of_the_history_are_scored_here_and_merged(bundle: Bundle, server: Server) -> None:
    """With a repeat term the engine is asked for the other items alone."""
    bonus = TERM.bonus(np.array([5, 7, 5, 9]), bundle.popularity)
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


def test_many_withdrawn_items_without_a_filter_are_dropped_from_more(bundle: Bundle, server: Server) -> None:
    few, many = np.ones(ITEMS, dtype=bool), np.ones(ITEMS, dtype=bool)
    few[::3], many[: ITEMS * 2 // 3] = False, False
    assert found(bundle.index, 10, RowMask(few)) == found(bundle.index.exact, 10, RowMask(few))
    assert len(server.searches) >= len(QUERIES)
    server.searches.clear()
    assert found(bundle.index, 10, RowMask(many)) == found(bundle.index.exact, 10, RowMask(many))
    assert server.searches == []


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
