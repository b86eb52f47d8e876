"""How long it takes to train to HR@10 = .30 on MovieLens 1M as SASRec splits it.

The last item of each user is the test, the one before it validation and not in the training data; the whole
catalogue is ranked, without the user's own items. After every epoch the model so far best on validation is
the selected one; what counts are the seconds of training, evaluations excluded, until its test HR@10 gets
there. Every epoch is a line of JSON. It takes hours; `--seconds` ends it earlier, `--quick` after some
epochs with a hundredth of the users.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import THREADS, Contestant, sasrec
from benchmarks.peers.environments import peers_option
from benchmarks.peers.errors import PeerError
from benchmarks.peers.files import write_events
from benchmarks.protocol import Options, finish, read_options
from data.prepare import prepare
from data.schema import PrepareConfig
from data.sequences import PreparedData

TARGET = 0.30
LIMIT = 3 * 3600.0
RECTOOLS = Contestant(
    "RecTools, full softmax", "rectools", "rectools_sasrec", sasrec("softmax", 128, evaluate=True), 1
)


@dataclass(frozen=True)
class Point:
    """HR@10 after so many epochs and seconds of training, and the test HR@10 of the selected model."""

    epoch: int
    seconds: float
    validation: float
    test: float
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
    """Prepare the data, and train each side."""
    source = options.data / "sasrec_ml-1m" / "interactions.parquet"
    limit = 10.0 if options.quick else options.given.seconds
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(PrepareConfig(source=source), work / "prepared")
        data = PreparedData.open(work / "prepared")
        events = write_events(data, work / "events.npz", len(data.users) // (100 if options.quick else 1))
        sides = {RECTOOLS.name: rectools(events, options.given.peers, limit)}
    return {"target_hr@10": TARGET, "limit_seconds": limit, "threads": THREADS, "sides": sides}


def show(figures: dict[str, Any]) -> None:
    """Say who got there, and when."""
    for name, side in figures["sides"].items():
        if side["seconds"] is not None:
            print(f"{name}: HR@10 {side['hr@10']:.4f} after {side['seconds']:,.0f} s of training")
        elif side["curve"]:
            last = side["curve"][-1]
            print(f"{name}: HR@10 {last['selected']:.4f} after {last['seconds']:,.0f} s; not there yet")


def more_options() -> argparse.ArgumentParser:
    """Where the peers are, and how long each side may train."""
    parser = argparse.ArgumentParser(add_help=False, parents=[peers_option()])
    parser.add_argument(
        "--seconds", type=float, default=LIMIT, help=f"of training, at most, for each side ({LIMIT:.0f})"
    )
    return parser


def main() -> None:
    """Run the benchmark."""
    options = read_options(__doc__, more=more_options())
    figures = measure(options)
    show(figures)
    finish("time_to_quality", options, figures)


if __name__ == "__main__":
    main()
