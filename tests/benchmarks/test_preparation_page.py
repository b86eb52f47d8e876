from benchmarks.preparation_page import preparation_section

RESULTS = {
    "sizes": ["1e6", "3e8"],
    "rows": [{"events": 10**6}, {"events": 3 * 10**8}],
    "machine": {"cores": 3, "date": "2026-11-21T10:00:00"},
    **{f"nanoseconds_per_event_{label}": 400.4 for label in ("1e6", "3e8")},
    **{f"bare_nanoseconds_per_event_{label}": 500 for label in ("1e6", "3e8")},
    **{f"peak_gb_{label}": 0.123 for label in ("1e6", "3e8")},
    **{f"bare_peak_gb_{label}": 5 for label in ("1e6", "3e8")},
    **{f"over_bare_{label}": 0.801 for label in ("1e6", "3e8")},
}


def test_every_size_is_a_line_with_both_sides() -> None:
    lines = preparation_section(RESULTS).splitlines()
    assert "| 1,000,000 | 0.4 | 400 | 0.12 | 0.5 | 5.00 | 0.80 |" in lines
    assert "| 300,000,000 | 120.1 | 400 | 0.12 | 150.0 | 5.00 | 0.80 |" in lines
    assert "3 cores (2026-11-21;" in lines[-1]
