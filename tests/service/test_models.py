"""Which version answers: activation, the workers that follow it, fallbacks, routes, and the shadow."""

import asyncio
import gc
import json
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.memory_engine import URL, Server, engine_in_process
from tests.support.service_app import ADMIN, serving, settings_of
from tests.support.until import eventually
from tests.support.virtual_time import in_virtual_time, run
from turret.service.errors import BusyError, ConflictError, NotReadyError, ServiceError
from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.service.telemetry.metrics import Metrics
from turret.service.versions import activation_state
from turret.service.versions import model_holder as module
from turret.service.versions.activation import Activator, Late, RefusedError, reason_of
from turret.service.versions.activation_state import activation_lock
from turret.service.versions.gate import GateRequest, Passage, pass_gate
from turret.service.versions.loaded_model import LoadedModel
from turret.service.versions.model_holder import ModelHolder
from turret.service.versions.shadow import Shadow
from turret.service.versions.traffic_split import (
    ROUTES,
    Route,
    Routes,
    canary_position,
    read_routes,
    salted,
    write_routes,
)
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.errors import BundleError
from turret.tower.format.pointer import current, point

Make = Callable[..., BundleContents]
VERSIONS = ("v1", "v2", "v3")


@pytest.fixture
def three(bundles: Path, make_contents: Make) -> Path:
    """Versions with disjoint items: 100-159, 200-239 and 300-319; v1 is live."""
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    publish(bundles, make_contents("v3", ids=range(300, 320), seed=2))
    return bundles


def activator(model_holder: ModelHolder, delays: list[float] | None = None, **settings: Any) -> Activator:
    async def gate(request: GateRequest) -> Passage:
        await asyncio.sleep(delays.pop(0) if delays else 0)
        return pass_gate(request)

    given = {"overlap_minimum": 0, **settings}
    return Activator(model_holder, Settings(bundles=model_holder.root, **given), gate)


def activate(model_holder: ModelHolder, version: str) -> None:
    run(activator(model_holder).activate(version))


def lines(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "activations.jsonl").read_text().splitlines()]


def state(model_holder: ModelHolder) -> tuple[str | None, str | None, int]:
    """The version of the pointer, the one that answers, and the number of the activation."""
    return current(model_holder.root), model_holder.version, model_holder.shared_state.target.value


UNCHANGED = ("v1", "v1", 1)


# --- Activation


def test_a_refused_version_leaves_everything_as_it_was(three: Path) -> None:
    """But for a line on who wanted it, and why not."""
    model_holder = ModelHolder(three)
    live = model_holder.live
    (three / "v2" / "golden.json").unlink()
    with pytest.raises(RefusedError, match=r"golden\.json") as refused:
        run(activator(model_holder).activate("v2", who="ann"))
    assert reason_of(refused.value) == "checksum"
    assert model_holder.live is live
    assert state(model_holder) == UNCHANGED
    last = lines(three)[-1]
    assert (last["outcome"], last["who"], last["failed"]) == ("refused", "ann", ["checksum"])
    assert "sequence" not in last


@pytest.mark.parametrize("number", [2**62 - 1, 2**70])
def test_a_damaged_line_of_the_log_ends_neither_the_start_nor_the_activations(
    three: Path, number: int
) -> None:
    """Any author of models may write it."""
    line = {"time": "", "version": "v1", "who": "", "outcome": "activated", "sequence": number}
    (three / "activations.jsonl").write_text(json.dumps(line) + "\n")
    activate(model_holder := ModelHolder(three), "v2")
    assert state(model_holder) == ("v2", "v2", 2)


def test_activations_queue(three: Path) -> None:
    """The one that is asked for last is live in the end, and each names the one it took the place of."""
    model_holder = ModelHolder(three)
    activating = activator(model_holder, [0.0, 2.0, 1.0])

    async def all_at_once() -> list[tuple[str, str | None]]:
        swaps = await asyncio.gather(*(activating.activate(version) for version in VERSIONS))
        return [(swap.live.version, swap.replaced) for swap in swaps]

    assert run(all_at_once()) == [("v1", "v1"), ("v2", "v1"), ("v3", "v2")]
    assert model_holder.live.version == current(three) == "v3"
    assert [line["sequence"] for line in lines(three)] == [1, 2, 3, 4]


