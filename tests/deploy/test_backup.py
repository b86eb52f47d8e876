"""deploy/backup and deploy/restore, in both profiles."""

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
