"""The measured part of docs/spark.md."""

import statistics
from pathlib import Path
from typing import Any

from benchmarks.spark_preparation import POLARS, SPARK

PAGE = Path(__file__).parent.parent / "docs" / "spark.md"
CLUSTERS = (2, 4)  # times as many cores as match one machine


def spark_section(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/spark_preparation.json`."""
    machine, start, slope = results["machine"], results["start_seconds"], results["microseconds_an_event"]
    cores = results["cores_to_match"]
    return "\n".join(
        [
            "| events | Polars | Spark, `--engine local` | Spark over Polars |",
            "|---|---|---|---|",
            *map(_row, results["logs"]),
            "",
            f"Medians of {len(results['logs'][0]['seconds'][POLARS])} turns on {machine['cores']} cores; the "
            f"outputs are the same ({machine['date'][:10]}; "
            "`python -m benchmarks.spark_preparation --json`). "
            f"An event takes {slope[POLARS]:.2f} microseconds by Polars and {slope[SPARK]:.1f} by Spark, "
            f"whose start takes {start[SPARK]:.0f} s. So a cluster of {cores:.0f} cores is as fast an event "
            f"as this machine with {machine['cores']}, if nothing is lost between machines, and "
            + ", ".join(_break_even(results, times) for times in CLUSTERS)
            + ".",
            "",
        ]
    )


def _row(log: dict[str, Any]) -> str:
    polars, spark = (statistics.median(log["seconds"][side]) for side in (POLARS, SPARK))
    return f"| {log['events']:,} | {polars:.1f} s | {spark:.1f} s | {spark / polars:.0f} |"


def _break_even(results: dict[str, Any], times: int) -> str:
    """From which log on a cluster of so many times the matching cores is faster."""
    start, slope = results["start_seconds"], results["microseconds_an_event"]
    saved = slope[POLARS] * (1 - 1 / times)
    events = 1e6 * (start[SPARK] - start[POLARS]) / saved
    return (
        f"one of {times * results['cores_to_match']:.0f} is faster from {events / 1e6:.0f} million events on"
    )
