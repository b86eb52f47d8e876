"""Which version answers in each member: activations, those that follow, routes, the shadow."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents
from tests.support.members import CANARY, Member, Members, line
from tests.support.until import eventually
from turret.service.errors import BusyError, ConflictError, NotReadyError, ReplicasUnavailableError
from turret.service.observing.metrics import Metrics
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.ranking.query import NO_HISTORY, make_query
from turret.service.ranking.recommender import Shadow
from turret.service.schemas.requests import RecommendRequest
from turret.service.stores.contract import Late
from turret.service.stores.sqlite.shared import SqliteItems
from turret.service.versions import activation as activation_module
from turret.service.versions.folder import RECORD, add_line, keep_record, kept_record, record_of
from turret.service.versions.follower import SILENT_SECONDS
from turret.service.versions.gate_report import GateReport, GateRequest
from turret.service.versions.holder import LoadedModel, open_live
from turret.service.versions.record import Record, Route, Routes, Rule, RuleSet
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.format.listing import current, point
from turret.tower.format.manifest import manifest_digest

UNCHANGED = ("v1", "v1", 1)


def routes_of(root: Path) -> Routes:
    """The routes with which the next service would begin."""
    kept = kept_record(root)
    assert kept is not None
    return kept.routes


def state(member: Member) -> tuple[str | None, str | None, int]:
    """The version of the pointer, the one that answers, and the number of the activation."""
    return current(member.root), member.version, member.holder.live.number


def with_canary(routes: Routes) -> Routes:
    return routes.model_copy(update={"canary": Route(version="v2", share=1.0)})


# --- A version that can't be opened


async def test_a_version_that_can_not_be_opened_gives_way_to_the_one_before(members: Members) -> None:
    """In every worker of the service, once: it is an activation."""
    one = await members.join()
    await one.activate("v2")
    (members.root / "v2" / "golden.json").unlink()
    others = [await members.join(f"a:8000/{pid}", record=members.record) for pid in (1, 2)]
    assert {(other.version, other.holder.live.number) for other in others} == {("v1", 3)}
    await one.follow(1)
    assert state(one) == ("v1", "v1", 3)
    assert [one["who"] for one in members.lines].count("fallback") == 1


@pytest.mark.fault(70)
async def test_one_of_several_replicas_falls_back_alone(members: Members) -> None:
    """It sends requests to the others while they serve the live version, and follows once it can."""
    one = await members.join("a:8000/1", is_shared=True)
    await one.activate("v2")
    following = asyncio.create_task(one.follower.follow())
    golden = members.root / "v2" / "golden.json"
    golden.rename(golden.with_suffix(".away"))
    other = await members.join("b:8000/1", record=members.record, is_shared=True)
    await other.follow(2)
    assert (other.version, members.record.live.version) == ("v1", "v2")
    assert other.holder.has_fallen_back
    with pytest.raises(NotReadyError, match="send the request to another instance"):
        _ = other.holder.answering
    following.cancel()
    await other.follow(2 * SILENT_SECONDS)
    assert other.holder.answering.version == "v1"
    golden.with_suffix(".away").rename(golden)
    await other.follow(10)
    assert (other.version, other.holder.has_fallen_back) == ("v2", False)


# --- Activation


@pytest.mark.fault(14)
async def test_activations_queue(members: Members) -> None:
    """The one that is asked for last is live in the end, and each names the one it took the place of."""
    member = await members.join()
    member.delays = [0.0, 2.0, 1.0]
    swaps = await asyncio.gather(*(member.activate(version) for version in ("v1", "v2", "v3")))
    assert [swap.replaced for swap in swaps] == ["v1", "v1", "v2"]
    assert state(member) == ("v3", "v3", 4)
    assert [one["number"] for one in members.lines] == [1, 2, 3, 4]


@pytest.mark.fault(62)
async def test_files_that_are_replaced_after_their_activation_are_opened_by_no_member(
    members: Members, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Authors of models can write the record in their folder, too: that of the store counts."""
    other = publish(tmp_path / "other", contents("v2", ids=range(400, 440)))
    one = await members.join(activation_seconds=0.3)
    stopped = await members.join("a:8000/1")
    await one.activate("v2")
    (members.root / "v2").rename(members.root / ".moved")
    other.rename(members.root / "v2")
    written = line("v2", manifest=manifest_digest(members.root / "v2"))
    keep_record(members.root, record_of(members.root).activated(written))
    await stopped.follow(1)
    assert (stopped.version, one.version, one.holder.live.bundle.vocabulary.id(0)) == ("v1", "v2", 200)
    assert "does not hold the files that were activated" in caplog.text
    await one.activate("v3")
    with pytest.raises(BundleError, match="activate it by its name"):
        await one.activator.roll_back("v3")
    assert one.version == "v3"


