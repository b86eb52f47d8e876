"""deploy/roll: one replica after the other gets the new image."""

import pytest

from tests.deploy.conftest import Engine


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
