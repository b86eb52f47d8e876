"""The section of docs/spark.md states the measured times, and from which log on a cluster is faster."""

from benchmarks.spark_page import spark_section
from benchmarks.spark_preparation import POLARS, SPARK


def test_the_section_names_the_break_even() -> None:
    results = {
        "machine": {"cores": 2, "date": "2026-01-02T03:04:05+00:00"},
        "cores_to_match": 20.0,
        "start_seconds": {POLARS: 1.0, SPARK: 21.0},
        "microseconds_an_event": {POLARS: 1.0, SPARK: 10.0},
        "logs": [{"events": 10**6, "seconds": {POLARS: [2.0], SPARK: [30.0]}}],
    }
    section = spark_section(results)
    assert "| 1,000,000 | 2.0 s | 30.0 s | 15 |" in section
    # Twice the matching cores save half a microsecond an event, and have 20 s to make up for.
    assert "a cluster of 20 cores is as fast an event" in section
    assert "one of 40 is faster from 40 million events on, one of 80 is faster from 27 million" in section
