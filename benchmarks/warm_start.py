"""A day of news, served by hourly warm starts, against a model that is trained anew once a day.

Protocol: Globo.com's clicks by session. The last day of the log is held out (24 hours from 2017-10-16, 03:00
UTC on). One model is trained on all clicks before it, and answers the whole day (`stale`).
Another starts as that one; after each hour `turret train --from` updates it with the targets of that
hour, on the catalog of the last 24 hours (`hourly`). Both are exported, and asked for every click of the
next hour but the first of its session: all of the catalog is ranked, the session's own items left out,
ties by ascending row. An item that was never clicked before its hour can't be known, and counts as missed.
In the middle of the day two more models are trained from scratch, to show the value of warm starts: on all
clicks until then, as the first one was (`retrained`), and on the last 24 hours, with the settings of an
update (`window`).
"""

import statistics
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, peak_memory_mb, run
from benchmarks.next_items import HOUR, METRICS, Retrainer, by_bundle, gains, moment, questions, read_clicks
from turret.data.manifest import hash_file

DAY_BEGINS = int(datetime(2017, 10, 16, 3, tzinfo=UTC).timestamp() * 1000)
WINDOW = 24  # hours
EXPERIMENT = "youtubednn"
BASE = ("tower.user.history_length=20", "training.epochs=3")
UPDATE = ('objective={loss="full_softmax"}', "training.epochs=5", "training.batch_size=512")


def one_hour(retrainer: Retrainer, start: int, bundles: dict[str, Path]) -> dict[str, Any]:
    """The figures of every model for the hour that begins at `start`."""
    hour_questions = questions(retrainer.clicks, start, start + HOUR)
    gains_by_model = {name: gains(by_bundle(folder), hour_questions) for name, folder in bundles.items()}
    return {
        "hour": moment(start),
        "questions": len(hour_questions.targets),
        **{
            f"{name}_{metric}": float(value)
            for name, gain in gains_by_model.items()
            for metric, value in zip(METRICS, gain.mean(axis=0), strict=True)
        },
    }


def measure(options: Options) -> dict[str, Any]:
    """Measure the day, hour by hour; a quick run has three hours, and reads two days before them."""
    source = options.data / "globo" / "clicks.parquet"
    hours, middle, first = (3, 1, DAY_BEGINS - 48 * HOUR) if options.quick else (24, 12, 0)
    with tempfile.TemporaryDirectory() as folder:
        retrainer = Retrainer(read_clicks(source), Path(folder), EXPERIMENT)
        stale = hourly = retrainer.retrained(first, DAY_BEGINS, "stale", BASE)
        rows, updates, halfway = [], [], {}
        for hour in range(hours):
            start = DAY_BEGINS + hour * HOUR
            if hour:
                window, since = start - WINDOW * HOUR, start - HOUR
                hourly = retrainer.updated(hourly.folder, window, since, start, f"hourly-{hour}", UPDATE)
                updates.append(hourly.seconds)
            rows.append(one_hour(retrainer, start, {"hourly": hourly.folder, "stale": stale.folder}))
            if hour == middle:
                halfway = from_scratch(retrainer, first, start) | rows[-1]
    return {
        **totals(rows),
        "update_seconds": statistics.median(updates),
        "retrain_seconds": stale.seconds,
        "middle": halfway,
        "peak_memory_mb": peak_memory_mb(),
        "source_sha256": hash_file(source).sha256,
        "base": [EXPERIMENT, *BASE],
        "update": UPDATE,
        "window_hours": WINDOW,
        "hours": rows,
    }


def from_scratch(retrainer: Retrainer, first: int, until: int) -> dict[str, Any]:
    """The figures of models trained from scratch at `until`, for the hour that begins then."""
    window = until - WINDOW * HOUR
    published = {
        "retrained": retrainer.retrained(first, until, "retrained", BASE),
        "window": retrainer.retrained(window, until, "window", [*BASE, *UPDATE]),
    }
    figures = one_hour(retrainer, until, {name: bundle.folder for name, bundle in published.items()})
    return figures | {f"{name}_seconds": bundle.seconds for name, bundle in published.items()}


def totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The means of every hour's figures over all questions of the day."""
    question_count = sum(row["questions"] for row in rows)
    names = [name for name in rows[0] if "@" in name]
    sums = {name: sum(row[name] * row["questions"] for row in rows) for name in names}
    return {"questions": question_count, **{name: sums[name] / question_count for name in names}}


if __name__ == "__main__":
    run(measure)
