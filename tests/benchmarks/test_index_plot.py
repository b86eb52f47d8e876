from pathlib import Path

from benchmarks.index_plot import plot


def test_every_side_is_a_point_with_its_name_and_the_same_figures_give_the_same_file(tmp_path: Path) -> None:
    call = {"side": "ivf_pq", "queries_per_second": 90_000.0, "recall": 0.991, "is_peer": False}
    calls = [call, {**call, "side": "hnswlib M=16", "queries_per_second": 80_000.0, "is_peer": True}]
    figures = {"target": 0.99, "sets": {"ml-1m": {"items": 3416, "at_10": {"sides": calls}}}}
    plot(figures, tmp_path / "one.svg")
    plot(figures, tmp_path / "two.svg")
    drawn = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert all(words in drawn for words in ("ivf_pq", "hnswlib M=16", "ML-1M", "3,416 items"))
    assert drawn == (tmp_path / "two.svg").read_text(encoding="utf-8")
