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
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import Options, run
from benchmarks.peers.contestants import THREADS, Contestant, sasrec
from benchmarks.peers.environments import peers_option
from benchmarks.peers.errors import PeerError
from benchmarks.peers.files import write_events
from benchmarks.selection_curve import TARGET, Point, curve, outcome
from benchmarks.time_to_service import NAME, turret
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

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
