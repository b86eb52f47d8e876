"""A version beside the live one, which the workers hold no longer than it is used."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.virtual_time import in_virtual_time, run
from turret.service import components as composition
from turret.service.compare import opening
from turret.service.compare.chosen import ChosenVersion
from turret.service.compare.opening import WATCH_SECONDS, VersionOpener
from turret.service.compare.overlap import measure_overlap, recorded_queries, stored_queries
from turret.service.compare.sides import Side, overlap_between
from turret.service.components import Components
from turret.service.errors import ConflictError, HistoryUnavailableError, NotFoundError
from turret.service.overlay.apply_changes import empty_overlay
from turret.service.ranking.query import Query, make_query
from turret.service.schemas.requests import RecommendRequest
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.service.stores.contract import Event, History
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.service.versions.activation import Activator
from turret.service.versions.gate import GateRequest, Passage, pass_gate, read_report
from turret.service.versions.holder import ModelHolder
from turret.service.versions.loaded_model import LoadedModel, open_live
from turret.service.worker_context import WorkerContext
from turret.tower.bundle.publish import BundleContents, publish

Make = Callable[..., BundleContents]
MakeSide = Callable[..., Side]


# --- Two sides


@pytest.fixture
def make_side(tmp_path: Path, make_contents: Make) -> MakeSide:
    """Publish a version and open it."""

    def make(version: str, **contents: object) -> Side:
        publish(tmp_path / "published", make_contents(version, **contents))
        model = open_live(tmp_path / "published", version)
        return Side(model, empty_overlay(model.bundle))

    return make


@pytest.mark.parametrize(
    ("live", "other", "overlap"),
    [
        ([1, 2, 3, 4], [4, 3, 9, 8], 0.5),
        ([1], [1, 2, 3, 4], 0.25),
        ([], [1], 0.0),
        ([], [], 1.0),
        ([7], ["7"], 1.0),
    ],
)
def test_the_overlap_is_the_same_from_both_sides(live: list[Any], other: list[Any], overlap: float) -> None:
    assert overlap_between(live, other) == overlap_between(other, live) == overlap


HISTORIES = [History((100 + user, 101 + user), (1000, 2000)) for user in range(40)]


def queries_of(histories: Sequence[History], k: int) -> list[Query]:
    request = RecommendRequest(user_id="u", k=k)
    return [make_query(request, history, (), 5000) for history in histories]


def measured(live: Side, other: Side, queries: Sequence[Query], seconds: float = 20.0) -> dict[str, Any]:
    with ThreadPoolExecutor(1) as thread:
        return run(measure_overlap(live, other, queries, thread, seconds))


def test_the_histogram_has_each_mean_in_its_tenth(make_side: MakeSide) -> None:
    """And a measurement that takes too long has what was measured until then."""
    live, other = make_side("v1"), make_side("v2", seed=1)
    for k in (1, 3, 7, 10):
        found = measured(live, other, queries_of(HISTORIES, k))
        counts = found["overlap_histogram"]
        least = sum(tenth * count for tenth, count in enumerate(counts)) / 10 / 40
        assert least <= found["overlap_mean"] + 1e-9 <= least + 0.1 + 2e-9
    assert measured(live, other, queries_of(HISTORIES, 10), seconds=-1)["histories"] == 1


def test_the_recorded_queries_are_those_of_the_bundle(make_side: MakeSide) -> None:
    side = make_side("v1", times=True)
    queries = recorded_queries(side.model.bundle, 5, 5000)
    assert queries
    assert all(query.request.k == 5 and query.history for query in queries)
    assert measured(side, side, queries)["overlap_mean"] == 1.0
    (side.model.bundle.folder / "golden.json").unlink()
    with pytest.raises(ConflictError, match="store events first"):
        recorded_queries(side.model.bundle, 5, 5000)


# --- Stored users


def event(user: int, item: int, time: int = 0) -> Event:
    return Event(f"{user}-{item}", str(user), item, time)


def stored(store: object, users: int, seconds: float = 5.0) -> list[list[int | str]]:
    """The histories of the queries."""
    queries = run(stored_queries(store, users, 10, 5000, seconds))  # type: ignore[arg-type]
    return [list(query.history) for query in queries]


def test_the_first_users_of_a_store_are_asked_with_their_whole_histories() -> None:
    store = SqliteHistory()
    asyncio.run(store.append([event(user, item, item) for user in range(9) for item in (2, 1)]))
    assert stored(store, 4) == [[1, 2]] * 4
    assert stored(store, 9) == [[1, 2]] * 9
    assert stored(SqliteHistory(), 4) == []


class Portions:
    """A store whose scan gives each user's three events in two portions, then ends, hangs or fails."""

    def __init__(self, users: int, then: str = "") -> None:
        self.users = users
        self.then = then
        self.portions = 0

    async def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        yield [event(0, 1)]
        for user in range(self.users):
            self.portions += 1
            yield [event(user, 2), event(user, 3), event(user + 1, 1)]
        if self.then == "hang":
            await asyncio.sleep(3600)
        if self.then == "fail":
            raise HistoryUnavailableError("the disk is gone")


