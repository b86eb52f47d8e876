import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from turret.service.errors import ConflictError, NothingLiveError, NotReadyError, ServiceError
from turret.service.http.app import create_app
from turret.service.models import model_holder as module
from turret.service.models.activation import Activator
from turret.service.models.activation_state import activation_lock
from turret.service.models.gate import GateRequest, Passage, pass_gate
from turret.service.models.model_holder import ModelHolder
from turret.service.models.traffic_split import Route, Routes, write_routes
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.format.pointer import current, point

Make = Callable[..., BundleContents]
VERSIONS = ("v1", "v2", "v3")


@pytest.fixture
def three(bundles: Path, make_contents: Make) -> Path:
    """Versions with disjoint items: 100-159, 200-239 and 300-319."""
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    publish(bundles, make_contents("v3", ids=range(300, 320), seed=2))
    return bundles


def activator(model_holder: ModelHolder) -> Activator:
    return Activator(model_holder, Settings(bundles=model_holder.root, overlap_minimum=0), _run_gate)


async def _run_gate(request: GateRequest) -> Passage:
    return pass_gate(request)


def consistent(answer: dict[str, Any]) -> bool:
    first = 100 * int(answer["version"][1:])
    return bool(answer["items"]) and all(first <= item["id"] < first + 100 for item in answer["items"])


def test_a_folder_without_a_current_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="export one"):
        ModelHolder(tmp_path)


def test_a_pointer_that_was_lost_is_refused_with_the_versions(bundles: Path) -> None:
    (bundles / "current").unlink()
    with pytest.raises(ServiceError, match="there are v1"):
        ModelHolder(bundles)


def test_a_pointer_to_nothing_is_refused(bundles: Path) -> None:
    point(bundles, "v9")
    with pytest.raises(BundleError, match="there are: v1"):
        ModelHolder(bundles)


def test_a_slot_that_waits_makes_its_folder_and_says_what_it_waits_for(tmp_path: Path) -> None:
    async def wait_a_moment(model_holder: ModelHolder) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(model_holder.fill(), 0.05)

    model_holder = ModelHolder(tmp_path / "new" / "bundles", wait=True)
    asyncio.run(wait_a_moment(model_holder))
    assert model_holder.version is None
    with pytest.raises(
        NothingLiveError, match=f"yet: {tmp_path}/new/bundles holds no current version; export one"
    ):
        _ = model_holder.live


def test_a_folder_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match="file/bundles can't be made"):
        ModelHolder(tmp_path / "file" / "bundles", wait=True)


@pytest.mark.parametrize("how", ["published", "repaired", "pointed elsewhere", "activated"])
def test_a_slot_that_waits_takes_the_first_version_that_can_be_served(
    three: Path, tmp_path: Path, make_contents: Make, how: str
) -> None:
    root = tmp_path / "empty" if how == "published" else three
    golden = three / "v1" / "golden.json"

    async def fill_then_mend(model_holder: ModelHolder) -> None:
        filling = asyncio.create_task(model_holder.fill())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(filling), 0.1)
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
    asyncio.run(fill_then_mend(model_holder))
    expected = "v1" if how in ("published", "repaired") else "v2"
    assert model_holder.version == model_holder.live.version == current(root) == expected
    with pytest.raises(BundleError, match="no other version was live"):
        asyncio.run(activator(model_holder).roll_back())


def test_workers_of_one_board_follow_each_other(three: Path) -> None:
    """And each knows how new its own version is."""
    shared_state = SharedState(2)
    one, other = (
        ModelHolder(three, shared_state=shared_state),
        ModelHolder(three, shared_state=shared_state, number=1),
    )
    assert (one.version, other.version, one.generation) == ("v1", "v1", 1)

    async def activate_and_follow() -> None:
        following = asyncio.create_task(_follow(other))
        swap = await activator(one).activate("v2")
        assert (swap.live.version, swap.replaced, swap.behind) == ("v2", "v1", ())
        following.cancel()

    shared_state.slots[1].occupy()
    shared_state.slots[1].live = 1
    asyncio.run(activate_and_follow())
    assert (one.version, other.version, other.generation) == ("v2", "v2", 2)
    assert current(three) == "v2"


async def _follow(model_holder: ModelHolder) -> None:
    while True:
        await model_holder.follow()
        await asyncio.sleep(0.01)


