"""The figures that are installed are those of the results."""

import json
import shutil
from pathlib import Path

from benchmarks.plan_figures import TARGET, plan_figures
from benchmarks.plan_points import QUANTITIES
from benchmarks.protocol import RESULTS


def test_the_installed_figures_are_those_of_the_last_results() -> None:
    assert TARGET.read_text(encoding="utf-8") == plan_figures(), "run `python -m benchmarks.plan_figures`"


def test_the_figures_change_with_the_results(tmp_path: Path) -> None:
    """A check of the check, and of the engines: they appear with their results."""
    for file in {one.file for one in QUANTITIES.values()}:
        shutil.copy(RESULTS / f"{file}.json", tmp_path)
    before = json.loads(plan_figures(tmp_path))
    assert before["engines"] == {}
    proxy = json.loads((tmp_path / "proxy.json").read_text())
    proxy["through"]["proxy_ms"] = 0.5
    (tmp_path / "proxy.json").write_text(json.dumps(proxy))
    measured = {"speedup_2_over_1": 1.7, "steps": [1, 2], "quick": False, "by_kind": {"a": 1.0}}
    (tmp_path / "distributed.json").write_text(json.dumps(measured))
    after = json.loads(plan_figures(tmp_path))
    assert after["quantities"]["proxy.request_seconds"]["base"] == 5e-4
    assert after["engines"] == {"torchrun": {"speedup_2_over_1": 1.7, "by_kind": {"a": 1.0}}}


def test_every_fit_is_near_its_points() -> None:
    """A model that does not describe the measured points would not describe others."""
    figures = json.loads(TARGET.read_text(encoding="utf-8"))["quantities"]
    assert {name: one["worst_error"] for name, one in figures.items() if one["worst_error"] > 0.35} == {}