def test_calls_that_queue_share_no_more_than_their_own_time(three: Path) -> None:
    """Those that wait for a long one are refused before it is done, after the seconds that are set."""
    model_holder = ModelHolder(three)
    activating = activator(model_holder, [10.0], activation_seconds=2)

    async def all_at_once() -> list[Any]:
        first = asyncio.create_task(activating.activate("v2"))
        await asyncio.sleep(1)
        routes = Routes(canary=Route(version="v3", share=0.5))
        waiting = [activating.activate("v3"), activating.roll_back(), activating.route(routes)]
        refused = await asyncio.gather(*waiting, activating.activate("v3"), return_exceptions=True)
        assert asyncio.get_running_loop().time() == 3
        assert not first.done()
        assert (await first).live.version == "v2"
        return refused

    refused = run(all_at_once())
    assert [type(one) for one in refused] == [BusyError] * 4
    assert "did not start within 2 seconds" in str(refused[0])
    assert read_routes(three) == Routes()
    assert run(activator(model_holder).activate("v3")).live.version == "v3"


def test_a_check_changes_nothing_and_comes_between_activations(three: Path) -> None:
    """A worker has one check at a time: a second one would end the first."""

    async def work() -> None:
        model_holder = ModelHolder(three)
        activators = activator(model_holder, [2.0])
        activating = asyncio.create_task(activators.activate("v2"))
        await asyncio.sleep(1)
        with pytest.raises(BusyError, match="an activation or another check is in progress; retry"):
            await activators.check("v3")
        await activating
        assert (await activators.check("v3")).report.passed
        assert model_holder.live.version == "v2"

    run(work())
    assert [line["version"] for line in lines(three)] == ["v1", "v2"]


def test_a_call_that_is_given_up_while_it_waits_leaves_no_lock(three: Path) -> None:
    async def give_up() -> None:
        with activation_lock(three), pytest.raises(TimeoutError):
            await asyncio.wait_for(activator(ModelHolder(three)).activate("v2"), 1)
        await asyncio.sleep(1)
        with activation_lock(three, 0.0):
            pass

    run(give_up())
    assert current(three) == "v1"


