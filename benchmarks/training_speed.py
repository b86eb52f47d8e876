"""How fast Turret trains beside its peers, each through its own documented interface.

On MovieLens 1M as SASRec splits it, with towers of the same sizes and the same number of threads. All sides
take turns in one run; what is claimed is the ratio of medians, with its spread over the rounds. A position
without a target, as peers fill up short histories, is no example. Where there is a CUDA device our towers
train on it as well, beside nobody.
"""

import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import evaluation, turret_training
from benchmarks.bare_towers import bare_transformer
from benchmarks.catalog_steps import catalog_steps
from benchmarks.device_speed import cuda_speed
from benchmarks.harness import (
    Options,
    Side,
    Turn,
    alternate,
    finish,
    rate_ratio,
    rate_summary,
    read_options,
    show,
)
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
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

ROUNDS, QUICK_ROUNDS = 7, 1
# A quarter of all; as many as a peer's own arrays of padded histories hold in 0.1 GB.
POSITIONS = 2**18
OURS, BARE = "Turret", "bare loop"


@dataclass(frozen=True)
class Contest:
    """Our side, with its steps a turn, against some peers, and against the same in bare torch.

    `key` is that of the ratio in the result; `data` what the peers read.
    """

    key: str
    ours: Side
    steps: int
    peers: tuple[Contestant, ...]
    data: Path
    bare: Side | None = None


def contests(data: PreparedData, work: Path, quick: bool) -> list[Contest]:
    """What is compared with whom; in a quick run the peers read an eighth, to be ready sooner."""
    share = 8 if quick else 1
    positions = write_positions(data, work / "positions.npz", HISTORY_LENGTH, POSITIONS // share)
    events = write_events(data, work / "events.npz", len(data.users) // share)
    pooled = turret_training.pooled(data, work)
    sampled, full = (
        turret_training.transformer_sampled(data, work),
        turret_training.transformer_full(data, work),
    )
    bare_sampled, bare_full = bare_transformer(data, sampled=True), bare_transformer(data, sampled=False)
    return [
        Contest("pooled_over_best_peer", pooled, 100, POOLED, positions),
        Contest(
            "transformer_sampled_over_rectools", sampled, 20, (TRANSFORMER_SAMPLED,), events, bare_sampled
        ),
        Contest("transformer_full_over_rectools", full, 20, (TRANSFORMER_FULL,), events, bare_full),
    ]


def join(contest: Contest, environments: Path, running: ExitStack) -> tuple[dict[str, Peer], list[str]]:
    """The peers that are ready to train, by name, and of each of the others why it is not."""
    peers: dict[str, Peer] = {}
    missing: list[str] = []
    for one in contest.peers:
        try:
            peers[one.name] = running.enter_context(one.peer(environments, contest.data))
        except PeerError as error:
            missing.append(str(error))
    for name, peer in list(peers.items()):
        try:
            peer.wait()
        except PeerError as error:
            missing.append(str(error))
            del peers[name]
    return peers, missing


def hold(contest: Contest, environments: Path, quick: bool) -> dict[str, Any]:
    """Start the peers, let all sides take turns, and compare ours with the best of them, and the bare loop.

    A peer that can't take part is named; where none can, there is no ratio.
    """
    with ExitStack() as running:
        peers, missing = join(contest, environments, running)
        print(*missing, sep="\n", end="\n" * bool(missing))
        turns = {OURS: Turn(contest.ours, contest.steps)}
        if contest.bare:
            turns[BARE] = Turn(contest.bare, contest.steps)
        turns |= {
            one.name: Turn(peers[one.name].run, one.steps) for one in contest.peers if one.name in peers
        }
        if quick:
            turns = {name: Turn(turn.run, -(-turn.steps // 4)) for name, turn in turns.items()}
        rates = alternate(turns, QUICK_ROUNDS if quick else ROUNDS)
    return {
        **(rate_ratio(rates, OURS, list(peers)) if peers else {"ratio": None}),
        "over_bare": rate_ratio(rates, OURS, [BARE]) if contest.bare else None,
        "examples_per_second": rate_summary(rates),
        "missing": missing,
    }


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
        held = {
            one.key: hold(one, options.given.peers, options.quick)
            for one in contests(data, work, options.quick)
        }
        steps = catalog_steps(options, work)
        cuda = cuda_speed(data, work)
        # In a process of its own, to say what an evaluation holds, and not what the contests before it held.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            ranking = alone.submit(evaluation.figures, options, work / "gowalla").result()
    ratios = {key: one["ratio"] for key, one in held.items()}
    ratios["over_bare_loop"] = min(one["over_bare"]["ratio"] for one in held.values() if one["over_bare"])
    return {
        **ratios,
        **steps,
        **ranking,
        "threads": THREADS,
        "load": load,
        "contests": held,
        "cuda": cuda,
    }


def main() -> None:
    """Run the benchmark."""
    options = read_options(__doc__, more=peers_option())
    try:
        figures = measure(options)
    except PeerError as error:
        raise SystemExit(str(error)) from None
    show(figures)
    finish("training_speed", options, figures)


if __name__ == "__main__":
    main()
