"""deploy/roll: one replica after the other gets the new image."""

import fcntl

from tests.deploy.conftest import DEPLOY, Engine


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


def test_a_roll_to_the_running_image_changes_nothing(engine: Engine) -> None:
    assert engine.run("roll", "old").returncode == 0
    assert engine.log == []


def test_the_trainer_follows_where_there_is_an_image_of_it(engine: Engine) -> None:
    """The other lines of .env stay as they are, also the last one without a line break."""
    (engine.state / "images" / "new-train").write_text("new-train")
    engine.env_file.write_text("TURRET_TAG=old\nTURRET_WORKERS=2")
    done = engine.run("roll", "new")
    assert "the next training runs turret:new-train" in done.stdout
    assert engine.env_file.read_text() == "TURRET_WORKERS=2\nTURRET_TAG=new\nTURRET_TRAIN_TAG=new-train\n"


def test_a_roll_to_an_unknown_tag_is_a_sentence(engine: Engine) -> None:
    done = engine.run("roll", "missing")
    assert done.returncode == 1
    assert done.stderr == (
        "deploy/roll: there is no image turret:missing on this machine. There are: broken new old. Build it "
        "(make images TAG=missing) or pull it\n"
    )
    assert engine.log == []


def test_a_roll_stops_at_a_replica_that_never_gets_ready(engine: Engine) -> None:
    """It is removed, the old ones still answer, and the way back is named."""
    done = engine.run("roll", "broken")
    assert done.returncode == 1
    assert "setting port can't be 'nowhere'" in done.stderr + done.stdout
    assert "wasn't ready within 2 seconds and was removed" in done.stderr
    assert "2 replicas still answer. The way back: deploy/roll old" in done.stderr
    assert engine.replicas == ["old", "old"]
    assert not engine.env_file.exists()


def test_a_roll_says_why_no_replica_can_be_started(engine: Engine) -> None:
    (engine.state / "crowded").touch()
    done = engine.run("roll", "new")
    assert done.returncode == 1
    assert done.stderr == (
        "no memory for another container\n"
        "deploy/roll: a replica of turret:new can't be started, see above. 2 replicas still answer. The way "
        "back: deploy/roll old\n"
    )
    assert engine.replicas == ["old", "old"]


def test_two_rolls_at_once_are_refused(engine: Engine) -> None:
    with (DEPLOY / "roll").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = engine.run("roll", "new")
    assert done.stderr == "deploy/roll: another deploy/roll runs; wait until it has ended\n"
    assert engine.log == []
