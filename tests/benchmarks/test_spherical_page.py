from benchmarks.spherical_page import updates


def test_every_size_is_a_line() -> None:
    """With both times, their ratio, and the machine of the measurement."""
    results = {
        "batch": 256,
        "dimension": 64,
        "threads": 2,
        "machine": {"date": "2026-11-20T00:00:00"},
        "rows": [{"items": 10_000, "dense_ms": 1234.4, "factored_ms": 2.04, "ratio": 605.1}],
    }
    text = updates(results)
    assert "| 10,000 | 1,234 | 2.0 | 605 |" in text.splitlines()
    assert "256 examples, vectors 64 wide, medians on 2 threads (2026-11-20" in text
