import pytest

from benchmarks.warm_start import totals
from benchmarks.warm_start_page import warm_start_section


def test_the_day_is_the_mean_over_its_questions() -> None:
    """Not over its hours, of which some are asleep."""
    hours = [
        {"hour": "a", "questions": 30, "unknown_targets": 1, "hourly_recall@20": 0.5, "hourly_ndcg@20": 0.2},
        {"hour": "b", "questions": 10, "unknown_targets": 2, "hourly_recall@20": 0.1, "hourly_ndcg@20": 0.2},
    ]
    day = totals(hours)
    assert (day["questions"], day["unknown_targets"]) == (40, 3)
    assert day["hourly_recall@20"] == pytest.approx((0.5 * 30 + 0.1 * 10) / 40)
    assert day["hourly_ndcg@20"] == pytest.approx(0.2)


def test_the_page_shows_every_model_once_in_each_of_its_tables() -> None:
    values = {
        f"{name}_{metric}": 0.1 + 0.01 * place
        for place, name in enumerate(
            ("hourly", "stale", "popular_last_hour", "most_recent", "retrained", "window")
        )
        for metric in ("recall@20", "ndcg@20")
    }
    figures = {
        **values,
        "questions": 12345,
        "unknown_targets": 67,
        "update_seconds": 3.4,
        "update": ["training.epochs=5"],
        "window_hours": 24,
        "middle": {**values, "retrained_seconds": 80.2, "window_seconds": 21.4},
        "machine": {"cores": 2, "date": "2026-01-02T03:04:05"},
    }
    text = warm_start_section(figures)
    assert "12,345 questions. 67 of" in text
    assert "| trained once, on all days before | 0.1100 | 0.1100 |" in text
    assert "| the warm start | 0.1000 | 0.1000 | 3 |" in text
    assert "| from scratch, on all days until then | 0.1400 | 0.1400 | 80 |" in text
    assert all(line.count("|") in (0, 4, 5) for line in text.splitlines())