async def test_files_that_change_while_they_are_checked_do_not_go_live(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that activates hashes no file again: it sees that each is the one that was hashed."""
    member, hashed = await members.join(), list[Path]()
    monkeypatch.setattr("turret.tower.bundle.bundle.check_files", lambda folder, _: hashed.append(folder))
    await member.activate("v2")
    assert (member.version, hashed) == ("v2", [])
    run_gate = member.activator._run_gate

    async def overtaken(request: GateRequest) -> GateReport:
        report, path = await run_gate(request), members.root / "v3" / "item_vectors.npy"
        content = bytearray(path.read_bytes())
        content[-4] ^= 1  # the last bit of a number
        path.write_bytes(content)
        return report

    member.activator._run_gate = overtaken
    with pytest.raises(BundleError, match="v3 changed while it was checked; activate it again"):
        await member.activate("v3")
    assert (member.version, members.record.live.version) == ("v2", "v2")


async def test_a_canary_is_opened_once(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    member, opened = await members.join(), list[str]()

    def noting(root: Path, version: str, *others: Any) -> LoadedModel:
        opened.append(version)
        return open_live(root, version, *others)

    for module in ("activation", "holder"):
        monkeypatch.setattr(f"turret.service.versions.{module}.open_live", noting)
    rules = RuleSet(rules={"cheap": Rule(cap={"genres": 2})})
    await member.activator.route(lambda routes: with_canary(routes.ruled(rules)))
    assert opened == ["v2"]
    assert member.holder.traffic.canary is not None


async def test_members_have_one_version_also_after_their_record_was_deleted(members: Members) -> None:
    """A worker that starts after that has no other record than those that had the file open."""
    one, other = await members.join(), await members.join("a:8000/1")
    await one.activate("v2")
    await other.follow(1)
    for path in members.path.parent.glob(f"{members.path.name}*"):
        path.unlink()
    new = await members.join("a:8000/2", record=await members.first())
    following = [asyncio.create_task(each.follower.follow()) for each in (one, other, new)]
    await asyncio.sleep(2)
    assert {each.version for each in (one, other, new)} == {"v2"}
    assert (await new.activate("v3")).late == Late([], [])
    assert {each.version for each in (one, other, new)} == {"v3"}
    for task in following:
        task.cancel()


# --- Several members


@pytest.mark.fault(68)
async def test_members_follow_each_other_and_late_ones_are_named(members: Members) -> None:
    """A worker of the same service by its process, another replica by its address."""
    one = await members.join(activation_seconds=2)
    worker = await members.join("a:8000/1")
    replica = await members.join("b:8000/1")
    following = [asyncio.create_task(other.follower.follow()) for other in (worker, replica)]
    swap = await one.activate("v2")
    assert (swap.version, swap.replaced, swap.late) == ("v2", "v1", Late([], []))
    assert (worker.version, replica.version, replica.holder.number) == ("v2", "v2", 2)
    for each in following:
        each.cancel()
    begun = asyncio.get_running_loop().time()
    assert (await one.activate("v3")).late == Late([1], ["b:8000"])
    assert asyncio.get_running_loop().time() - begun == pytest.approx(2, abs=0.1)
    await asyncio.sleep(SILENT_SECONDS)
    begun = asyncio.get_running_loop().time()
    assert (await one.activate("v1")).late == Late([1], ["b:8000"])
    assert asyncio.get_running_loop().time() == pytest.approx(begun), "silent ones are not waited for"


@pytest.mark.fault(68)
async def test_a_worker_that_was_stopped_follows_before_it_answers(members: Members) -> None:
    one = await members.join(activation_seconds=1)
    other = await members.join("a:8000/1")
    assert other.follower._ticking is not None
    other.follower._ticking.cancel()  # as a process that is stopped, it doesn't notice that time passes
    for version in ("v2", "v1", "v3"):
        await one.activate(version)
    assert other.follower.was_stopped
    await other.follower.refresh()
    assert not other.follower.was_stopped
    assert other.version == "v3"


async def test_an_answer_is_never_older_than_was_asked_for(members: Members) -> None:
    """It waits a while for the worker to follow; order is that of activations."""
    one = await members.join(activation_seconds=1)
    other = await members.join("a:8000/1")
    await one.activate("v2")
    await other.follower.look()
    assert (await other.holder.live_at_least("v1", 0.0)).version == "v1"
    with pytest.raises(NotReadyError, match="not live in this process yet") as refused:
        await other.holder.live_at_least("v2", 5)
    assert refused.value.retry_after == 1
    waiting = asyncio.create_task(other.holder.live_at_least("v2", 5))
    await other.follow(1)
    assert (await waiting).version == "v2"
    await one.activator.roll_back("v2")
    await other.follower.look()
    with pytest.raises(NotReadyError):  # v1 was promised again, by a later activation
        await other.holder.live_at_least("v1", 0.0)
    await other.follow(1)
    assert (await other.holder.live_at_least("v2", 0.0)).version == "v1"
    with pytest.raises(ConflictError, match="never live"):
        await other.holder.live_at_least("v3", 0.0)


async def test_a_member_that_can_not_read_the_record_promises_no_version(members: Members) -> None:
    """The others don't wait for it any more, so the version may have been activated again."""
    one, other = await members.join(), await members.join("b:8000/1")
    with members.failing():
        await other.follow(1)
        assert (await other.holder.live_at_least("v1")).version == "v1"
        await other.follow(SILENT_SECONDS - 1)
        with pytest.raises(NotReadyError, match="send the request to another instance"):
            await other.holder.live_at_least("v1")
    for version in ("v2", "v1"):
        assert (await one.activate(version)).late == Late([], ["b:8000"])
    await other.follow(1)
    assert (await other.holder.live_at_least("v1")).version == "v1"
    assert other.holder.number == 3


async def test_a_member_stopped_in_an_activation_can_not_overwrite_a_later_one(members: Members) -> None:
    """It has lost its lease meanwhile; the pointer stays that of the other."""
    one = await members.join()
    other = await members.join("b:8000/1", root=members.root / ".." / members.root.name)
    record = record_of(members.root)
    await other.activate("v3")
    with pytest.raises(BusyError, match="another replica has activated version v3 meanwhile; retry"):
        await one.follower.replace(one.holder.record, record.activated(line("v2")))
    await one.follow(1)
    assert state(one) == ("v3", "v3", 2)


class KilledError(BaseException):
    """What ends a member in a test: no code of it expects it."""


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["keep_record", "replace", "add_line", "take"])
async def test_a_member_killed_in_an_activation_leaves_one_live_version_everywhere(
    members: Members, monkeypatch: pytest.MonkeyPatch, step: str, is_done: bool
) -> None:
    """In those that run, in those that start, and after a restart of all; and the next one goes on."""
    one, other = await members.join(), await members.join("b:8000/1")
    owner = {"replace": one.follower, "take": one.holder}.get(step, activation_module)
    original = getattr(owner, step)

    def die() -> None:
        one.records.is_cut_off = True
        raise KilledError

    def killed(*given: Any) -> Any:
        if is_done:
            original(*given)
        die()

    async def killed_in_the_loop(*given: Any) -> None:
        if is_done:
            await original(*given)
        die()

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, killed_in_the_loop if step in ("replace", "take") else killed)
        with pytest.raises(KilledError):
            await one.activate("v2")
    await other.follow(2)
    assert other.version == members.record.live.version
    new = await members.join("c:8000/1", record=await members.first())
    assert state(new)[1:] == state(other)[1:]
    is_committed = (step, is_done) not in (("keep_record", False), ("keep_record", True), ("replace", False))
    assert other.version == ("v2" if is_committed else "v1")
    assert [line["version"] for line in members.lines] == ["v1", "v2"][: 1 + is_committed]
    following = asyncio.create_task(other.follower.follow())
    assert (await new.activate("v3")).version == "v3"
    assert other.version == current(members.root) == "v3"
    following.cancel()


