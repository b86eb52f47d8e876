from pathlib import Path

from benchmarks.scale_plot import plot
from turret.planning.figures import Figures, Quantity


def test_every_panel_has_its_points_and_the_same_figures_give_the_same_file(tmp_path: Path) -> None:
    memory = Quantity(1e8, {"numbers": 8.0}, {"items": 1e6, "dimension": 128.0}, "invented")
    names = ("training.youtubednn.memory", "index.memory", "service.memory")
    figures = Figures(dict.fromkeys(names, memory), {}, (), {})
    shapes = [{"items": 1e5, "dimension": dimension, "history": 50} for dimension in (64, 128)]
    training = {"points": {"youtubednn": {"runs": [{**shape, "peak_mb": 500.0} for shape in shapes]}}}
    memories = {"index": {"peak_mb": 300.0}, "service": {"sqlite": {"resident_mb": 200.0}}}
    service = {"points": [{**shape, **memories} for shape in shapes]}
    plot(figures, training, service, tmp_path / "one.svg")
    plot(figures, training, service, tmp_path / "two.svg")
    drawn = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert all(words in drawn for words in ("training (youtubednn)", "service, one worker", "dimension 128"))
    assert drawn == (tmp_path / "two.svg").read_text(encoding="utf-8")