def test_a_scan_is_bounded_in_users_and_in_time() -> None:
    """One that is broken off leaves what was read."""
    store = Portions(1000)
    assert stored(store, 3) == [[1, 2, 3]] * 3
    assert store.portions == 3
    assert stored(Portions(2, "hang"), 5) == stored(Portions(2, "fail"), 5) == [[1, 2, 3]] * 2 + [[1]]


# --- It is opened


@pytest.fixture
def root(bundles: Path, make_contents: Make) -> Path:
    """Beside the live v1: v2 and v3 with the same items, and v4 with others."""
    publish(bundles, make_contents("v2", seed=1))
    publish(bundles, make_contents("v3", seed=2))
    publish(bundles, make_contents("v4", ids=range(200, 230), seed=1))
    return bundles


async def _pass(request: GateRequest) -> Passage:
    return pass_gate(request)


def opened(root: Path, version: str, manifest: str | None = None, run_gate: Any = _pass) -> LoadedModel:
    async def work() -> LoadedModel:
        holder = ModelHolder(root)
        with ThreadPoolExecutor(1) as thread:
            opener = VersionOpener(holder, Activator(holder, Settings(bundles=root), run_gate), thread, 1.5)
            opener.find(version)
            return await opener.open(version, manifest)

    return run(work())


def test_a_version_with_nothing_in_common_is_opened_and_its_report_says_so(root: Path) -> None:
    """The gate would not let it go live. What has passed is not checked again."""
    model = opened(root, "v4")
    report = read_report(root, "v4")
    assert report is not None
    assert [check.name for check in report.failed] == ["overlap"]
    assert opened(root, "v4", model.bundle.snapshot.manifest, None).version == "v4"
    with pytest.raises(ConflictError, match="its manifest has SHA-256"):
        opened(root, "v4", "0" * 64, None)
    with pytest.raises(NotFoundError, match="there are: v1, v2, v3, v4"):
        opened(root, "v9")


# --- It is held while it is used

REQUEST = RecommendRequest(history=[120], k=5)
SECONDS = 60.0


@pytest.fixture
def settings(root: Path) -> Settings:
    given = {"bundles": root, "store": "memory://", "admin_key": "a-key-of-32-characters-for-tests"}
    return Settings.model_validate(given | {"comparison_seconds": SECONDS})


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The versions that the workers have in memory for the comparison, with that of each of them."""
    models: list[weakref.ref[LoadedModel]] = []

    def noted(*given: Any) -> LoadedModel:
        models.append(weakref.ref(model := open_live(*given)))
        return model

    def in_memory() -> list[str]:
        gc.collect()
        return [model.version for one in models if (model := one())]

    monkeypatch.setattr(opening, "open_live", noted)
    return in_memory


@asynccontextmanager
async def workers(settings: Settings, count: int = 1) -> AsyncIterator[list[Components]]:
    """The parts of several workers of one service, in one process, by the clock of the loop."""
    shared_state = SharedState(count)
    clocked = partial(ChosenVersion, clock=asyncio.get_running_loop().time)
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(composition, "ChosenVersion", clocked)
        opened = []
        for number in range(count):
            components = Components(settings, WorkerContext(shared_state, number))
            stack.push_async_callback(components.close)
            opened.append(components)
        yield opened


@in_virtual_time
async def test_a_worker_opens_what_another_was_asked_to_compare(
    settings: Settings, held: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate checks it once."""
    async with workers(settings, 2) as (first, second):
        await first.comparison.open("v2")
        monkeypatch.setattr(second.activator, "check", None)
        answer = await second.comparison.recommend(REQUEST, None)
        assert held() == ["v2", "v2"]
        assert answer["other"]["version"] == "v2"
        assert (await second.comparison.end(None))["version"] is None
        await asyncio.sleep(2 * WATCH_SECONDS)
        assert held() == []
        with pytest.raises(ConflictError, match="open one with"):
            await first.comparison.overlap(1, 1, None)


@in_virtual_time
async def test_a_worker_that_is_asked_for_another_version_takes_all_with_it(
    settings: Settings, held: Callable[[], list[str]]
) -> None:
    async with workers(settings, 2) as (first, second):
        await first.comparison.open("v2")
        await second.comparison.recommend(REQUEST, "v3")
        await asyncio.sleep(2 * WATCH_SECONDS)
        assert held() == ["v3"]
        assert (await first.comparison.recommend(REQUEST, None))["other"]["version"] == "v3"


@in_virtual_time
async def test_it_ends_by_itself_but_not_while_it_is_used(
    settings: Settings, held: Callable[[], list[str]]
) -> None:
    async with workers(settings, 2) as (first, second):
        await first.comparison.open("v2")
        for _ in range(3):
            await asyncio.sleep(0.9 * SECONDS)
            await second.comparison.recommend(REQUEST, None)
        assert held() == ["v2", "v2"]
        await asyncio.sleep(0.9 * SECONDS)
        assert held() == ["v2", "v2"]
        await asyncio.sleep(0.1 * SECONDS + 2 * WATCH_SECONDS)
        assert held() == []
        assert first.comparison.state() == {"version": None, "live": "v1"}
