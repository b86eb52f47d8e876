"""How long it takes to train to HR@10 = .30 on MovieLens 1M as SASRec splits it, and on to a service.

The last item of each user is the test, the one before it validation and not in the training data; the whole
catalog is ranked, without the user's own items. After every epoch the model so far best on validation
HR@10 is the selected one; what counts are the seconds of training until its test HR@10 gets there. Of
RecTools those of the fit alone, without evaluations and without its reading of data; of Turret those of the
shipped `transformer`, validations included, and beside them what it takes from the raw Parquet to a bundle
that answers over HTTP. Every epoch is a line of JSON. It takes hours; `--seconds` ends it earlier, `--quick`
after some epochs with a hundredth of the users.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import Options, run
from benchmarks.peers.contestants import THREADS, Contestant, sasrec, write_events
from benchmarks.peers.peer import PeerError, peers_option
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.service.client import activate_version, call, wait_until_ready
from turret.training.commands import export_run
from turret.training.config.experiment import EvaluationConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.run import Run
from turret.training.trainer import train

TARGET = 0.30


@dataclass(frozen=True)
class Point:
    """HR@10 after so many epochs and seconds of training, and the test HR@10 of the selected model.

    `test` is None where the epoch's own was not asked for, as another one is the selected.
    """

    epoch: int
    seconds: float
    validation: float
    test: float | None
    selected: float


def curve(epoch: Callable[[], dict[str, Any]], limit: float, target: float = TARGET) -> Iterator[Point]:
    """Train epoch by epoch, until the selected model gets to `target` or `limit` seconds are spent.

    `epoch` trains one, and gives its seconds, and HR@10 as validation and test.
    """
    number, seconds, best, selected = 0, 0.0, -1.0, 0.0
    while seconds < limit and selected < target:
        done = epoch()
        number, seconds = number + 1, seconds + done["seconds"]
        if done["validation"] > best:
            best, selected = done["validation"], done["test"]
        yield Point(number, seconds, done["validation"], done["test"], selected)


def outcome(points: list[Point], target: float = TARGET) -> dict[str, Any]:
    """The curve, and the seconds to the target, or None where it was not reached."""
    reached = bool(points) and points[-1].selected >= target
    return {
        "seconds": points[-1].seconds if reached else None,
        "hr@10": points[-1].selected if points else None,
        "curve": [asdict(point) for point in points],
    }


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


LIMIT = 3 * 3600.0
RECTOOLS = Contestant(
    "RecTools, full softmax", "rectools", "rectools_sasrec", sasrec("softmax", 128, evaluate=True), 1
)


def rectools(events: Path, environments: Path, limit: float) -> dict[str, Any]:
    """RecTools' time: each point is printed as it comes. Where it can't take part, the reason is."""
    points: list[Point] = []
    try:
        with RECTOOLS.peer(environments, events) as peer:
            for point in curve(lambda: peer.ask(1), limit):
                points.append(point)
                print(json.dumps({"side": RECTOOLS.name, **asdict(point)}), flush=True)
    except PeerError as error:
        print(error)
        return {**outcome(points), "missing": str(error)}
    return outcome(points)


def measure(options: Options) -> dict[str, Any]:
    """Each side, one after the other: they share the machine with nobody."""
    source = options.data / "sasrec_ml-1m" / "interactions.parquet"
    limit = 5.0 if options.quick else options.given.seconds
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if options.quick:
            source = some_users(source, work / "some.parquet")
        source_sha256 = hash_file(source).sha256
        ours = turret(source, work / "ours", limit)
        prepare(PrepareConfig(source=source), work / "prepared")
        events = write_events(PreparedData.open(work / "prepared"), work / "events.npz")
        theirs = rectools(events, options.given.peers, limit)
    reached = ours["seconds"] is not None and theirs["seconds"] is not None
    return {
        "target_hr@10": TARGET,
        "limit_seconds": limit,
        "threads": THREADS,
        "rectools_over_turret": theirs["seconds"] / ours["seconds"] if reached else None,
        "to_service_seconds": ours["to_service_seconds"],
        "source_sha256": source_sha256,
        "sides": {NAME: ours, RECTOOLS.name: theirs},
    }


def some_users(source: Path, path: Path) -> Path:
    """The events of a hundredth of the users."""
    events = pl.read_parquet(source)
    users = events["user_id"].unique().sort()
    events.filter(pl.col("user_id").is_in(users.head(len(users) // 100).implode())).write_parquet(path)
    return path


def more_options() -> argparse.ArgumentParser:
    """Where the peers are, and how long each side may train."""
    parser = argparse.ArgumentParser(add_help=False, parents=[peers_option()])
    parser.add_argument(
        "--seconds", type=float, default=LIMIT, help=f"of training, at most, for each side ({LIMIT:.0f})"
    )
    return parser


if __name__ == "__main__":
    run(measure, more=more_options())