@pytest.mark.fault(69)
async def test_without_the_store_nothing_is_changed(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when it dies before an activation or a change of the routes, nor within one."""
    member = await members.join()
    with members.failing(), pytest.raises(ReplicasUnavailableError, match="nothing is changed"):
        await member.activate("v2")
    assert state(member) == UNCHANGED
    replace = member.follower.replace

    async def dying(before: Record | None, after: Record) -> None:
        with members.failing():
            await replace(before, after)

    monkeypatch.setattr(member.follower, "replace", dying)
    for change in (member.activate("v2"), member.activator.route(with_canary)):
        with pytest.raises(ReplicasUnavailableError, match="the change is not confirmed"):
            await change
    assert state(member) == UNCHANGED
    assert (routes_of(members.root), member.holder.traffic.routes) == (Routes(), Routes())


@pytest.mark.fault(69)
async def test_members_that_can_not_be_asked_are_not_taken_to_have_a_change(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked until the time is over; the answer then says that none could be."""
    one, other = await members.join(activation_seconds=2), await members.join("b:8000/1")

    def before_the_store_dies(*given: Any) -> None:
        add_line(*given)
        members.is_down = True

    def lives_again() -> None:
        members.is_down = False

    monkeypatch.setattr(activation_module, "add_line", before_the_store_dies)
    late = (await one.activate("v2")).late
    assert (late.replicas, one.version) == ([], "v2")
    assert late.shown().keys() == {"warning"}
    assert "could be asked whether it has the change (the store is unavailable)" in (late.warning or "")
    lives_again()
    asyncio.get_running_loop().call_later(1, lives_again)
    assert (await one.activate("v3")).late == Late([], ["b:8000"])
    assert other.version == "v1"


@pytest.mark.fault(69)
async def test_a_member_that_begins_without_the_store_serves_the_pointer_and_corrects_itself(
    members: Members,
) -> None:
    """The pointer may have been moved meanwhile, so it promises no version."""
    await (await members.join()).activate("v2")
    point(members.root, "v3")
    record = record_of(members.root).unconfirmed()
    members.is_down = True
    new = await members.join("b:8000/1", record=record)
    assert new.version == "v3"
    with pytest.raises(NotReadyError):
        await new.holder.live_at_least("v2", 0.0)
    members.is_down = False
    await new.follow(1)
    assert (await new.holder.live_at_least("v2", 0.0)).version == "v2"


@pytest.mark.fault(69)
async def test_a_lost_or_older_record_gives_way_to_the_live_version(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = await members.join(activation_seconds=1), await members.join("b:8000/1")
    old = members.stored
    await one.activate("v2")
    for damage in (b"", old):
        members.write(damage)
        await other.follow(0.2)  # it may be one that had not followed
        await asyncio.gather(one.follow(1), other.follow(1))
        assert members.record.live.version == one.version == other.version == "v2"
    assert "it says again that version v2 is live" in caplog.text


# --- Routes


async def test_routes_are_kept_and_end_when_their_version_becomes_live(members: Members) -> None:
    member = await members.join()
    routes = Routes(canary=Route(version="v2", share=0.5), shadow=Route(version="v3", share=1.0))
    assert await member.activator.route(lambda _: routes) == Late([], [])
    routes = member.holder.traffic.routes
    assert [route.version for route in (routes.canary, routes.shadow) if route] == ["v2", "v3"]
    members.write()
    assert (await members.join()).holder.traffic.routes == routes == routes_of(members.root)
    await member.activate("v2")
    assert member.holder.traffic.canary is None
    assert member.holder.traffic.shadow is not None
    assert routes_of(members.root).canary is None


async def test_the_canary_answers_its_users_and_the_live_version_the_rest(members: Members) -> None:
    members.route(CANARY)
    holder = (await members.join()).holder
    assert {holder.choose(str(user)).version for user in range(50)} == {"v1", "v2"}
    assert holder.choose(None).version == "v1"
    assert holder.serving("v2") is holder.traffic.canary
    assert holder.serving("v3") is None


@pytest.mark.parametrize("how", ["deleted", "nonsense", "refused"])
async def test_routes_that_lead_nowhere_leave_all_to_the_live_version(members: Members, how: str) -> None:
    if how == "refused":
        (members.root / "v2" / "golden.json").unlink()
        with pytest.raises(BundleError, match="golden"):
            await (await members.join()).activator.route(with_canary)
        assert routes_of(members.root) == Routes()
    elif how == "deleted":
        members.route(CANARY)
        (members.root / "v2" / "manifest.json").unlink()
    else:
        (members.root / RECORD).write_text("{")
    members.write()
    member = await members.join()
    assert member.holder.choose("anyone").version == "v1"
    if how == "nonsense":
        await member.activator.route(with_canary)  # as its sentence says
        assert member.holder.choose("anyone").version == "v2"


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_route_to_the_live_version_is_to_the_content_that_was_checked(
    members: Members, is_own: bool
) -> None:
    """Other files of the same name are not what the route was sent for."""
    manifest = manifest_digest(members.root / "v1") if is_own else "0" * 64
    members.route(Routes(canary=Route(version="v1", share=1.0, manifest=manifest)))
    assert ((await members.join()).holder.traffic.canary is not None) == is_own


async def test_a_compared_version_is_opened_in_all_members_until_its_time_is_over(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await members.join(), await members.join("b:8000/1")
    following = [asyncio.create_task(each.follower.follow()) for each in (one, other)]
    assert await one.activator.compare("v2") == Late([], [])
    for each in (one, other):
        assert each.holder.traffic.candidate is not None
        assert each.holder.traffic.candidate.version == "v2"
    assert await one.activator.compare(None) == Late([], [])
    assert other.holder.traffic.candidate is None
    await one.activator.compare("v3")
    monkeypatch.setattr("turret.service.versions.holder.is_over", lambda _: True)
    await asyncio.sleep(1)
    assert one.holder.traffic.candidate is other.holder.traffic.candidate is None
    for task in following:
        task.cancel()


# --- The shadow


async def test_the_shadow_answers_with_its_own_version_and_is_compared(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests beyond the limit are dropped, and a failing one ends nothing: two of four wait, one fails."""
    members.route(Routes(shadow=Route(version="v2", share=1.0)))
    metrics, asked = Metrics(), list[str]()

    def answer_of(*ids: int) -> dict[str, Any]:
        return {"items": [{"id": item} for item in ids]}

    def recommend(shadow: LoadedModel, *_: object) -> list[dict[str, Any]]:
        asked.append(shadow.version)
        if len(asked) == 1:
            raise RuntimeError("the shadow fails")
        return [answer_of(3, 4, 9, 9)]

    def counted(outcome: str) -> float | None:
        return metrics.registry.get_sample_value("turret_shadow_answers_total", {"outcome": outcome})

    monkeypatch.setattr("turret.service.ranking.recommender.recommend", recommend)
    shadow = Shadow((await members.join()).holder, ItemOverlayCache(SqliteItems()), metrics, limit=2)
    query = make_query(RecommendRequest(), NO_HISTORY, (), 0)
    for _ in range(4):
        shadow.offer(query, answer_of(1, 2, 3, 4))
    assert asked == [], "nobody waits for it"
    await eventually(lambda: counted("answered"), "an answer of the shadow")
    await shadow.close()
    assert asked == ["v2", "v2"]
    assert [counted(outcome) for outcome in ("answered", "failed", "dropped")] == [1, 1, 2]
    assert metrics.registry.get_sample_value("turret_shadow_overlap_sum") == 0.5
