import sys
from pathlib import Path

import pytest

from benchmarks.peers.contestants import Contestant
from benchmarks.peers.errors import PeerMissingError
from benchmarks.peers.peer import Peer
from benchmarks.training_speed import Contest, hold, show

FAKE = """
def prepare(data, settings):
    rate = settings["rate"]
    return lambda steps: {"examples": rate * steps, "seconds": float(steps)}
"""


class Fake(Contestant):
    """A contestant whose library is four lines."""

    def peer(self, environments: Path, data: Path) -> Peer:
        if not self.settings:
            raise PeerMissingError(f"{self.name} could not be installed.")
        script = environments / "fake.py"
        script.write_text(FAKE)
        return Peer(self.name, script, Path(sys.executable), data, self.settings)


def fake(name: str, **settings: int) -> Fake:
    return Fake(name, "none", "fake", settings, steps=8)


def ours(steps: int) -> tuple[int, float]:
    return 100 * steps, float(steps)


def test_a_contest_compares_with_the_best_peer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contest = Contest("key", ours, 4, (fake("slow", rate=10), fake("fast", rate=20)), tmp_path / "data")
    held = hold(contest, tmp_path, quick=True)
    assert held["ratio"] == pytest.approx(5.0)
    assert held["against"] == "fast"
    assert held["missing"] == []
    assert list(held["examples_per_second"]) == ["Turret", "slow", "fast"]
    show({"contests": {"key": held}, "step_1e6_over_1e4": 1.25, "evaluation_over_bare": 1.125, "cuda": None})
    shown = capsys.readouterr().out
    assert "5.00 times fast" in shown
    assert "takes 1.25 times one" in shown


def test_a_peer_that_is_missing_is_named_and_the_others_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One can't be installed, another one fails as it prepares itself."""
    peers = (fake("absent"), fake("broken", wrong=1), fake("there", rate=50))
    held = hold(Contest("key", ours, 4, peers, tmp_path / "data"), tmp_path, quick=True)
    assert held["ratio"] == pytest.approx(2.0)
    assert held["missing"] == [
        "absent could not be installed.",
        "broken: its process ended: KeyError: 'rate'",
    ]
    assert "absent could not be installed." in capsys.readouterr().out


def test_without_peers_our_own_speed_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = hold(Contest("key", ours, 4, (fake("absent"),), tmp_path / "data"), tmp_path, quick=True)
    assert held["ratio"] is None
    assert held["examples_per_second"]["Turret"]["median"] == pytest.approx(100.0)
    show({"contests": {"key": held}, "step_1e6_over_1e4": 1.25, "evaluation_over_bare": 1.125, "cuda": None})
    assert "by round" not in capsys.readouterr().out


def test_our_side_is_compared_with_the_bare_loop_too(tmp_path: Path) -> None:
    contest = Contest("key", ours, 4, (), tmp_path / "data", bare=lambda steps: (125 * steps, float(steps)))
    over_bare = hold(contest, tmp_path, quick=True)["over_bare"]
    assert over_bare["ratio"] == pytest.approx(0.8)
    assert over_bare["against"] == "bare loop"
