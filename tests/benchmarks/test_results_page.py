import json
from pathlib import Path

import pytest

from benchmarks.quality_sets import SETS
from benchmarks.results_page import CONTESTS, results_section

RATE = {"Turret": {"median": 1234.0}, "peer": {"median": 100.0}}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("benchmarks.results_page.RESULTS", tmp_path)
    return tmp_path


def test_nothing_is_shown_that_was_not_measured(results: Path) -> None:
    assert results_section() == ""


def test_a_set_stands_beside_what_others_published(results: Path) -> None:
    """With the protocol, every metric, and a gap where somebody has not published it."""
    chosen = SETS["gowalla"]
    figures = {
        "experiment": "ids",
        "seeds": [0, 1, 2],
        "seconds": 120.0,
        "machine": {"cores": 2, "date": "2026-11-21T00:00:00"},
        **dict.fromkeys(chosen.metrics, 0.1234),
        **{f"{name}_deviation": 0.0056 for name in chosen.metrics},
    }
    (results / "quality_gowalla.json").write_text(json.dumps(figures))
    shown = results_section()
    assert chosen.protocol in shown
    assert (
        "| Turret, experiment `ids` | 0.1234 ± 0.0056 | 0.1234 ± 0.0056 | 0.1234 ± 0.0056 | 3 seeds |"
        in shown
    )
    assert "| LightGCN | 0.1830 | 0.1554 |  | He et al. 2020 |" in shown


def test_speeds_stand_beside_peers(results: Path) -> None:
    """Also where one of them could not take part."""
    contests = {key: {"examples_per_second": RATE, "against": "peer"} for key in CONTESTS}
    figures = {
        "contests": contests,
        **dict.fromkeys(CONTESTS, 12.34),
        "over_bare_loop": 0.95,
        "step_1e6_over_1e4": 1.07,
        "evaluation_over_bare": 0.72,
        "evaluation_users": 29858,
        "evaluation_peak_memory_mb": 712.3,
        "cuda": {
            "name": "A device",
            "towers": {"a tower": {"examples_per_second": 5e6, "share_of_peak": 0.1}},
        },
        "machine": {"cores": 2, "date": "2026-11-21T00:00:00"},
    }
    figures["pooled_over_best_peer"] = None
    (results / "training_speed.json").write_text(json.dumps(figures))
    shown = results_section()
    assert "| pooled tower, 20 candidates | Turret | 1,234 |" in shown
    assert "- transformer, full softmax: 12.3 times peer" in shown
    assert "- pooled tower" not in shown
    assert "in a process of 712 MB at the peak" in shown.replace("\n", " ")
    assert "- A device, a tower: 5,000,000 examples/s, 10.0% of its bfloat16 peak" in shown


def test_the_time_to_quality_stands_with_the_way_to_an_answer(results: Path) -> None:
    """Of the peer the training alone; who did not get there has no seconds."""
    sides = {
        "Turret": {"seconds": 600.4, "hr@10": 0.301, "to_service_seconds": 612.0},
        "peer": {"seconds": None, "hr@10": 0.28},
        "absent": {"seconds": None, "hr@10": None},
    }
    machine = {"cores": 2, "date": "2026-11-21T00:00:00"}
    figures = {"target_hr@10": 0.3, "limit_seconds": 900.0, "sides": sides, "machine": machine}
    (results / "time_to_quality.json").write_text(json.dumps(figures))
    shown = results_section()
    assert "| Turret | 600 s | 0.3010 | 612 s |" in shown
    assert "| peer | not within 900 s | 0.2800 |  |" in shown
    assert "absent" not in shown


def test_an_experiment_stands_as_soon_as_one_seed_of_it_is_there(results: Path) -> None:
    """Before the mean of the recommended one is, and beside it."""
    chosen = SETS["gowalla"]
    (results / "quality" / "gowalla").mkdir(parents=True)
    row = {"experiment": "ids", "seed": 0, **dict.fromkeys(chosen.metrics, 0.1)}
    for seed, value in ((0, 0.1), (1, 0.2)):
        row |= {"seed": seed, **dict.fromkeys(chosen.metrics, value)}
        (results / "quality" / "gowalla" / f"ids_{seed}.json").write_text(json.dumps(row))
    shown = results_section()
    assert f"| Turret, experiment `ids` | {' | '.join(['0.1500 ± 0.0500'] * 3)} | 2 seeds |" in shown
    assert "| LightGCN |" in shown
    assert ".svg" not in shown
    (results / "quality" / "gowalla.svg").write_text("<svg/>")
    assert "(../benchmarks/results/quality/gowalla.svg)" in results_section()


def test_cold_items_stand_with_their_spread(results: Path) -> None:
    values = {
        "recall@20": {"mean": 0.05, "deviation": 0.001},
        "recall@100": {"mean": 0.14, "deviation": 0.002},
    }
    figures = {"seeds": [0, 1, 2], "sets": {"ml-1m": {"features": values}}}
    (results / "cold_items.json").write_text(json.dumps(figures))
    assert "| ml-1m | features | 0.0500 ± 0.0010 | 0.1400 ± 0.0020 |" in results_section()
