"""How fast Turret trains beside its peers, each through its own documented interface.

On MovieLens 1M as SASRec splits it, with towers of the same sizes and the same number of threads. All sides
take turns in one run; what is claimed is the ratio of medians, with its spread over the rounds. A position
without a target, as peers fill up short histories, is no example.
"""

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import evaluation, our_training
from benchmarks.alternation import Side, Turn, alternate, ratio, summary
from benchmarks.catalogue_steps import catalogue_steps
from benchmarks.peers.contestants import (
    HISTORY_LENGTH,
    POOLED,
    THREADS,
    TRANSFORMER_FULL,
    TRANSFORMER_SAMPLED,
    Contestant,
)
from benchmarks.peers.environments import peers_option
from benchmarks.peers.errors import PeerError
from benchmarks.peers.files import write_events, write_positions
from benchmarks.peers.peer import Peer
from benchmarks.protocol import Options, finish, read_options
from data.prepare import prepare
from data.schema import PrepareConfig
from data.sequences import PreparedData

ROUNDS, QUICK_ROUNDS = 7, 1
# A quarter of all; as many as a peer's own arrays of padded histories hold in 0.1 GB.
POSITIONS = 2**18
OURS = "Turret"


@dataclass(frozen=True)
class Contest:
    """Our side, with its steps a turn, against some peers; `key` is that of the ratio in the result."""

    key: str
    ours: Side
    steps: int
    peers: tuple[Contestant, ...]
    data: Path


def contests(data: PreparedData, work: Path) -> list[Contest]:
    """What is compared with whom."""
    positions = write_positions(data, work / "positions.npz", HISTORY_LENGTH, POSITIONS)
    events = write_events(data, work / "events.npz")
    pooled = our_training.pooled(data, work)
    sampled, full = our_training.transformer_sampled(data, work), our_training.transformer_full(data, work)
    return [
        Contest("pooled_over_best_peer", pooled, 200, POOLED, positions),
        Contest("transformer_sampled_over_rectools", sampled, 20, (TRANSFORMER_SAMPLED,), events),
        Contest("transformer_full_over_rectools", full, 10, (TRANSFORMER_FULL,), events),
    ]


def hold(contest: Contest, environments: Path, quick: bool) -> dict[str, Any]:
    """Start the peers, let all sides take turns, and compare ours with the best of them.

    A peer that can't take part is named; where none can, there is no ratio.
    """
    share = 4 if quick else 1
    missing: list[str] = []
    with ExitStack() as running:
        peers: dict[str, Peer] = {}
        for one in contest.peers:
            try:
                peer = running.enter_context(one.peer(environments, contest.data))
                peer.wait()
                peers[one.name] = peer
            except PeerError as error:
                missing.append(str(error))
                print(error)
        turns = {OURS: Turn(contest.ours, max(contest.steps // share, 1))}
        turns |= {
            one.name: Turn(peers[one.name].run, max(one.steps // share, 1))
            for one in contest.peers
            if one.name in peers
        }
        rates = alternate(turns, QUICK_ROUNDS if quick else ROUNDS)
    compared = ratio(rates, OURS, list(peers)) if peers else {"ratio": None}
    return {**compared, "examples_per_second": summary(rates), "missing": missing}


def measure(options: Options) -> dict[str, Any]:
    """Prepare the data, hold every contest, and put the figures together."""
    load = os.getloadavg()[0]
    if load > 1:
        print(f"The machine is busy (load {load:.1f}): sides whose threads wait for each other suffer most.")
    source = options.data / "sasrec_ml-1m" / "interactions.parquet"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(PrepareConfig(source=source), work / "prepared")
        data = PreparedData.open(work / "prepared")
        held = {one.key: hold(one, options.given.peers, options.quick) for one in contests(data, work)}
        steps = catalogue_steps(options, work)
        ranking = evaluation.figures(options, work / "gowalla")
    ratios = {key: one["ratio"] for key, one in held.items()}
    return {**ratios, **steps, **ranking, "threads": THREADS, "load": load, "contests": held}


def show(figures: dict[str, Any]) -> None:
    """Print a table for people."""
    for key, one in figures["contests"].items():
        table = Table(title=key.replace("_", " "))
        for heading in ("", "examples/s", "least ... greatest"):
            table.add_column(heading)
        for name, rate in one["examples_per_second"].items():
            spread = f"{rate['least']:,.0f} ... {rate['greatest']:,.0f}"
            table.add_row(name, f"{rate['median']:,.0f}", spread)
        Console().print(table)
        if one["ratio"] is not None:
            print(
                f"{one['ratio']:.2f} times {one['against']} "
                f"({one['ratio_least']:.2f} ... {one['ratio_greatest']:.2f} by round)"
            )
    print(
        f"a step over 1,000,000 items takes {figures['step_1e6_over_1e4']:.2f} times one over 10,000; "
        f"a full ranking {figures['evaluation_over_bare']:.2f} times a bare product with top-k"
    )


def main() -> None:
    """Run the benchmark."""
    options = read_options(__doc__, more=peers_option())
    figures = measure(options)
    show(figures)
    finish("training_speed", options, figures)


if __name__ == "__main__":
    main()
