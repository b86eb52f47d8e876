import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turret.service.errors import BusyError, ServiceError
from turret.service.models import activation_state as target
from turret.service.models.activation import Activator, Late, RefusedError, reason_of
from turret.service.models.activation_state import activation_lock
from turret.service.models.gate import GateRequest, Passage, pass_gate
from turret.service.models.model_holder import ModelHolder
from turret.service.models.traffic_split import Route, Routes, read_routes
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.format.pointer import current, point

Make = Callable[..., BundleContents]
VERSIONS = ("v1", "v2", "v3")


@pytest.fixture
def three(bundles: Path, make_contents: Make) -> Path:
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    publish(bundles, make_contents("v3", ids=range(300, 320), seed=2))
    return bundles


def activator(model_holder: ModelHolder, delays: list[float] | None = None, **settings: Any) -> Activator:
    async def gate(request: GateRequest) -> Passage:
        await asyncio.sleep(delays.pop(0) if delays else 0)
        return pass_gate(request)

    return Activator(
        model_holder, Settings(bundles=model_holder.root, **{"overlap_minimum": 0, **settings}), gate
    )


def lines(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "activations.jsonl").read_text().splitlines()]


def test_a_refused_version_leaves_everything_as_it_was(three: Path) -> None:
    """But for a line on who wanted it, and why not."""
    model_holder = ModelHolder(three)
    live = model_holder.live
    (three / "v2" / "golden.json").unlink()
    with pytest.raises(RefusedError, match=r"golden\.json") as refused:
        asyncio.run(activator(model_holder).activate("v2", who="ann"))
    assert reason_of(refused.value) == "checksum"
    assert model_holder.live is live
    assert (current(three), model_holder.shared_state.target.value) == ("v1", 1)
    last = lines(three)[-1]
    assert (last["outcome"], last["who"], last["failed"]) == ("refused", "ann", ["checksum"])
    assert "sequence" not in last


def test_activations_queue(three: Path) -> None:
    """The one that is asked for last is live in the end, and each names the one it took the place of."""
    model_holder = ModelHolder(three)
    activating = activator(model_holder, [0.0, 0.2, 0.1])

    async def all_at_once() -> list[tuple[str, str | None]]:
        swaps = await asyncio.gather(*(activating.activate(version) for version in VERSIONS))
        return [(swap.live.version, swap.replaced) for swap in swaps]

    assert asyncio.run(all_at_once()) == [("v1", "v1"), ("v2", "v1"), ("v3", "v2")]
    assert model_holder.live.version == current(three) == "v3"
    assert [line["sequence"] for line in lines(three)] == [1, 2, 3, 4]


def test_an_activation_that_gets_no_turn_is_refused_in_words(three: Path) -> None:
    model_holder = ModelHolder(three)
    with activation_lock(three), pytest.raises(ServiceError, match="another activation"):
        asyncio.run(activator(model_holder, activation_seconds=0.05).activate("v2"))
    assert asyncio.run(activator(model_holder).activate("v2")).live.version == "v2"


@pytest.mark.nightly
def test_calls_that_queue_share_no_more_than_their_own_time(three: Path) -> None:
    """The first takes a second; those that wait for it are refused after the tenth of one that is set."""
    model_holder = ModelHolder(three)
    activating = activator(model_holder, [1.0], activation_seconds=0.1)

    async def all_at_once() -> tuple[float, list[object]]:
        first = asyncio.create_task(activating.activate("v2"))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        routes = Routes(canary=Route(version="v3", share=0.5))
        waiting = [activating.activate("v3"), activating.roll_back(), activating.route(routes)]
        refused = await asyncio.gather(*waiting, activating.activate("v3"), return_exceptions=True)
        took = time.monotonic() - begun
        assert (await first).live.version == "v2"
        return took, list(refused)

    took, refused = asyncio.run(all_at_once())
    assert [type(one) for one in refused] == [BusyError] * 4
    assert "did not start within 0.1 seconds" in str(refused[0])
    assert took < 0.6
    assert read_routes(three) == Routes()
    assert asyncio.run(activator(model_holder).activate("v3")).live.version == "v3"


