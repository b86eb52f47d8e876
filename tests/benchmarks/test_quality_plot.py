import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality_plot import path_of, plot
from benchmarks.quality_sets import SETS
from benchmarks.timed_sets import TIMED


def write(folder: Path, **row: Any) -> None:
    (folder / "a_set").mkdir(exist_ok=True)
    (folder / "a_set" / f"{row['experiment']}_{row['seed']}.json").write_text(json.dumps(row))


def learnt(folder: Path, experiment: str, seed: int, metric: str = "ndcg@10") -> None:
    curve = [[1, 60.0, 0.1 + seed / 100], [2, 120.0, 0.2]]
    write(
        folder, experiment=experiment, seed=seed, curve=curve, configuration={"training": {"metric": metric}}
    )


def test_every_experiment_is_a_curve_of_its_own(tmp_path: Path) -> None:
    """Named once, however many seeds it has; a seed's curve is another line."""
    learnt(tmp_path, "first", 0)
    assert plot("a_set", tmp_path)
    alone = path_of("a_set", tmp_path).read_text()
    learnt(tmp_path, "first", 1)
    learnt(tmp_path, "second", 0)
    assert plot("a_set", tmp_path)
    drawn = path_of("a_set", tmp_path).read_text()
    assert (drawn.count(">first<"), drawn.count(">second<")) == (1, 1)
    assert "NDCG@10 on validation" in drawn
    assert "second" not in alone


def test_experiments_that_were_selected_on_different_metrics_say_so(tmp_path: Path) -> None:
    learnt(tmp_path, "first", 0, "hr@10")
    learnt(tmp_path, "second", 0, "ndcg@10")
    plot("a_set", tmp_path)
    assert ">first, hr@10<" in path_of("a_set", tmp_path).read_text()


def test_the_same_figures_give_the_same_file(tmp_path: Path) -> None:
    learnt(tmp_path, "first", 0)
    plot("a_set", tmp_path)
    once = path_of("a_set", tmp_path).read_bytes()
    plot("a_set", tmp_path)
    assert path_of("a_set", tmp_path).read_bytes() == once


def test_a_test_by_time_is_drawn_period_by_period_beside_the_baselines(tmp_path: Path) -> None:
    hours = [
        {"begins": f"2024-05-01T0{hour}:00:00", "questions": 5, "recall@20": {"Turret": 0.5, "popular": 0.4}}
        for hour in range(3)
    ]
    for seed in (0, 1):
        write(tmp_path, experiment="first", seed=seed, periods=hours)
    assert plot("a_set", tmp_path)
    drawn = path_of("a_set", tmp_path).read_text()
    assert (drawn.count(">Turret, first<"), drawn.count(">popular<")) == (1, 1)
    assert "RECALL@20" in drawn


def test_nothing_is_drawn_of_a_set_without_results(tmp_path: Path) -> None:
    assert not plot("a_set", tmp_path)
    assert not path_of("a_set", tmp_path).exists()


@pytest.mark.parametrize("name", [*SETS, *TIMED])
def test_the_plots_of_the_page_are_those_of_the_kept_seeds(name: str, tmp_path: Path) -> None:
    """`python -m benchmarks.readme` draws them anew."""
    shown = path_of(name)
    (tmp_path / name).mkdir()
    for file in (shown.parent / name).glob("*.json"):
        (tmp_path / name / file.name).write_bytes(file.read_bytes())
    assert plot(name, tmp_path) == shown.is_file()
    if shown.is_file():
        assert path_of(name, tmp_path).read_text() == shown.read_text()
