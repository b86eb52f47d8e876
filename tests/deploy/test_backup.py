"""deploy/backup and deploy/restore, in both profiles."""

import hashlib
from pathlib import Path

import pytest

from tests.deploy.conftest import Engine

PARTS = {"production": ["redis.rdb", "state.tar", "bundles.tar"], "plain": ["state.tar", "bundles.tar"]}


@pytest.fixture(params=PARTS)
def profile(engine: Engine, request: pytest.FixtureRequest) -> str:
    """The selected profile; without the production profile histories are in SQLite."""
    name: str = request.param
    engine.select(name)
    return name


@pytest.fixture
def copy(engine: Engine, profile: str, tmp_path: Path) -> Path:
    """A backup."""
    folder = tmp_path / "copy"
    done = engine.run("backup", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def refused(engine: Engine, folder: Path, *options: str) -> str:
    """Restore, and give the reason of the refusal, after which nothing has changed."""
    done = engine.run("restore", *options, str(folder))
    assert done.returncode == 1
    assert engine.log == []
    return done.stderr


@pytest.mark.fault(74)
@pytest.mark.process
def test_a_damaged_backup_is_refused_before_anything_is_touched(engine: Engine, copy: Path) -> None:
    whole = (copy / "bundles.tar").read_bytes()
    (copy / "bundles.tar").write_text("tas")
    assert "is damaged: bundles.tar differs from its checksum" in refused(engine, copy, "--replace")
    (copy / "bundles.tar").unlink()
    assert "lacks bundles.tar" in refused(engine, copy, "--replace")
    (copy / "bundles.tar").write_bytes(whole)
    *lines, _ = (copy / "SHA256SUMS").read_text().splitlines()
    (copy / "SHA256SUMS").write_text("\n".join([*lines, ""]))
    assert "doesn't name bundles.tar" in refused(engine, copy, "--replace")
    (copy / "SHA256SUMS").unlink()
    assert "is not a complete backup: it has no SHA256SUMS" in refused(engine, copy, "--replace")


@pytest.mark.process
def test_a_restore_into_volumes_that_hold_something_needs_a_word(
    engine: Engine, profile: str, copy: Path
) -> None:
    (engine.state / "full").touch()
    assert "the volumes var and bundles are not empty. Nothing was changed" in refused(engine, copy)
    assert engine.run("restore", "--replace", str(copy)).returncode == 0
    redis = profile == "production"
    assert [line.split()[-1] for line in engine.log] == [
        "redis" if redis else "service",  # the last one that is stopped
        *(["clear"] * (1 + redis)),
        *(["unpack"] * 2),
        *(["load"] * redis),
        "-d",
    ]


@pytest.mark.nightly
def test_a_backup_is_a_folder_with_checksums_for_its_owner_alone(
    engine: Engine, profile: str, copy: Path
) -> None:
    assert copy.stat().st_mode & 0o777 == 0o700
    sums = dict(line.split("  ")[::-1] for line in (copy / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((copy / name).read_bytes()).hexdigest() for name in PARTS[profile]}
    assert {path.name for path in copy.iterdir()} == {*PARTS[profile], "SHA256SUMS"}
    assert "is not an empty folder" in engine.run("backup", str(copy)).stderr
    engine.select("plain" if profile == "production" else "production")
    other = {"production": "is a backup of the production profile", "plain": "has no snapshot of a Redis"}
    assert other[profile] in refused(engine, copy, "--replace")


@pytest.mark.nightly
def test_the_mark_of_a_snapshot_sent_without_a_file_is_no_part_of_it(engine: Engine, tmp_path: Path) -> None:
    (engine.state / "diskless").touch()
    assert engine.run("backup", str(tmp_path / "copy")).returncode == 0
    assert (tmp_path / "copy" / "redis.rdb").read_bytes() == b"REDIS0011data\xff12345678"


@pytest.mark.fault(74)
@pytest.mark.nightly
def test_a_backup_without_room_is_no_backup(engine: Engine, profile: str, tmp_path: Path) -> None:
    """The engine may swallow the error of a full disk: the files lack a part of the output."""
    (engine.state / "torn").touch()
    done = engine.run("backup", str(tmp_path / "copy"))
    assert done.returncode == 1
    part = "the snapshot of the Redis" if profile == "production" else "state.tar"
    assert done.stderr == f"deploy/backup: {part} is incomplete; look whether {tmp_path}/copy.part has room\n"
    assert [path for path in tmp_path.iterdir() if path.name.startswith("copy")] == []