def test_a_call_that_is_given_up_while_it_waits_leaves_no_lock(three: Path) -> None:
    model_holder = ModelHolder(three)

    async def give_up() -> None:
        with activation_lock(three), pytest.raises(TimeoutError):
            await asyncio.wait_for(activator(model_holder).activate("v2"), 0.05)
        await asyncio.sleep(0.1)
        with activation_lock(three, 0.0):
            pass

    asyncio.run(give_up())
    assert current(three) == "v1"


def test_a_call_that_is_given_up_while_it_commits_keeps_the_lock_until_that_is_done(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_holder = ModelHolder(three)
    begun, held = threading.Event(), []

    def slowly(root: Path, version: str) -> None:
        begun.set()
        time.sleep(0.3)
        try:
            with activation_lock(root, 0.0):
                held.append(False)
        except BusyError:
            held.append(True)
        point(root, version)

    monkeypatch.setattr(target, "point", slowly)

    async def give_up() -> None:
        activating = asyncio.create_task(activator(model_holder).activate("v2"))
        await asyncio.to_thread(begun.wait)
        activating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await activating
        await model_holder.follow()

    asyncio.run(give_up())
    assert held == [True]
    assert current(three) == model_holder.version == "v2"


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
        asyncio.run(Activator(model_holder, Settings(bundles=three, overlap_minimum=0), gate).activate("v2"))
    assert (current(three), model_holder.version, model_holder.shared_state.target.value) == ("v1", "v1", 1)


def test_the_lock_is_of_all_processes_and_threads(tmp_path: Path) -> None:
    inside, most = [0], [0]

    def enter() -> None:
        with activation_lock(tmp_path):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.01)
            inside[0] -= 1

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_workers_that_do_not_follow_are_named(three: Path) -> None:
    shared_state = SharedState(2)
    model_holder = ModelHolder(three, shared_state=shared_state)
    shared_state.slots[1].occupy()
    swap = asyncio.run(activator(model_holder, activation_seconds=0.05).activate("v2"))
    assert swap.behind == (shared_state.slots[1].pid,)
    assert current(three) == "v2"


def test_a_worker_that_has_the_version_and_still_routes_to_it_as_a_canary_is_named(three: Path) -> None:
    shared_state = SharedState(2)
    model_holder = ModelHolder(three, shared_state=shared_state)
    other = shared_state.slots[1]
    activating = activator(model_holder, activation_seconds=0.05)
    asyncio.run(activating.route(Routes(canary=Route(version="v2", share=0.5))))
    other.occupy()
    other.live, other.routes = 2, shared_state.routes.value
    assert asyncio.run(activating.activate("v2")).behind == (other.pid,)
    other.live, other.routes = 3, shared_state.routes.value
    assert asyncio.run(activating.activate("v3")).behind == ()


def test_the_way_back_goes_to_and_fro_and_on_after_a_restart(three: Path) -> None:
    model_holder = ModelHolder(three)
    with pytest.raises(BundleError, match="no other version was live"):
        asyncio.run(activator(model_holder).roll_back())
    asyncio.run(activator(model_holder).activate("v2"))
    model_holder = ModelHolder(three)
    for expected in ("v1", "v2", "v1"):
        assert asyncio.run(activator(model_holder).roll_back("ann")).live.version == expected
    assert lines(three)[-1]["who"] == "ann (rollback)"


