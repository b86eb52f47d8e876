"""deploy/roll: one replica after the other gets the new image."""

import fcntl

import pytest

from tests.deploy.conftest import DEPLOY, Engine


@pytest.mark.process
def test_a_roll_replaces_one_replica_after_the_other(engine: Engine) -> None:
    """Each new one is there before an old one stops."""
    done = engine.run("roll", "new")
    assert done.returncode == 0, done.stderr
    assert engine.replicas == ["new", "new"]
    assert engine.log == ["up new", "stop old of 3"] * 2
    assert done.stdout.endswith("all 2 replicas run turret:new; the way back: deploy/roll old\n")
    assert engine.env_file.read_text() == "TURRET_TAG=new\n"
    assert engine.run("roll", "old").returncode == 0
    assert engine.replicas == ["old", "old"]
    assert engine.env_file.read_text() == "TURRET_TAG=old\n"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("tag", "reasons"),
    [
        ("missing", ["there is no image turret:missing on this machine. There are: broken new old"]),
        ("broken", ["setting port can't be 'nowhere'", "wasn't ready within 60 seconds and was removed"]),
        ("crowded", ["no memory for another container", "a replica of turret:crowded can't be started"]),
        ("locked", ["another deploy/roll runs; wait until it has ended"]),
    ],
)
def test_a_roll_that_fails_says_why_and_leaves_the_old_replicas(
    engine: Engine, tag: str, reasons: list[str]
) -> None:
    if tag == "crowded":
        (engine.state / "images" / tag).write_text(tag)
        (engine.state / tag).touch()
    with (DEPLOY / "roll").open("rb") as other:
        if tag == "locked":
            fcntl.flock(other, fcntl.LOCK_EX)
        done = engine.run("roll", tag)
    assert done.returncode == 1
    for reason in reasons:
        assert reason in done.stderr + done.stdout
    if tag in ("broken", "crowded"):
        assert "2 replicas still answer. The way back: deploy/roll old" in done.stderr
    assert engine.replicas == ["old", "old"]
    assert not engine.env_file.exists()