def test_a_worker_that_can_not_follow_leads_the_others_back(three: Path, tmp_path: Path) -> None:
    """Though it has never served what it leads them back from."""
    shared_state = SharedState(2)
    one, other = (
        ModelHolder(three, shared_state=shared_state),
        ModelHolder(three, shared_state=shared_state, number=1),
    )
    asyncio.run(activator(one).activate("v2"))
    (three / "v2").rename(tmp_path / "away")
    swap = asyncio.run(activator(other).roll_back())
    assert (swap.live.version, swap.replaced, swap.live.generation) == ("v1", "v2", 3)
    asyncio.run(one.follow())
    assert one.version == "v1"


def test_an_answer_is_never_older_than_was_asked_for(three: Path) -> None:
    """It waits for the worker to follow, a while; order is that of activations."""
    shared_state = SharedState(2)
    one, other = (
        ModelHolder(three, shared_state=shared_state),
        ModelHolder(three, shared_state=shared_state, number=1),
    )

    async def ask() -> None:
        await activator(one).activate("v2")
        assert (await other.live_at_least("v1", 0.0)).version == "v1"
        with pytest.raises(NotReadyError, match="not live in this process yet") as refused:
            await other.live_at_least("v2", 0.05)
        assert refused.value.retry_after == 1
        waiting = asyncio.create_task(other.live_at_least("v2", 10.0))
        await asyncio.sleep(0.01)
        await other.follow()
        assert (await waiting).version == "v2"
        await activator(one).roll_back()
        with pytest.raises(NotReadyError):  # v1 was promised again, by a later activation
            await other.live_at_least("v1", 0.0)
        await other.follow()
        assert (await other.live_at_least("v2", 0.0)).version == "v1"

    asyncio.run(ask())


def test_a_version_that_was_never_live_can_not_be_waited_for(three: Path) -> None:
    with pytest.raises(ConflictError, match="never live"):
        asyncio.run(ModelHolder(three).live_at_least("v2", 0.0))


