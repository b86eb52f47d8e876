"""deploy/backup and deploy/restore, in both profiles."""

import hashlib
import os
from pathlib import Path

import pytest

from tests.deploy.conftest import Engine

PARTS = {"production": ["redis.rdb", "state.tar", "bundles.tar"], "plain": ["state.tar", "bundles.tar"]}


@pytest.fixture(params=PARTS)
def profile(engine: Engine, request: pytest.FixtureRequest) -> str:
    """The selected profile; without the production profile histories are in SQLite."""
    name: str = request.param
    select(engine, name)
    return name


def select(engine: Engine, profile: str) -> None:
    (engine.state / "plain").unlink(missing_ok=True)
    if profile == "plain":
        (engine.state / "plain").touch()


def test_a_backup_is_a_folder_with_checksums_for_its_owner_alone(
    engine: Engine, profile: str, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    done = engine.run("backup", str(folder))
    assert done.returncode == 0, done.stderr
    assert folder.stat().st_mode & 0o777 == 0o700
    sums = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in PARTS[profile]}
    assert {path.name for path in folder.iterdir()} == {*PARTS[profile], "SHA256SUMS"}
    assert "is not an empty folder" in engine.run("backup", str(folder)).stderr


def test_the_mark_of_a_snapshot_sent_without_a_file_is_no_part_of_it(engine: Engine, tmp_path: Path) -> None:
    (engine.state / "diskless").touch()
    done = engine.run("backup", str(tmp_path / "copy"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy" / "redis.rdb").read_bytes() == b"REDIS0011data\xff12345678"


@pytest.mark.fault(74)
def test_a_backup_without_room_is_no_backup(engine: Engine, profile: str, tmp_path: Path) -> None:
    """The engine may swallow the error of a full disk: the files lack a part of the output."""
    (engine.state / "torn").touch()
    done = engine.run("backup", str(tmp_path / "copy"))
    assert done.returncode == 1
    part = "the snapshot of the Redis" if profile == "production" else "state.tar"
    assert done.stderr == f"deploy/backup: {part} is incomplete; look whether {tmp_path}/copy.part has room\n"
    assert [path for path in tmp_path.iterdir() if path.name.startswith("copy")] == []


def test_a_backup_that_was_interrupted_is_not_overwritten(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "copy.part").mkdir()
    done = engine.run("backup", str(tmp_path / "copy"))
    assert done.returncode == 1
    assert "copy.part is left from a backup that was interrupted, or still runs" in done.stderr
    assert (tmp_path / "copy.part").is_dir()


def test_a_folder_without_a_compose_file_of_turret_is_a_sentence(engine: Engine, tmp_path: Path) -> None:
    docker = Path(engine.variables["PATH"].split(os.pathsep)[0]) / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    done = engine.run("backup", str(tmp_path / "copy"))
    assert done.returncode == 1
    assert done.stderr.startswith("deploy/backup: docker compose finds no Compose file of Turret; ")


def damage(folder: Path, how: str) -> None:
    if how == "changed":
        (folder / "bundles.tar").write_text("tas")
    elif how == "lost":
        (folder / "state.tar").unlink()
    elif how == "unlisted":
        lines = (folder / "SHA256SUMS").read_text().splitlines()
        (folder / "SHA256SUMS").write_text("\n".join(lines[:-1]) + "\n")
    else:
        (folder / "SHA256SUMS").unlink()


@pytest.mark.fault(74)
@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("changed", "is damaged: bundles.tar differs from its checksum. Nothing was changed"),
        ("lost", "lacks state.tar. Nothing was changed"),
        ("unlisted", "doesn't name bundles.tar. Nothing was changed"),
        ("incomplete", "is not a complete backup: it has no SHA256SUMS. Nothing was changed"),
    ],
)
def test_a_damaged_backup_is_refused_before_anything_is_touched(
    engine: Engine, profile: str, tmp_path: Path, how: str, fault: str
) -> None:
    folder = tmp_path / "copy"
    engine.run("backup", str(folder))
    damage(folder, how)
    done = engine.run("restore", "--replace", str(folder))
    assert done.returncode == 1
    assert fault in done.stderr
    assert engine.log == []


@pytest.mark.parametrize(
    ("made", "restored", "fault"),
    [
        ("production", "plain", "is a backup of the production profile; run deploy/setup first."),
        ("plain", "production", "has no snapshot of a Redis: it is a backup without the production profile"),
    ],
)
def test_a_backup_of_the_other_profile_is_refused(
    engine: Engine, tmp_path: Path, made: str, restored: str, fault: str
) -> None:
    folder = tmp_path / "copy"
    select(engine, made)
    engine.run("backup", str(folder))
    select(engine, restored)
    done = engine.run("restore", "--replace", str(folder))
    assert done.returncode == 1
    assert fault in done.stderr
    assert engine.log == []


def test_a_restore_into_volumes_that_hold_something_needs_a_word(
    engine: Engine, profile: str, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    engine.run("backup", str(folder))
    (engine.state / "full").touch()
    done = engine.run("restore", str(folder))
    assert done.returncode == 1
    assert done.stderr == (
        "deploy/restore: the volumes var and bundles are not empty. Nothing was changed; deploy/restore "
        "--replace deletes the content\n"
    )
    assert engine.log == []
    assert engine.run("restore", "--replace", str(folder)).returncode == 0
    redis = profile == "production"
    assert [line.split()[-1] for line in engine.log] == [
        "redis" if redis else "service",  # the last one that is stopped
        *(["clear"] * (1 + redis)),
        *(["unpack"] * 2),
        *(["load"] * redis),
        "-d",
    ]


def test_volumes_that_can_not_be_looked_at_are_not_called_full(engine: Engine, tmp_path: Path) -> None:
    """As on a new machine without images."""
    folder = tmp_path / "copy"
    engine.run("backup", str(folder))
    (engine.state / "imageless").touch()
    done = engine.run("restore", str(folder))
    assert done.returncode == 1
    assert "it can't be seen whether the volumes var and bundles are empty, see above." in done.stderr
    assert engine.log == []


def test_a_restore_stops_the_retraining_and_says_so(engine: Engine, tmp_path: Path) -> None:
    """It would publish into volumes that are being written."""
    folder = tmp_path / "copy"
    engine.run("backup", str(folder))
    assert "retraining" not in engine.run("restore", str(folder)).stdout
    (engine.state / "nightly").touch()
    done = engine.run("restore", str(folder))
    assert "docker compose --profile nightly up -d starts it" in done.stdout
    assert "compose stop nightly" in engine.log