def test_a_call_that_is_given_up_while_it_commits_keeps_the_lock_until_that_is_done(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_holder = ModelHolder(three)
    begun, may_end = threading.Event(), threading.Event()

    def slowly(root: Path, version: str) -> None:
        begun.set()
        may_end.wait(60)
        point(root, version)

    monkeypatch.setattr(activation_state, "point", slowly)

    async def give_up() -> None:
        activating = asyncio.create_task(activator(model_holder).activate("v2"))
        await asyncio.to_thread(begun.wait)
        activating.cancel()
        await asyncio.wait([activating], timeout=0)
        with pytest.raises(BusyError), activation_lock(three, 0.0):
            pass
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await activating
        await model_holder.follow()

    asyncio.run(give_up())
    assert state(model_holder) == ("v2", "v2", 2)


def test_files_that_are_replaced_after_the_gate_are_not_activated(
    three: Path, tmp_path: Path, make_contents: Make
) -> None:
    other = publish(tmp_path / "other", make_contents("v2", ids=range(400, 440)))
    model_holder = ModelHolder(three)

    async def gate(request: GateRequest) -> Passage:
        passage = pass_gate(request)
        (three / "v2").rename(three / "away")
        other.rename(three / "v2")
        return passage

    with pytest.raises(BundleError, match="does not hold the files that were activated"):
        run(Activator(model_holder, Settings(bundles=three, overlap_minimum=0), gate).activate("v2"))
    assert state(model_holder) == UNCHANGED


def test_a_disk_without_room_for_the_line_leaves_everything_as_it_was(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pointer was moved by then, and goes back."""
    model_holder = ModelHolder(three)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_holder.activation_log, "add", full)
    with pytest.raises(BundleError, match="No space left"):
        run(activator(model_holder).activate("v2"))
    assert state(model_holder) == UNCHANGED


def test_the_way_back_goes_to_and_fro_and_on_after_a_restart(three: Path) -> None:
    model_holder = ModelHolder(three)
    with pytest.raises(BundleError, match="no other version was live"):
        run(activator(model_holder).roll_back())
    activate(model_holder, "v2")
    model_holder = ModelHolder(three)
    for expected in ("v1", "v2", "v1"):
        assert run(activator(model_holder).roll_back("ann")).live.version == expected
    assert lines(three)[-1]["who"] == "ann (rollback)"


def test_a_damaged_pointer_is_mended_by_the_next_activation(three: Path) -> None:
    model_holder = ModelHolder(three)
    (three / "current").write_bytes(b"../../etc\x00")
    activate(model_holder, "v2")
    assert current(three) == "v2"
    (three / "current").write_bytes(b"")
    assert run(activator(model_holder).roll_back()).live.version == current(three) == "v1"


def test_memory_of_replaced_versions_is_given_back(three: Path) -> None:
    """Nothing keeps a bundle once no request answers from it."""
    model_holder = ModelHolder(three)
    gone = weakref.ref(model_holder.live.bundle)
    activate(model_holder, "v2")
    gc.collect()
    assert gone() is None


def test_every_answer_is_of_one_version_while_versions_change(three: Path) -> None:
    """Each answer holds items of the version that it names, and no other."""
    history = [101, 102, 201, 202, 301, 302]
    batch = {"requests": [{"history": history, "k": 5}, {"k": 5}, {"user_id": 7, "k": 3}]}

    def is_consistent(answer: dict[str, Any]) -> bool:
        first = 100 * int(answer["version"][1:])
        return bool(answer["items"]) and all(first <= item["id"] < first + 100 for item in answer["items"])

    async def hammer() -> list[dict[str, Any]]:
        transport = httpx2.ASGITransport(create_app(settings_of(three)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:

            async def activate() -> None:
                for place in range(30):  # each is checked by the gate: seconds in all
                    body = {"version": VERSIONS[place % 3]}
                    assert (await client.post("/admin/activate", json=body, headers=ADMIN)).status_code == 200

            async def ask() -> list[dict[str, Any]]:
                answers = []
                while not activating.done():
                    answer = await client.post("/v1/recommend", json={"history": history, "k": 10})
                    several = await client.post("/v1/recommend/batch", json=batch)
                    results = several.json()["results"]
                    assert len({result["version"] for result in results}) == 1
                    answers += [answer.json(), *results]
                return answers

            activating = asyncio.create_task(activate())
            answered = await asyncio.gather(ask(), ask())
            await activating
            return [answer for answers in answered for answer in answers]

    answers = asyncio.run(hammer())
    assert {answer["version"] for answer in answers} == set(VERSIONS)
    assert all(map(is_consistent, answers))


# --- The first version of a worker


@pytest.mark.parametrize(
    ("pointer", "message"),
    [(None, "there are v1"), ("v9", "there are: v1"), ("empty", "holds no current version; export one")],
)
def test_without_a_version_a_worker_does_not_start(
    bundles: Path, tmp_path: Path, pointer: str | None, message: str
) -> None:
    (bundles / "current").unlink()
    if pointer == "v9":
        point(bundles, pointer)
    (tmp_path / "empty").mkdir()
    with pytest.raises((ServiceError, BundleError), match=message):
        ModelHolder(tmp_path / "empty" if pointer == "empty" else bundles)


@pytest.mark.parametrize("how", ["published", "repaired", "pointed elsewhere", "activated"])
def test_a_worker_that_waits_takes_the_first_version_that_can_be_served(
    three: Path, tmp_path: Path, make_contents: Make, how: str
) -> None:
    root = tmp_path / "empty" if how == "published" else three
    golden = three / "v1" / "golden.json"

    async def fill_then_mend(model_holder: ModelHolder) -> None:
        filling = asyncio.create_task(model_holder.fill())
        await asyncio.sleep(3)
        assert model_holder.version is None
        if how == "published":
            publish(root, make_contents("v1"))
        elif how == "repaired":
            golden.with_suffix(".away").rename(golden)
        elif how == "pointed elsewhere":
            point(root, "v2")
        else:
            await activator(model_holder).activate("v2")
        await asyncio.wait_for(filling, 10)

    golden.rename(golden.with_suffix(".away"))
    model_holder = ModelHolder(root, wait=True)
    run(fill_then_mend(model_holder))
    expected = "v1" if how in ("published", "repaired") else "v2"
    assert model_holder.version == model_holder.live.version == current(root) == expected
    with pytest.raises(BundleError, match="no other version was live"):
        run(activator(model_holder).roll_back())


def test_a_pointer_that_was_moved_while_nothing_ran_is_an_activation(three: Path) -> None:
    assert ModelHolder(three).generation == 1
    assert ModelHolder(three).generation == 1
    point(three, "v2")
    model_holder = ModelHolder(three)
    assert (model_holder.version, model_holder.generation) == ("v2", 2)
    assert model_holder.activation_log.last is not None
    assert model_holder.activation_log.last.who == "pointer"


def test_a_start_takes_a_version_that_was_replaced_and_writes_that_down(
    three: Path, tmp_path: Path, make_contents: Make
) -> None:
    """While no service ran, who owns the folder decides; while one runs, all its workers open the same."""
    ModelHolder(three)
    (three / "v1").rename(tmp_path / "away")
    publish(three, make_contents("v1", ids=range(400, 440)))
    shared_state = SharedState(2)
    model_holder = ModelHolder(three, shared_state=shared_state)
    assert (model_holder.generation, len(model_holder.live.bundle.vocabulary)) == (2, 40)
    before = model_holder.activation_log.at(1)
    assert before is not None
    assert before.manifest != model_holder.activation_log.manifest_of("v1")
    (three / "v1").rename(tmp_path / "second")
    (tmp_path / "away").rename(three / "v1")
    with pytest.raises(BundleError, match="does not hold the files that were activated"):
        ModelHolder(three, shared_state=shared_state, number=1)


def test_a_version_that_can_not_be_opened_any_more_gives_way_to_the_one_before(three: Path) -> None:
    """In every worker: it is an activation."""
    shared_state = SharedState(2)
    one = ModelHolder(three, shared_state=shared_state)
    activate(one, "v2")
    (three / "v2" / "golden.json").unlink()
    other = ModelHolder(three, shared_state=shared_state, number=1)
    assert (other.version, other.generation) == ("v1", 3)
    assert shared_state.target.value == 3
    run(one.follow())
    assert one.version == "v1"
    assert current(three) == "v1"


def test_workers_that_fall_back_at_the_same_time_do_so_once(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds the target moved when it gets the lock, and loads that."""
    model_holder = ModelHolder(three)
    for version in ("v2", "v3"):
        activate(model_holder, version)
    (three / "v3" / "manifest.json").unlink()
    shared_state, lock = model_holder.shared_state, activation_lock
    workers: list[ModelHolder] = []

    @contextmanager
    def locked(root: Path) -> Iterator[None]:
        if not workers:
            monkeypatch.setattr(module, "activation_lock", lock)
            workers.append(ModelHolder(root, shared_state=shared_state))
        with lock(root):
            yield

    monkeypatch.setattr(module, "activation_lock", locked)
    workers.append(ModelHolder(three, shared_state=shared_state))
    assert [worker.version for worker in workers] == ["v2", "v2"]
    assert [line["who"] for line in lines(three)].count("fallback") == 1


# --- Several workers


@pytest.fixture
def pair(three: Path) -> tuple[ModelHolder, ModelHolder]:
    """Two workers of one service."""
    shared_state = SharedState(2)
    one, other = (ModelHolder(three, shared_state=shared_state, number=number) for number in range(2))
    return one, other


def test_workers_follow_each_other_and_late_ones_are_named(pair: tuple[ModelHolder, ModelHolder]) -> None:
    """And each knows how new its own version is."""
    one, other = pair
    assert (one.version, other.version, one.generation) == ("v1", "v1", 1)

    async def follow() -> None:
        while True:
            await other.follow()
            await asyncio.sleep(0.5)

    async def work() -> None:
        following = asyncio.create_task(follow())
        swap = await activator(one).activate("v2")
        assert (swap.live.version, swap.replaced, swap.behind) == ("v2", "v1", ())
        following.cancel()
        assert (one.version, other.version, other.generation) == ("v2", "v2", 2)
        late = await activator(one, activation_seconds=5).activate("v3")
        assert late.behind == (other.worker_slot.pid,)
        assert current(one.root) == "v3"

    other.worker_slot.occupy()
    other.worker_slot.live = 1
    run(work())


def test_a_worker_that_can_not_follow_leads_the_others_back(
    pair: tuple[ModelHolder, ModelHolder], tmp_path: Path
) -> None:
    """Though it has never served what it leads them back from."""
    one, other = pair
    activate(one, "v2")
    (one.root / "v2").rename(tmp_path / "away")
    swap = run(activator(other).roll_back())
    assert (swap.live.version, swap.replaced, swap.live.generation) == ("v1", "v2", 3)
    run(one.follow())
    assert one.version == "v1"


@in_virtual_time
async def test_an_answer_is_never_older_than_was_asked_for(pair: tuple[ModelHolder, ModelHolder]) -> None:
    """It waits for the worker to follow, a while; order is that of activations."""
    one, other = pair
    await activator(one).activate("v2")
    assert (await other.live_at_least("v1", 0.0)).version == "v1"
    with pytest.raises(NotReadyError, match="not live in this process yet") as refused:
        await other.live_at_least("v2", 5)
    assert refused.value.retry_after == 1
    waiting = asyncio.create_task(other.live_at_least("v2", 5))
    await asyncio.sleep(1)
    await other.follow()
    assert (await waiting).version == "v2"
    await activator(one).roll_back()
    with pytest.raises(NotReadyError):  # v1 was promised again, by a later activation
        await other.live_at_least("v1", 0.0)
    await other.follow()
    assert (await other.live_at_least("v2", 0.0)).version == "v1"
    with pytest.raises(ConflictError, match="never live"):
        await other.live_at_least("v3", 0.0)


# --- Routes


def test_users_are_spread_evenly_and_for_good() -> None:
    places = [canary_position(str(user), "ab") for user in range(10_000)]
    assert places == [canary_position(str(user), "ab") for user in range(10_000)]
    # A tenth of 10,000 fair draws is between 850 and 1150 but for five standard deviations.
    tenths = [sum(tenth <= 10 * place < tenth + 1 for place in places) for tenth in range(10)]
    assert all(850 < count < 1150 for count in tenths), tenths
    assert places != [canary_position(str(user), "ac") for user in range(10_000)]


def test_a_larger_share_keeps_the_users_of_a_smaller_one() -> None:
    """Another canary has other users."""
    small, large = (Routes(canary=Route(version="v2", share=share), salt="ab") for share in (0.1, 0.3))
    users = [str(user) for user in range(1000)]
    assert 0 < sum(map(small.takes, users)) < sum(map(large.takes, users))
    assert all(large.takes(user) for user in users if small.takes(user))
    assert not any(map(Routes().takes, users))
    first = salted(Routes(canary=Route(version="v2", share=0.1)), Routes())
    same = salted(Routes(canary=Route(version="v2", share=0.2)), first)
    other = salted(Routes(canary=Route(version="v3", share=0.2)), first)
    assert first.salt == same.salt != other.salt


def test_routes_are_read_as_they_were_written(tmp_path: Path) -> None:
    """A folder that can't be written is said."""
    assert read_routes(tmp_path) == Routes()
    routes = Routes(shadow=Route(version="v2", share=1.0), salt="ab")
    write_routes(tmp_path, routes)
    assert read_routes(tmp_path) == routes
    assert [path.name for path in tmp_path.iterdir()] == [ROUTES]
    with pytest.raises(ServiceError, match="the routes are unchanged"):
        write_routes(tmp_path / "missing", Routes())


@pytest.mark.parametrize(
    "text", ["", "[]", '{"canary": {"version": "v2", "share": 2}}', '{"salt": "x"}', None]
)
def test_a_file_that_holds_no_routes_is_refused(tmp_path: Path, text: str | None) -> None:
    """And a link in its place is not followed."""
    if text is None:
        (tmp_path / "other").write_text("{}")
        (tmp_path / ROUTES).symlink_to("other")
    else:
        (tmp_path / ROUTES).write_text(text)
    with pytest.raises(ServiceError, match=r"the live version answers all|can't be read"):
        read_routes(tmp_path)


def test_routes_are_kept_and_end_when_their_version_becomes_live(three: Path) -> None:
    model_holder = ModelHolder(three)
    routes = Routes(canary=Route(version="v2", share=0.5), shadow=Route(version="v3", share=1.0))
    assert run(activator(model_holder).route(routes)) == Late((), ())
    traffic = model_holder.traffic
    assert traffic.canary is not None
    assert traffic.shadow is not None
    assert (traffic.canary.version, traffic.shadow.version) == ("v2", "v3")
    assert ModelHolder(three).traffic.routes == traffic.routes == read_routes(three)
    activate(model_holder, "v2")
    assert model_holder.traffic.canary is None
    assert model_holder.traffic.shadow is not None
    assert read_routes(three).canary is None


def test_the_canary_answers_its_users_and_the_live_version_the_rest(three: Path) -> None:
    write_routes(three, Routes(canary=Route(version="v2", share=0.5), salt="ab"))
    model_holder = ModelHolder(three)
    chosen = {model_holder.choose(str(user)).version for user in range(50)}
    assert chosen == {"v1", "v2"}
    assert model_holder.choose(None).version == "v1"
    assert model_holder.serving("v2") is model_holder.traffic.canary
    assert model_holder.serving("v3") is None


@pytest.mark.parametrize("how", ["deleted", "nonsense", "refused"])
def test_routes_that_lead_nowhere_leave_all_to_the_live_version(three: Path, how: str) -> None:
    routes = Routes(canary=Route(version="v2", share=1.0), salt="ab")
    if how == "refused":
        (three / "v2" / "golden.json").unlink()
        with pytest.raises(RefusedError):
            run(activator(ModelHolder(three)).route(routes))
        assert read_routes(three) == Routes()
    else:
        write_routes(three, routes)
        if how == "deleted":
            (three / "v2" / "manifest.json").unlink()
        else:
            (three / "routes.json").write_text("{")
    holder = ModelHolder(three)
    assert holder.choose("anyone").version == "v1"
    if how == "nonsense":
        run(activator(holder).route(routes))  # as its sentence says
        assert holder.choose("anyone").version == "v2"


def test_a_canary_that_was_replaced_is_checked_again(
    three: Path, tmp_path: Path, make_contents: Make
) -> None:
    """A route leads to the content that was checked; its old pin must not be kept for another."""
    routes = Routes(canary=Route(version="v2", share=1.0))
    model_holder = ModelHolder(three)
    run(activator(model_holder).route(routes))
    assert model_holder.choose("anyone").version == "v2"
    (three / "v2").rename(tmp_path / "away")
    publish(three, make_contents("v2", ids=range(500, 540)))
    model_holder = ModelHolder(three)  # a worker that starts now can't open what was pinned
    assert (model_holder.traffic.canary, model_holder.choose("anyone").version) == (None, "v1")
    run(activator(model_holder).route(routes))
    assert model_holder.choose("anyone").version == "v2"
    assert ModelHolder(three).choose("anyone").version == "v2"
    (three / "v2" / "golden.json").unlink()
    with pytest.raises(RefusedError):
        run(activator(ModelHolder(three)).route(routes))


@pytest.mark.parametrize("is_own", [True, False])
def test_a_route_to_the_live_version_is_to_the_content_that_was_checked(three: Path, is_own: bool) -> None:
    """Other files of the same name are not what the route was sent for."""
    manifest = ModelHolder(three).live.bundle.snapshot.manifest if is_own else "0" * 64
    write_routes(three, Routes(canary=Route(version="v1", share=1.0, manifest=manifest), salt="ab"))
    assert (ModelHolder(three).traffic.canary is not None) == is_own


# --- The shadow


def shadow_figures(metrics: Metrics) -> dict[str, float]:
    outcomes = ("answered", "failed", "dropped")
    return {
        name: metrics.registry.get_sample_value("turret_shadow_answers_total", {"outcome": name}) or 0.0
        for name in outcomes
    }


def test_the_shadow_answers_with_its_own_version_and_is_compared(three: Path) -> None:
    """Requests beyond the limit are dropped, and a failing one ends nothing: two of four wait, one fails."""
    write_routes(three, Routes(shadow=Route(version="v2", share=1.0)))
    metrics, asked = Metrics(), list[str]()

    def answer(live: LoadedModel) -> list[int | str]:
        asked.append(live.version)
        if len(asked) == 1:
            raise RuntimeError("the shadow fails")
        return [3, 4, 9, 9]

    async def offer() -> None:
        shadow = Shadow(ModelHolder(three), metrics, limit=2)
        assert shadow.wants()
        for _ in range(4):
            shadow.offer([1, 2, 3, 4], answer)
        assert asked == [], "nobody waits for it"
        await eventually(lambda: shadow_figures(metrics)["answered"], "an answer of the shadow")
        await shadow.close()

    run(offer())
    assert asked == ["v2", "v2"]
    assert shadow_figures(metrics) == {"answered": 1, "failed": 1, "dropped": 2}
    assert metrics.registry.get_sample_value("turret_shadow_overlap_sum") == 0.5


def test_without_a_shadow_nothing_is_wanted(bundles: Path) -> None:
    shadow = Shadow(ModelHolder(bundles), Metrics())
    assert not shadow.wants()
    shadow.offer([1], lambda _: [1])
    run(shadow.close())


# --- Versions on an engine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Server:
    return engine_in_process(monkeypatch)


@pytest.fixture
def shop(bundles: Path, make_contents: Make, engine: Server) -> Path:
    """v2 with an index of its own is live; `engine` is v1 on the engine, and was live before."""
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    publish_to_engine(bundles / "v1", URL, version="engine")
    point(bundles, "engine")
    assert run(activator(ModelHolder(bundles)).activate("v2")).warning is None
    return bundles


def test_a_rollback_to_a_version_that_its_engine_lost_takes_place_and_warns(
    shop: Path, engine: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The fallback is better than the version that it leaves."""
    engine.fault = "lost"
    with serving(shop) as client:
        answer = client.post("/admin/rollback", headers=ADMIN)
    assert answer.status_code == 200
    assert answer.json()["version"] == "engine"
    warning = answer.json()["warning"]
    assert warning.startswith("the fallback (exact) answers for engine, which its engine doesn't hold: ")
    assert "holds no collection" in warning
    assert "secret" not in warning
    assert warning in caplog.messages


def test_an_alias_follows_to_the_live_version_and_stays_with_the_last_one_there(
    shop: Path, engine: Server, caplog: pytest.LogCaptureFixture
) -> None:
    engine.aliases.clear()
    holder = ModelHolder(shop)
    assert run(activator(holder).roll_back()).warning is None
    assert list(engine.aliases.values()) == list(engine.items)
    aliases = dict(engine.aliases)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "turret.activation"):
        activate(holder, "v2")
    assert engine.aliases == aliases
    assert caplog.messages == [
        f"v2 is not on the engine at redis://engine:6379: the alias {next(iter(aliases))} goes on naming "
        "engine, the last live version there"
    ]
