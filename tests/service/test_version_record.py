"""The record of the live version: how it is read, kept in the folder, and begun with."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents
from tests.support.members import CANARY, Members, line
from tests.support.service_app import settings_of
from turret.service.errors import ReplicasUnavailableError, ServiceError
from turret.service.http.app import create_app
from turret.service.versions import folder
from turret.service.versions.folder import LOG, RECORD, add_line, keep, kept_record, latest_lines, record_of
from turret.service.versions.record import Record, Route, Routes, read_record
from turret.tower.bundle.publish import publish
from turret.tower.errors import BundleError
from turret.tower.format.listing import current, point

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
        {"routes": 1},
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
    assert [one.number for one in latest_lines(three)] == [2, 1]
    assert (current(three), kept_record(three)) == ("v2", record)
    keep(three, before)  # by a worker that is late
    assert (current(three), kept_record(three)) == ("v2", record)
    point(three, "v1")
    keep(three, record)
    assert current(three) == "v1"


def test_the_log_of_a_replica_has_the_activations_that_it_slept_through(three: Path) -> None:
    """Of each version the last one: the record knows no others."""
    keep(three, record := record_of(three))
    for version in ("v2", "v1", "v3", "v2"):
        record = record.activated(line(version))
    keep(three, record)
    known = [(one.number, one.version) for one in latest_lines(three)]
    assert known == [(5, "v2"), (4, "v3"), (3, "v1"), (1, "v1")]


@pytest.mark.parametrize("number", ["1e300", "1e18999", str(2**64), "-1", "0", "NaN", '"1e300"'])
def test_a_line_of_an_impossible_number_is_passed_over(three: Path, number: str) -> None:
    """JSON of an answer could not have it."""
    add_line(three, line("v1", 1))
    with (three / LOG).open("a") as file:
        file.write(f'{{"time":"now","version":"v2","who":"x","outcome":"activated","number":{number}}}\n')
    add_line(three, line("v3", 2))
    assert [one.number for one in latest_lines(three)] == [2, 1]


@pytest.mark.parametrize("change", [{"number": 1e300}, {"number": 2**53 + 1}, {"live": {"number": 2**60}}])
def test_a_record_of_the_folder_that_counts_too_far_is_none(three: Path, change: dict[str, Any]) -> None:
    """Its next number would be one that no member reads."""
    stored = json.loads(record_of(three).encoded())
    changed = stored | change | {"live": stored["live"] | change.get("live", {})}
    (three / RECORD).write_text(json.dumps(changed))
    with pytest.raises(ServiceError, match=r"record\.json holds no record \(.*; delete it"):
        kept_record(three)


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
    members: Members, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_START_SECONDS", 0.0)
    members.write(b"something else")
    for members.is_down in (False, True):
        record = await members.first()
        assert record is not None
        assert (record.number, record.live.version) == (0, "v1")
    assert not (members.root / LOG).exists()
    assert "delete the key" in caplog.text
    assert "until the replicas' record is read" in caplog.text
    empty = tmp_path / "empty"
    empty.mkdir()
    assert await members.first(root=empty, waits=True) is None
    with pytest.raises(ServiceError, match="holds no current version"):
        await members.first(root=empty)


@pytest.mark.parametrize("how", ["published", "repaired", "activated"])
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
    else:
        await member.activate("v2")
    await member.follow(3)
    expected = "v1" if how in ("published", "repaired") else "v2"
    assert member.version == (await member.holder.first()).version == current(root) == expected
    with pytest.raises(BundleError, match="no other version was live"):
        await member.activator.roll_back(expected)
