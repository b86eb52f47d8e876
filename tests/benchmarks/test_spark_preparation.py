"""The line through the measured times, and the sizes that it gives."""

import pytest

from benchmarks.protocol import machine
from benchmarks.spark_preparation import POLARS, SPARK, figures


def test_cores_follow_from_the_times_of_an_event() -> None:
    """Polars takes 1 s and a microsecond an event, Spark 20 s and ten."""
    logs = [
        {"events": events, "seconds": {POLARS: [1 + events / 1e6] * 3, SPARK: [20 + events / 1e5] * 3}}
        for events in (10**6, 3 * 10**6, 10**7)
    ]
    found = figures(logs)
    assert found["start_seconds"] == pytest.approx({POLARS: 1, SPARK: 20})
    assert found["microseconds_an_event"] == pytest.approx({POLARS: 1, SPARK: 10})
    assert found["cores_to_match"] == pytest.approx(10 * machine()["cores"])
    assert found["spark_over_polars"] == pytest.approx(120 / 11)
