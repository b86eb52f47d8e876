"""Which version answers: the record that all members share, activations, routes, the shadow."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents
from tests.support.members import Member, Members
from tests.support.service_app import settings_of
from tests.support.until import eventually
from turret.service.errors import (
    BusyError,
    ConflictError,
    NotReadyError,
    ReplicasUnavailableError,
    ServiceError,
)
from turret.service.http.app import create_app
from turret.service.observing.metrics import Metrics
from turret.service.ranking.recommender import Shadow
from turret.service.versions import activation as activation_module
from turret.service.versions import folder
from turret.service.versions.activation import RefusedError
from turret.service.versions.folder import (
    LOG,
    RECORD,
    add_line,
    keep,
    keep_record,
    kept_record,
    latest_lines,
    record_of,
)
from turret.service.versions.follower import SILENT_SECONDS
from turret.service.versions.holder import LoadedModel
from turret.service.versions.record import Activation, Record, Route, Routes, read_record
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.format.listing import current, point
from turret.tower.format.manifest import manifest_digest

VERSIONS = ("v1", "v2", "v3")
CANARY = Routes(canary=Route(version="v2", share=0.5))


@pytest.fixture
def members(three: Path, tmp_path: Path) -> Members:
    return Members(three, tmp_path / "record.sqlite")


def routes_of(root: Path) -> Routes:
    """The routes with which the next service would begin."""
    kept = kept_record(root)
    assert kept is not None
    return kept.routes


def state(member: Member) -> tuple[str | None, str | None, int]:
    """The version of the pointer, the one that answers, and the number of the activation."""
    return current(member.root), member.version, member.holder.live.number


def canary_of(version: str, share: float = 1.0) -> Callable[[Routes], Routes]:
    canary = Route(version=version, share=share)
    return lambda routes: routes.model_copy(update={"canary": canary})


def line(version: str, number: int | None = None, **more: Any) -> Activation:
    given = {"time": "now", "who": "ann", "outcome": "activated"} | more
    return Activation(version=version, number=number, **given)


UNCHANGED = ("v1", "v1", 1)


# --- The record


SHOWN = Record(live=line("v2", 7, manifest="ab" * 32), before=(line("v1", 6),), routes=CANARY)


def test_a_record_is_read_as_it_was_written() -> None:
    """During an upgrade both releases read it: fields of a later one are ignored."""
    assert read_record(SHOWN.encoded()) == SHOWN
    assert read_record(json.dumps(json.loads(SHOWN.encoded()) | {"mood": 1}).encode()) == SHOWN
    assert read_record(b"") is None


@pytest.mark.parametrize(
    "change",
    [
        {"live": {"version": "../v2"}},
        {"live": {"version": "current"}},
        {"live": {"manifest": "xyz"}},
        {"live": {"number": 0}},
        {"live": {"number": "x"}},
        {"number": 0},
        {"routes": 1},
        {"before": [1]},
    ],
)
def test_a_record_that_could_not_be_served_is_an_error_in_words(change: dict[str, Any]) -> None:
    whole = json.loads(SHOWN.encoded())
    if "live" in change:
        change = {"live": whole["live"] | change["live"]}
    with pytest.raises(ReplicasUnavailableError, match=r"no record of this service .* delete the key"):
        read_record(json.dumps(whole | change).encode())


def test_a_record_knows_each_version_once_at_its_last_activation() -> None:
    """And a canary and a candidate end when their version becomes live."""
    candidate = Route(version="v1", opened=1)
    routes = CANARY.model_copy(update={"candidate": candidate})
    after = SHOWN.model_copy(update={"routes": routes}).activated(line("v3")).activated(line("v1"))
    assert [one.version for one in (after.live, *after.before)] == ["v1", "v3", "v2"]
    assert (after.live.number, after.live.previous) == (9, "v3")
    assert after.routes == CANARY
    assert after.number == SHOWN.number + 2


def test_a_larger_share_keeps_the_users_of_a_smaller_one() -> None:
    """Another canary has other users."""
    small, large = (Routes(canary=Route(version="v2", share=share)) for share in (0.1, 0.3))
    users = [str(user) for user in range(10_000)]
    # A share of 10,000 fair draws, but for five standard deviations.
    assert abs(sum(map(small.takes, users)) - 1_000) < 150
    assert abs(sum(map(large.takes, users)) - 3_000) < 230
    assert all(large.takes(user) for user in users if small.takes(user))
    assert not any(map(Routes().takes, users))
    other = Routes(canary=Route(version="v3", share=0.3))
    assert abs(sum(other.takes(user) and large.takes(user) for user in users) - 900) < 150


# --- The folder


@pytest.mark.parametrize(
    ("pointer", "message"),
    [(None, "there are v1"), ("v9", "there are: v1"), ("empty", "holds no current version; export one")],
)
def test_without_a_version_a_service_does_not_start(
    bundles: Path, tmp_path: Path, pointer: str | None, message: str
) -> None:
    (bundles / "current").unlink()
    if pointer == "v9":
        point(bundles, pointer)
    (tmp_path / "empty").mkdir()
    with pytest.raises((ServiceError, BundleError), match=message):
        create_app(settings_of(tmp_path / "empty" if pointer == "empty" else bundles))


def test_a_pointer_that_was_moved_while_nothing_ran_is_an_activation(three: Path) -> None:
    """A start that changes nothing is none."""
    for _ in range(2):
        keep(three, record := record_of(three))
        assert (record.number, record.live.who, record.before) == (1, "start", ())
    point(three, "v2")
    keep(three, record := record_of(three))
    assert (record.live.version, record.number, record.live.who) == ("v2", 2, "pointer")
    assert [one.version for one in record.before] == ["v1"]
    assert [one.number for one in latest_lines(three)] == [2, 1]


def test_a_folder_follows_a_record_once(three: Path) -> None:
    """Somebody may move the pointer afterwards, for the next start."""
    before = record_of(three)
    record = before.activated(line("v2")).routed(CANARY)
    for _ in range(2):
        keep(three, record)
    assert [one.number for one in latest_lines(three)] == [2]
    assert (current(three), kept_record(three)) == ("v2", record)
    keep(three, before)  # by a worker that is late
    assert (current(three), kept_record(three)) == ("v2", record)
    point(three, "v1")
    keep(three, record)
    assert current(three) == "v1"


def test_a_line_of_the_log_is_synced_before_it_counts_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file with the whole line, then its folder."""
    synced: list[tuple[Path, int]] = []
    file = tmp_path / LOG

    def fsync(descriptor: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")), len(file.read_text().splitlines())))

    monkeypatch.setattr(os, "fsync", fsync)
    add_line(tmp_path, line("v1", 1))
    add_line(tmp_path, line("v2", outcome="refused"))
    assert synced == [(file, 1), (tmp_path, 1), (file, 2), (tmp_path, 2)]


@pytest.mark.parametrize("torn", ['{"number": 2, "vers', "\n", "x" * 3_000_000, "\0" * 70_000])
def test_a_torn_last_line_is_passed_over(tmp_path: Path, torn: str) -> None:
    add_line(tmp_path, line("v1", 1))
    with (tmp_path / LOG).open("a") as file:
        file.write(torn)
    add_line(tmp_path, line("v2", 2))
    add_line(tmp_path, line("v3", outcome="refused"))
    found = [one.version for one in latest_lines(tmp_path)]
    assert found == (["v3", "v2"] if len(torn) > 1_000_000 else ["v3", "v2", "v1"])
    assert latest_lines(tmp_path, 1) == [line("v3", outcome="refused")]


@pytest.mark.fault(51)
def test_a_link_in_its_place_is_neither_read_nor_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever can write models could else have a line added to any file of the service."""
    other = tmp_path / "keys.json"
    other.write_text("{}")
    (tmp_path / LOG).symlink_to(other)
    add_line(tmp_path, line("v1", 1))
    assert latest_lines(tmp_path) == []
    assert other.read_text() == "{}"
    assert "so it lacks a line: version v1 activated" in caplog.text


@pytest.mark.parametrize("text", ["", "[]", '{"live": 1}', '{"routes": {"canary": "x"}}', None])
def test_a_file_that_holds_no_record_is_passed_over_with_a_warning(
    three: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Any author of models may write it. A link in its place is not followed."""
    if text is None:
        (three / "other").write_bytes(SHOWN.encoded())
        (three / RECORD).symlink_to("other")
    else:
        (three / RECORD).write_text(text)
    with pytest.raises(ServiceError, match=r"(holds no record|can't be read) .*; delete it"):
        kept_record(three)
    record = record_of(three)
    assert (record.live.version, record.number, record.before) == ("v1", 1, ())
    assert "delete it" in caplog.text
    keep(three, record)
    assert kept_record(three) == record


# --- The first record


async def test_the_first_service_begins_with_the_pointer_and_others_with_the_record(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    assert await members.first(waits=True) is None, "a worker looks for a version that can be opened"
    record = await members.first()
    assert record == members.record
    assert (record.number, record.live.version) == (1, "v1")
    assert [one["version"] for one in members.lines] == ["v1"]
    members.write(SHOWN.encoded())
    assert await members.first() == SHOWN
    assert "names version v1, but the live version of all replicas is v2" in caplog.text


async def test_without_a_record_that_can_be_read_it_begins_with_the_pointer_unconfirmed(
    members: Members,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folder, "_START_SECONDS", 0.0)
    members.write(b"something else")
    record = await members.first()
    assert record is not None
    assert (record.number, record.live.version) == (0, "v1")
    assert "delete the key" in caplog.text
    members.is_down = True
    again = await members.first()
    assert again is not None
    assert (again.number, again.live.version) == (0, "v1")
    assert not (members.root / "activations.jsonl").exists()
    assert "until the replicas' record is read" in caplog.text
    empty = tmp_path / "empty"
    empty.mkdir()
    assert await members.first(root=empty, waits=True) is None
    with pytest.raises(ServiceError, match="holds no current version"):
        await members.first(root=empty)


@pytest.mark.parametrize("how", ["published", "repaired", "pointed elsewhere", "activated"])
async def test_a_worker_that_waits_takes_the_first_version_that_can_be_served(
    members: Members, tmp_path: Path, how: str
) -> None:
    root = tmp_path / "empty" if how == "published" else members.root
    root.mkdir(exist_ok=True)
    golden = members.root / "v1" / "golden.json"
    golden.rename(golden.with_suffix(".away"))
    member = await members.join(root=root, waits=True)
    await member.follow(3)
    assert member.version is None
    if how == "published":
        publish(root, contents("v1"))
    elif how == "repaired":
        golden.with_suffix(".away").rename(golden)
    elif how == "pointed elsewhere":
        point(root, "v2")
    else:
        await member.activate("v2")
    await member.follow(3)
    expected = "v1" if how in ("published", "repaired") else "v2"
    assert member.version == (await member.holder.first()).version == current(root) == expected
    with pytest.raises(BundleError, match="no other version was live"):
        await member.activator.roll_back()


async def test_a_version_that_can_not_be_opened_any_more_gives_way_to_the_one_before(
    members: Members,
) -> None:
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
    assert (other.version, members.record.live.version, other.holder.has_fallen_back) == (
        "v1",
        "v2",
        True,
    )
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
    swaps = await asyncio.gather(*(member.activate(version) for version in VERSIONS))
    asked = [(swap.version, swap.replaced) for swap in swaps]
    assert [replaced for _, replaced in asked] == ["v1", "v1", "v2"]
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
    keep_record(
        members.root,
        record_of(members.root).activated(line("v2", manifest=manifest_digest(members.root / "v2"))),
    )
    await stopped.follow(1)
    assert (stopped.version, one.version, one.holder.live.bundle.vocabulary.id(0)) == ("v1", "v2", 200)
    assert "does not hold the files that were activated" in caplog.text
    await one.activate("v3")
    with pytest.raises(BundleError, match="activate it by its name"):
        await one.activator.roll_back()
    assert one.version == "v3"


# --- Several members


async def test_members_follow_each_other_and_late_ones_are_named(members: Members) -> None:
    """A worker of the same service by its process, another replica by its address."""
    one = await members.join(activation_seconds=2)
    worker = await members.join("a:8000/1")
    replica = await members.join("b:8000/1")
    following = [asyncio.create_task(other.follower.follow()) for other in (worker, replica)]
    swap = await one.activate("v2")
    assert (swap.version, swap.replaced, swap.late) == ("v2", "v1", ([], []))
    assert (worker.version, replica.version, replica.holder.number) == ("v2", "v2", 2)
    for each in following:
        each.cancel()
    begun = asyncio.get_running_loop().time()
    assert (await one.activate("v3")).late == ([1], ["b:8000"])
    assert asyncio.get_running_loop().time() - begun == pytest.approx(2, abs=0.1)
    await asyncio.sleep(SILENT_SECONDS)
    begun = asyncio.get_running_loop().time()
    assert (await one.activate("v1")).late == ([1], ["b:8000"])
    assert asyncio.get_running_loop().time() == pytest.approx(begun), "silent ones are not waited for"


async def test_a_stopped_worker_opens_only_the_last_of_several_versions(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await members.join(activation_seconds=1)
    other = await members.join("a:8000/1")
    opened: list[str] = []
    begin = other.holder._open

    def noting(activation: Activation) -> LoadedModel:
        opened.append(activation.version)
        return begin(activation)

    monkeypatch.setattr(other.holder, "_open", noting)
    assert other.follower._ticking is not None
    other.follower._ticking.cancel()  # as a process that is stopped, it doesn't notice that time passes
    for version in ("v2", "v1", "v3"):
        await one.activate(version)
    assert other.follower.was_stopped
    await other.follower.refresh()
    assert not other.follower.was_stopped
    assert (other.version, opened) == ("v3", ["v3"])


async def test_an_answer_is_never_older_than_was_asked_for(members: Members) -> None:
    """It waits for the worker to follow, a while; order is that of activations."""
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
    await one.activator.roll_back()
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
        assert (await one.activate(version)).late == ([], ["b:8000"])
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
    for change in (member.activate("v2"), member.activator.route(canary_of("v2"))):
        with pytest.raises(ReplicasUnavailableError, match="the change is not confirmed"):
            await change
    assert state(member) == UNCHANGED
    assert (routes_of(members.root), member.holder.traffic.routes) == (Routes(), Routes())


async def test_a_member_that_began_without_the_store_promises_no_version_and_corrects_itself(
    members: Members,
) -> None:
    """It serves the pointer, which may have been moved."""
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
    assert await member.activator.route(lambda _: routes) == ([], [])
    traffic = member.holder.traffic
    assert traffic.canary is not None
    assert traffic.shadow is not None
    assert (traffic.canary.version, traffic.shadow.version) == ("v2", "v3")
    members.write()
    assert (await members.join()).holder.traffic.routes == traffic.routes == routes_of(members.root)
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
        with pytest.raises(RefusedError):
            await (await members.join()).activator.route(canary_of("v2"))
        assert routes_of(members.root) == Routes()
    else:
        members.route(CANARY)
        if how == "deleted":
            (members.root / "v2" / "manifest.json").unlink()
        else:
            (members.root / RECORD).write_text("{")
    members.write()
    member = await members.join()
    assert member.holder.choose("anyone").version == "v1"
    if how == "nonsense":
        await member.activator.route(canary_of("v2"))  # as its sentence says
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
    assert await one.activator.compare("v2") == ([], [])
    for each in (one, other):
        assert each.holder.traffic.candidate is not None
        assert each.holder.traffic.candidate.version == "v2"
    assert await one.activator.compare(None) == ([], [])
    assert other.holder.traffic.candidate is None
    await one.activator.compare("v3")
    monkeypatch.setattr("turret.service.versions.holder.is_over", lambda _: True)
    await asyncio.sleep(1)
    assert one.holder.traffic.candidate is other.holder.traffic.candidate is None
    for task in following:
        task.cancel()


# --- The shadow


def shadow_figures(metrics: Metrics) -> dict[str, float]:
    outcomes = ("answered", "failed", "dropped")
    return {
        name: metrics.registry.get_sample_value("turret_shadow_answers_total", {"outcome": name}) or 0.0
        for name in outcomes
    }


async def test_the_shadow_answers_with_its_own_version_and_is_compared(members: Members) -> None:
    """Requests beyond the limit are dropped, and a failing one ends nothing: two of four wait, one fails."""
    members.route(Routes(shadow=Route(version="v2", share=1.0)))
    metrics, asked = Metrics(), list[str]()

    def answer(live: LoadedModel) -> list[int | str]:
        asked.append(live.version)
        if len(asked) == 1:
            raise RuntimeError("the shadow fails")
        return [3, 4, 9, 9]

    shadow = Shadow((await members.join()).holder, metrics, limit=2)
    assert shadow.wants()
    for _ in range(4):
        shadow.offer([1, 2, 3, 4], answer)
    assert asked == [], "nobody waits for it"
    await eventually(lambda: shadow_figures(metrics)["answered"], "an answer of the shadow")
    await shadow.close()
    assert asked == ["v2", "v2"]
    assert shadow_figures(metrics) == {"answered": 1, "failed": 1, "dropped": 2}
    assert metrics.registry.get_sample_value("turret_shadow_overlap_sum") == 0.5