def test_a_disk_without_room_for_the_line_leaves_everything_as_it_was(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pointer was moved by then, and goes back."""
    model_holder = ModelHolder(three)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_holder.activation_log, "add", full)
    with pytest.raises(BundleError, match="No space left"):
        asyncio.run(activator(model_holder).activate("v2"))
    assert (current(three), model_holder.version, model_holder.shared_state.target.value) == ("v1", "v1", 1)
    assert target.current_version(three) == "v1"


def test_routes_are_kept_and_end_when_their_version_becomes_live(three: Path) -> None:
    model_holder = ModelHolder(three)
    routes = Routes(canary=Route(version="v2", share=0.5), shadow=Route(version="v3", share=1.0))
    assert asyncio.run(activator(model_holder).route(routes)) == Late((), ())
    assert model_holder.traffic.canary is not None
    assert model_holder.traffic.shadow is not None
    assert (model_holder.traffic.canary.version, model_holder.traffic.shadow.version) == ("v2", "v3")
    again = ModelHolder(three)
    assert again.traffic.routes == model_holder.traffic.routes == read_routes(three)
    asyncio.run(activator(model_holder).activate("v2"))
    assert model_holder.traffic.canary is None
    assert model_holder.traffic.shadow is not None
    assert read_routes(three).canary is None


def test_a_route_to_a_refused_version_changes_nothing(three: Path) -> None:
    model_holder = ModelHolder(three)
    (three / "v2" / "golden.json").unlink()
    with pytest.raises(RefusedError):
        asyncio.run(activator(model_holder).route(Routes(canary=Route(version="v2", share=0.5))))
    assert read_routes(three) == Routes()


def test_a_canary_that_was_replaced_and_leads_nowhere_is_checked_again(
    three: Path, tmp_path: Path, make_contents: Make
) -> None:
    """Its old pin would be kept, and the call answered though nobody gets the canary."""
    routes = Routes(canary=Route(version="v2", share=1.0))
    asyncio.run(activator(ModelHolder(three)).route(routes))
    (three / "v2").rename(tmp_path / "away")
    publish(three, make_contents("v2", ids=range(500, 540)))
    model_holder = ModelHolder(three)  # a worker that starts now can't open what was pinned
    assert model_holder.traffic.canary is None
    asyncio.run(activator(model_holder).route(routes))
    assert model_holder.choose("anyone").version == "v2"
    assert ModelHolder(three).choose("anyone").version == "v2"
    (three / "v2" / "golden.json").unlink()
    model_holder = ModelHolder(three)
    with pytest.raises(RefusedError):
        asyncio.run(activator(model_holder).route(routes))


def test_a_canary_that_is_open_is_not_checked_again_for_another_share(three: Path) -> None:
    model_holder, checked = ModelHolder(three), []

    async def gate(request: GateRequest) -> Passage:
        checked.append(request.version)
        return pass_gate(request)

    routing = Activator(model_holder, Settings(bundles=three, overlap_minimum=0), gate)
    for share in (0.5, 0.7):
        asyncio.run(routing.route(Routes(canary=Route(version="v2", share=share))))
    assert checked == ["v2"]
    assert model_holder.traffic.canary is not None


def test_memory_of_replaced_versions_is_given_back(three: Path) -> None:
    """Nothing keeps a bundle once no request answers from it."""
    import gc
    import weakref

    model_holder = ModelHolder(three)
    gone = weakref.ref(model_holder.live.bundle)
    asyncio.run(activator(model_holder).activate("v2"))
    gc.collect()
    assert gone() is None


def test_a_check_changes_nothing_and_comes_between_activations(three: Path) -> None:
    """A worker has one check at a time: a second one would end the first."""

    async def run() -> None:
        model_holder = ModelHolder(three)
        activators = activator(model_holder, [0.2])
        activating = asyncio.create_task(activators.activate("v2"))
        await asyncio.sleep(0.05)
        with pytest.raises(BusyError, match="an activation or another check is in progress; retry"):
            await activators.check("v3")
        await activating
        passage = await activators.check("v3")
        assert passage.report.passed
        assert model_holder.live.version == "v2"

    asyncio.run(run())
    assert [line["version"] for line in lines(three)] == ["v1", "v2"]
