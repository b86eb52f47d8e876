"""How long it takes to train to HR@10 = .30 on MovieLens 1M as SASRec splits it, and on to a service.

The last item of each user is the test, the one before it validation and not in the training data; the whole
catalog is ranked, without the user's own items. After every epoch the model so far best on validation
HR@10 is the selected one; the figure is the seconds of training until its test HR@10 gets there. For
RecTools the fit alone counts, without evaluations and without its reading of data; for Turret the training of
the shipped `transformer` with validations, and beside it the seconds from the raw Parquet to a bundle that
answers over HTTP. Every epoch is a line of JSON. A run takes hours; `--seconds` ends it earlier, `--quick`
after some epochs with a hundredth of the users.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import Options, run
from benchmarks.peers.contestants import THREADS, Contestant, sasrec, write_events
from benchmarks.peers.peer import PeerError, peers_option
from benchmarks.processes import seconds_to_first_answer
from turret.activation.live import activate_version
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.commands import export_run
from turret.training.config.experiment import EvaluationConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.loop.train import train
from turret.training.run import Run

TARGET, LIMIT = 0.30, 3 * 3600.0
NAME = "Turret, `transformer`"
# The epoch is selected by the metric of the target, as on the other side.
EXPERIMENT, SETTINGS = "transformer", ("training.metric=hr@10",)
RECTOOLS = Contestant(
    "RecTools, full softmax", "rectools", "rectools_sasrec", sasrec("softmax", 128, evaluate=True), 1
)


class Curve:
    """The epochs of a side, until its selected model gets to the target or the seconds are spent.

    A point has the seconds of training so far, HR@10 on validation and the test HR@10 of the selected model.
    """

    def __init__(self, side: str, limit: float) -> None:
        self.side, self.limit, self.best = side, limit, -1.0
        self.points: list[dict[str, float]] = []

    def add(self, seconds: float, validation: float, test: Callable[[], float]) -> bool:
        """Note an epoch and print it; `test` ranks the test part. Returns True for the last epoch."""
        before = self.points[-1] if self.points else {"seconds": 0.0, "selected": 0.0}
        selected = before["selected"]
        if validation > self.best:
            self.best, selected = validation, test()
        point = {
            "epoch": len(self.points) + 1,
            "seconds": before["seconds"] + seconds,
            "validation": validation,
            "selected": selected,
        }
        self.points.append(point)
        print(json.dumps({"side": self.side, **point}), flush=True)
        return selected >= TARGET or point["seconds"] >= self.limit

    def outcome(self) -> dict[str, Any]:
        """The curve, and the seconds to the target, or None where it was not reached."""
        last = self.points[-1] if self.points else None
        return {
            "seconds": last["seconds"] if last and last["selected"] >= TARGET else None,
            "hr@10": last["selected"] if last else None,
            "curve": self.points,
        }


def turret(source: Path, work: Path, limit: float) -> dict[str, Any]:
    """Prepare, train to the target, export, serve and ask once; return the seconds of each.

    `to_service_seconds` is their sum, and None where the target was not reached.
    """
    clock = time.perf_counter()
    prepare(PrepareConfig(source=source), work / "prepared")
    data = PreparedData.open(work / "prepared")
    prepared = time.perf_counter() - clock
    experiment = load_experiment(EXPERIMENT, SETTINGS)
    run = Run(work / "run", experiment, data.folder, data.fingerprint)
    outcome = trained(run, data, limit).outcome()
    clock = time.perf_counter()
    folder = export_run(run.folder, None, work / "bundles", None)
    activate_version(folder.name, work / "bundles", None)
    exported = time.perf_counter() - clock
    history = data.item_ids.ids(data.event_items[data.offsets[0] : data.splits[0, 1]])
    served = seconds_to_first_answer(work / "bundles", json.dumps({"history": history, "k": 10}))
    seconds = outcome["seconds"]
    return {
        "prepare_seconds": prepared,
        **outcome,
        "configuration": experiment.model_dump(mode="json"),
        "export_seconds": exported,
        "service_seconds": served,
        "to_service_seconds": None if seconds is None else prepared + seconds + exported + served,
    }


def trained(run: Run, data: PreparedData, limit: float) -> Curve:
    """Train until the selected model, which the run keeps, gets to the target.

    The clock stands still while the test part is ranked; validation counts as training.
    """
    curve, since = Curve(NAME, limit), time.perf_counter()

    def test() -> float:
        report = evaluate(run.open_model(data), data, "test", EvaluationConfig(k=(10,)))
        return float(report["towers"]["hr@10"]["mean"])

    def observe(epoch: int, value: float) -> bool:
        nonlocal since
        is_last = curve.add(time.perf_counter() - since, value, test)
        since = time.perf_counter()
        return is_last

    train(run, data, report=lambda line: None, observe=observe)
    return curve


def rectools(events: Path, environments: Path, limit: float) -> dict[str, Any]:
    """The outcome of RecTools; where it can't take part, `missing` has the reason."""
    curve = Curve(RECTOOLS.name, limit)
    try:
        with RECTOOLS.peer(environments, events) as peer:
            is_last = False
            while not is_last:
                done = peer.ask(1)
                is_last = curve.add(done["seconds"], done["validation"], partial(float, done["test"]))
    except PeerError as error:
        print(error)
        return {**curve.outcome(), "missing": str(error)}
    return curve.outcome()


def measure(options: Options) -> dict[str, Any]:
    """Measure the sides one after the other, so that neither shares the machine."""
    source = options.data / "sasrec_ml-1m" / "interactions.parquet"
    limit = 5.0 if options.quick else options.given.seconds
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if options.quick:
            events, source = pl.read_parquet(source), work / "some.parquet"
            users = events["user_id"].unique().sort()
            some = users.head(len(users) // 100).implode()
            events.filter(pl.col("user_id").is_in(some)).write_parquet(source)
        source_sha256 = hash_file(source).sha256
        ours = turret(source, work / "ours", limit)
        prepare(PrepareConfig(source=source), work / "prepared")
        positions = write_events(PreparedData.open(work / "prepared"), work / "events.npz")
        theirs = rectools(positions, options.given.peers, limit)
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


if __name__ == "__main__":
    more = argparse.ArgumentParser(add_help=False, parents=[peers_option()])
    about = f"of training, at most, for each side ({LIMIT:.0f})"
    more.add_argument("--seconds", type=float, default=LIMIT, help=about)
    run(measure, more=more)
