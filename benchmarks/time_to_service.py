"""Turret's side of `benchmarks.time_to_quality`: from a raw log to a good model, and to an answer of it."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.selection_curve import TARGET, Point, outcome
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.service.client import activate_version, call, wait_until_ready
from turret.training.commands import export_run
from turret.training.config.experiment import EvaluationConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.run import Run
from turret.training.trainer import train

NAME = "Turret, `transformer`"
# What the epoch is selected on is what the target is in, as on the other side.
EXPERIMENT, SETTINGS = "transformer", ("training.metric=hr@10",)
READY = 60.0


class Watch:
    """Told of each validation: keeps the curve, and says when to stop.

    The clock stands still while the test part is ranked; validation counts as training.
    """

    def __init__(self, test: Callable[[], float], limit: float, target: float = TARGET) -> None:
        self.test, self.limit, self.target = test, limit, target
        self.points: list[Point] = []
        self.best, self.seconds, self.since = -1.0, 0.0, time.perf_counter()

    def __call__(self, epoch: int, value: float) -> bool:
        """Note an epoch. True where the selected model got to the target, or the limit is spent."""
        self.seconds += time.perf_counter() - self.since
        selected = self.points[-1].selected if self.points else 0.0
        test = self.test() if value > self.best else None
        if test is not None:
            self.best, selected = value, test
        self.points.append(Point(epoch, self.seconds, value, test, selected))
        print(json.dumps({"side": NAME, **asdict(self.points[-1])}), flush=True)
        self.since = time.perf_counter()
        return selected >= self.target or self.seconds >= self.limit


def turret(source: Path, work: Path, limit: float, settings: Sequence[str] = SETTINGS) -> dict[str, Any]:
    """Prepare, train to the target, export, serve and ask once; the seconds of each.

    `to_service_seconds` is all of it, and None where the target was not reached.
    """
    clock = time.perf_counter()
    prepare(PrepareConfig(source=source), work / "prepared")
    data = PreparedData.open(work / "prepared")
    found: dict[str, Any] = {"prepare_seconds": time.perf_counter() - clock}
    experiment = load_experiment(EXPERIMENT, settings)
    points = trained(Run(work / "run", experiment, data.folder, data.fingerprint), data, limit)
    found |= {**outcome(points), "configuration": experiment.model_dump(mode="json")}
    found |= in_service(work / "run", work / "bundles", _history(data))
    parts = [found["prepare_seconds"], found["seconds"], found["export_seconds"], found["service_seconds"]]
    return {**found, "to_service_seconds": None if found["seconds"] is None else sum(parts)}


def trained(run: Run, data: PreparedData, limit: float) -> list[Point]:
    """Train until the selected model, which is the one that the run keeps, gets there."""

    def test() -> float:
        report = evaluate(run.open_model(data), data, "test", EvaluationConfig(k=(10,)))
        return float(report["towers"]["hr@10"]["mean"])

    watch = Watch(test, limit)
    train(run, data, report=lambda line: None, observe=watch)
    return watch.points


def in_service(run: Path, bundles: Path, history: Sequence[int | str]) -> dict[str, Any]:
    """Export and activate a run's model, start a service and ask it: the seconds, and how many items came."""
    clock = time.perf_counter()
    folder = export_run(run, None, bundles, None)
    activate_version(folder.name, bundles, None)
    exported = time.perf_counter()
    with serving(bundles) as url:
        wait_until_ready(url, READY)
        answer = call(url, "/v1/recommend", {"history": list(history), "k": 10})
        answered = time.perf_counter()
    return {
        "export_seconds": exported - clock,
        "service_seconds": answered - exported,
        "answer_items": len(answer["items"]),
    }


@contextmanager
def serving(bundles: Path) -> Iterator[str]:
    """The address of a `turret serve` on a free port, until the block ends."""
    words = ["serve", "--bundles", str(bundles), "--port", "0", "--store", "memory://"]
    with subprocess.Popen(
        [sys.executable, "-m", "turret", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            greeting = process.stdout.readline()
            found = re.search(r"http://[\d.:]+", greeting)
            if found is None:
                raise RuntimeError(f"turret {' '.join(words)}: no address in {greeting!r}")
            yield found[0]
        finally:
            process.kill()


def _history(data: PreparedData) -> list[int | str]:
    """What somebody has used."""
    return data.item_ids.ids(data.event_items[data.offsets[0] : data.splits[0, 1]])
