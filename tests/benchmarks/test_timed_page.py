from benchmarks.timed_page import timed_section
from benchmarks.timed_sets import METRICS, TIMED


def test_every_baseline_stands_with_the_interval_of_its_difference() -> None:
    one = {"mean": 0.5, "difference": 0.0123, "low": 0.01, "high": 0.0146}
    figures = {
        "experiment": "youtubednn",
        "questions": 12345,
        "unknown_targets": 67,
        "seconds": 300.0,
        "seeds": [0, 1, 2],
        "above": True,
        "machine": {"cores": 2, "date": "2026-01-02T03:04:05"},
        "recipe": {
            "base": ["training.epochs=3"],
            "base_hours": 48.0,
            "update": [],
            "update_reads_hours": 24.0,
            "update_predicts_hours": 1.0,
            "periods_between_updates": 1,
            "half_life_hours": 0.5,
        },
        "baselines": {name: dict.fromkeys(METRICS, one) for name in TIMED["globo"].baselines},
        **dict.fromkeys(METRICS, 0.5123),
        **{f"{metric}_deviation": 0.0021 for metric in METRICS},
    }
    text = timed_section(TIMED["globo"], figures)
    assert "| Turret, experiment `youtubednn` | 0.5123 ± 0.0021 | | 0.5123 ± 0.0021 | |" in text
    cells = "0.5000 | 0.0123 [0.0100, 0.0146]"
    assert f"| co-occurrence | {cells} | {cells} |" in text
    assert "above every baseline" in text
    assert "not above" not in text
    assert "on the 48 hours before with `training.epochs=3`" in text
    assert "each update reads 24 hours and predicts the last 1." in text
    assert "half as much as one 0.5 hours younger" in text
    assert "not above every baseline" in timed_section(TIMED["globo"], {**figures, "above": False})
