import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import index, index_peers
from benchmarks.index import compared, race, show
from benchmarks.index_peers import GraphPeer, graph_peers
from benchmarks.index_sets import IndexSet, asked
from benchmarks.index_vectors import Vectors
from benchmarks.peers.contestants import SCRIPTS
from benchmarks.peers.environments import REQUIREMENTS
from benchmarks.peers.errors import PeerMissingError
from benchmarks.peers.peer import Peer
from benchmarks.protocol import Options

FAKE = """
def prepare(data, settings):
    def run(steps):
        by_k = {
            str(k): {"ef": 7, "recall": settings["recall"], "single": steps / 100, "batch": steps / 200}
            for k in settings["ks"]
        }
        return {"examples": steps, "seconds": steps / 200, "by_k": by_k, "build_seconds": 3.0}
    return run
"""


class Fake(GraphPeer):
    """A library of ten lines: 100 queries/s by single calls, 200 in a batch."""

    def peer(
        self, environments: Path, one: IndexSet, data: Path, kept: Path, ks: list[int], target: float
    ) -> Peer:
        if "recall" not in self.settings:
            raise PeerMissingError(f"{self.name} could not be installed.")
        assert np.load(data)["truth"].shape == one.truth.shape
        script = data.parent / "fake.py"
        script.write_text(FAKE)
        return Peer(self.name, script, Path(sys.executable), data, {**self.settings, "ks": ks})


def test_our_fastest_is_compared_with_the_fastest_call_of_a_peer_that_reaches_the_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = np.random.default_rng(0)
    items, users = (generator.standard_normal((count, 16)).astype(np.float32) for count in (300, 30))
    one = asked("some", Vectors(items, users), biased=False, questions=20)
    fakes = (Fake("good", "fake", {"recall": 0.995}), Fake("absent", "fake", {}))
    monkeypatch.setattr(index, "EVERYWHERE", fakes)
    monkeypatch.setattr(index, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(index, "KS", [10])
    monkeypatch.setattr(index, "TURN_SECONDS", 0.01)
    given = argparse.Namespace(peers=tmp_path)
    found = race(one, Options(tmp_path, quick=True, as_json=False, given=given), tmp_path)
    assert found["missing"] == ["absent could not be installed."]
    assert found["at_10"]["against"] == "good, batch"
    sides = {(call["side"], call["call"]): call for call in found["at_10"]["sides"]}
    assert sides["good", "single"]["queries_per_second"] == pytest.approx(100)
    assert sides["good", "batch"]["queries_per_second"] == pytest.approx(200)
    assert sides["good", "batch"]["settings"] == {"ef": 7}
    ours = sides[found["at_10"]["ours"], "single"]
    assert found["at_10"]["ratio"] == pytest.approx(ours["queries_per_second"] / 200)
    assert sides["flat", "single"]["recall"] == 1.0
    show("some", found)
    assert "times as many as good, batch" in capsys.readouterr().out


def told(recall: float, **more: Any) -> dict[str, Any]:
    return {"by_k": {"10": {"recall": recall, **more}}, "build_seconds": 1.0}


def test_a_side_that_misses_the_recall_is_shown_and_not_compared_with() -> None:
    rates = {
        "flat": [10.0, 20.0, 30.0],
        "fast": [90.0] * 3,
        "near, single": [80.0] * 3,
        "far, batch": [5.0] * 3,
    }
    sides = {"flat": told(1.0), "fast": told(0.98), "near": told(0.985), "far": told(0.991, ef=4)}
    found = compared(rates, sides, 10)
    assert (found["ours"], found["against"]) == ("flat", "far, batch")
    assert (found["ratio"], found["ratio_least"], found["ratio_greatest"]) == (4.0, 2.0, 6.0)
    assert [call["side"] for call in found["sides"]] == ["flat", "fast", "near", "far"]
    del rates["far, batch"]
    assert compared(rates, sides, 10)["ratio"] is None


@pytest.mark.parametrize(("count", "dtypes"), [(3000, {"f32", "f16", "i8"}), (10**6, {"f16"})])
def test_both_libraries_take_part_with_scripts_and_requirements(count: int, dtypes: set[str]) -> None:
    """usearch with its smaller types of numbers, too; with many items only the one that was fastest."""
    peers = graph_peers(count)
    assert {one.script for one in peers} == {"hnswlib_search", "usearch_search"}
    assert dtypes == {one.settings["dtype"] for one in peers if "dtype" in one.settings}
    assert all((SCRIPTS / f"{one.script}.py").is_file() for one in peers)
    assert len({one.name + str(one.settings) for one in peers}) == len(peers)
    assert (REQUIREMENTS / f"{index_peers.REQUIREMENTS}.txt").is_file()