def test_the_ledger_is_read_beside_the_event_loop(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a version that was never live, which anybody may ask for."""
    model_holder, threads = ModelHolder(three), set()
    refresh = model_holder.activation_log.refresh

    def noted() -> None:
        threads.add(threading.current_thread())
        refresh()

    monkeypatch.setattr(model_holder.activation_log, "refresh", noted)
    with pytest.raises(ConflictError, match="never live"):
        asyncio.run(model_holder.live_at_least("v2", 0.0))
    asyncio.run(activator(model_holder).route(Routes()))
    assert threads
    assert threading.main_thread() not in threads


def test_a_pointer_that_was_moved_while_nothing_ran_is_an_activation(three: Path) -> None:
    assert ModelHolder(three).generation == 1
    assert ModelHolder(three).generation == 1
    point(three, "v2")
    model_holder = ModelHolder(three)
    assert (model_holder.version, model_holder.generation) == ("v2", 2)
    assert model_holder.activation_log.last is not None
    assert model_holder.activation_log.last.who == "pointer"


def test_a_version_that_can_not_be_opened_any_more_gives_way_to_the_one_before(three: Path) -> None:
    """In every worker: it is an activation."""
    shared_state = SharedState(2)
    one = ModelHolder(three, shared_state=shared_state)
    asyncio.run(activator(one).activate("v2"))
    (three / "v2" / "golden.json").unlink()
    other = ModelHolder(three, shared_state=shared_state, number=1)
    assert (other.version, other.generation) == ("v1", 3)
    assert shared_state.target.value == 3
    asyncio.run(one.follow())
    assert one.version == "v1"
    assert current(three) == "v1"


def test_a_start_takes_a_version_that_was_replaced_and_writes_that_down(
    three: Path, tmp_path: Path, make_contents: Make
) -> None:
    """While no service ran, who owns the folder decides; while one runs, all its workers open the same."""
    ModelHolder(three)
    (three / "v1").rename(tmp_path / "away")
    publish(three, make_contents("v1", ids=range(500, 540)))
    shared_state = SharedState(2)
    model_holder = ModelHolder(three, shared_state=shared_state)
    assert (model_holder.version, model_holder.generation, len(model_holder.live.bundle.vocabulary)) == (
        "v1",
        2,
        40,
    )
    before = model_holder.activation_log.at(1)
    assert before is not None
    assert before.manifest != model_holder.activation_log.manifest_of("v1")
    (three / "v1").rename(tmp_path / "second")
    (tmp_path / "away").rename(three / "v1")
    with pytest.raises(BundleError, match="does not hold the files that were activated"):
        ModelHolder(three, shared_state=shared_state, number=1)


def test_a_route_leads_to_the_version_that_was_checked(
    three: Path, tmp_path: Path, make_contents: Make
) -> None:
    model_holder = ModelHolder(three)
    asyncio.run(activator(model_holder).route(Routes(canary=Route(version="v2", share=1.0))))
    assert model_holder.choose("anyone").version == "v2"
    (three / "v2").rename(tmp_path / "away")
    publish(three, make_contents("v2", ids=range(500, 540)))
    assert ModelHolder(three).choose("anyone").version == "v1"


def test_the_canary_answers_its_users_and_the_live_version_the_rest(three: Path) -> None:
    write_routes(three, Routes(canary=Route(version="v2", share=0.5), salt="ab"))
    model_holder = ModelHolder(three)
    chosen = {model_holder.choose(str(user)).version for user in range(50)}
    assert chosen == {"v1", "v2"}
    assert model_holder.choose(None).version == "v1"
    assert model_holder.serving("v2") is model_holder.traffic.canary
    assert model_holder.serving("v3") is None


@pytest.mark.parametrize("how", ["deleted", "nonsense"])
def test_routes_that_lead_nowhere_leave_all_to_the_live_version(three: Path, how: str) -> None:
    write_routes(three, Routes(canary=Route(version="v2", share=1.0), salt="ab"))
    if how == "deleted":
        (three / "v2" / "manifest.json").unlink()
    else:
        (three / "routes.json").write_text("{")
    assert ModelHolder(three).choose("anyone").version == "v1"


@pytest.mark.nightly
def test_every_answer_is_of_one_version_while_versions_change(
    three: Path, settings: Settings, admin: dict[str, str]
) -> None:
    """300 activations among requests; each answer holds items of the version that it names, and no other."""
    history = [101, 102, 201, 202, 301, 302]
    batch = {"requests": [{"history": history, "k": 5}, {"k": 5}, {"user_id": 7, "k": 3}]}

    async def hammer() -> list[dict[str, Any]]:
        transport = httpx2.ASGITransport(create_app(settings))
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:

            async def activate() -> None:
                for place in range(300):
                    body = {"version": VERSIONS[place % 3]}
                    assert (await client.post("/admin/activate", json=body, headers=admin)).status_code == 200

            async def ask() -> list[dict[str, Any]]:
                answers = []
                for _ in range(100):
                    answer = await client.post("/v1/recommend", json={"history": history, "k": 10})
                    several = await client.post("/v1/recommend/batch", json=batch)
                    results = several.json()["results"]
                    assert len({result["version"] for result in results}) == 1
                    answers += [answer.json(), *results]
                return answers

            _, *answered = await asyncio.gather(activate(), *(ask() for _ in range(4)))
            return [answer for answers in answered for answer in answers]

    answers = asyncio.run(hammer())
    assert len(answers) == 4 * 100 * 4
    assert {answer["version"] for answer in answers} == set(VERSIONS)
    assert all(map(consistent, answers))


def test_what_a_route_leads_to_is_made_ready_before_it_answers(three: Path) -> None:
    """As what goes live is: else its first request would wait for all fresh items to be encoded."""
    model_holder = ModelHolder(three)
    ready: list[str] = []

    async def prepare(bundle: Bundle) -> None:
        assert model_holder.traffic.canary is None
        ready.append(bundle.manifest.version)

    model_holder.prepare = prepare
    asyncio.run(activator(model_holder).route(Routes(canary=Route(version="v2", share=1.0))))
    assert ready == ["v2"]
    assert model_holder.choose("anybody").version == "v2"


@pytest.mark.parametrize("is_own", [True, False])
def test_a_route_to_the_live_version_is_to_the_content_that_was_checked(three: Path, is_own: bool) -> None:
    """Other files of the same name are not what the route was sent for."""
    manifest = ModelHolder(three).live.bundle.snapshot.manifest if is_own else "0" * 64
    write_routes(three, Routes(canary=Route(version="v1", share=1.0, manifest=manifest), salt="ab"))
    assert (ModelHolder(three).traffic.canary is not None) == is_own


def test_workers_that_fall_back_at_the_same_time_do_so_once(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds the target moved when it gets the lock, and loads that."""
    model_holder = ModelHolder(three)
    for version in ("v2", "v3"):
        asyncio.run(activator(model_holder).activate(version))
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
    log = (three / "activations.jsonl").read_text()
    assert log.count('"who":"fallback"') == 1


def test_a_damaged_pointer_is_mended_by_the_next_activation(three: Path) -> None:
    model_holder = ModelHolder(three)
    (three / "current").write_bytes(b"../../etc\x00")
    assert asyncio.run(activator(model_holder).activate("v2")).live.version == "v2"
    assert current(three) == "v2"
    (three / "current").write_bytes(b"")
    assert asyncio.run(activator(model_holder).roll_back()).live.version == "v1"
    assert current(three) == "v1"
