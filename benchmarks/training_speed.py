"""How fast Turret trains beside its peers, each through its own documented interface.

On MovieLens 1M as SASRec splits it, with towers of the same sizes and the same number of threads. All sides
take turns in one run; the claim is the ratio of medians, with its spread over the rounds. A position
without a target, as peers fill up short histories, is no example.

Also: a step by the size of the catalog, and a full-ranking evaluation of gowalla (29,858 users, 40,981 items,
k = 20) beside a bare blocked product with top-k.
"""

import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.harness import Options, Side, Turn, alternate, peak_memory_mb, rate_ratio, rate_summary, run
from benchmarks.peers.contestants import (
    HISTORY_LENGTH,
    POOLED,
    THREADS,
    TRANSFORMER_FULL,
    TRANSFORMER_SAMPLED,
    Contestant,
    write_events,
    write_positions,
)
from benchmarks.peers.peer import join, peers_option
from benchmarks.processes import alone
from benchmarks.scale_training import Shape, log_of
from benchmarks.training_sides import bare_transformer, pooled, training, transformer
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import FilesSplit, PrepareConfig
from turret.data.reading.source_settings import ColumnSettings
from turret.tower.towers.model import TwoTowers
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.evaluation import Relevant, relevant_items
from turret.training.evaluation.evaluation import measure as measure_ranking
from turret.training.evaluation.ranking import rank, tower_scores
from turret.training.run import build_model

CATALOGS = (10_000, 1_000_000)
EVENTS = 2_000_000
TURNS, TURN_STEPS = 7, 10


def _steps_of(side: Side) -> Side:
    """The side, whose steps count in place of its examples."""
    return lambda steps: (steps, side(steps)[1])


def catalog_steps(options: Options, folder: Path) -> dict[str, float]:
    """The median step of the default experiment at both sizes, in turns, and their ratio.

    Each item occurs at least once and is as popular as the next.
    """
    turns = {}
    for items in CATALOGS:
        work = folder / str(items)
        data = PreparedData.open(log_of(Shape(items, 64, 50), work, EVENTS))
        side = training(data, work / "run", "youtubednn", [])
        turns[str(items)] = Turn(_steps_of(side), TURN_STEPS)
    rates = alternate(turns, 3 if options.quick else TURNS)
    small, large = (1.0 / statistics.median(rates[str(items)]) for items in CATALOGS)
    return {"step_1e4_ms": 1e3 * small, "step_1e6_ms": 1e3 * large, "step_1e6_over_1e4": large / small}


K, RANKINGS = 20, 5
BLOCK = 512


def gowalla(options: Options, folder: Path) -> PreparedData:
    """Prepare gowalla in the published split."""
    source = options.data / "gowalla"
    split = FilesSplit(kind="files", train=source / "train.parquet", test=source / "test.parquet")
    prepare(PrepareConfig(split=split, columns=ColumnSettings(in_file_order=True)), folder)
    return PreparedData.open(folder)


def ranked_users(data: PreparedData, quick: bool) -> Relevant:
    """The users of the test with their items; a quick run has one fifth of them."""
    relevant = relevant_items(data, "test")
    if not quick:
        return relevant
    count = len(relevant.users) // 5
    rows = relevant.rows[: relevant.offsets[count]]
    return Relevant(relevant.users[:count], rows, relevant.offsets[: count + 1])


def ranking_seconds(model: TwoTowers, data: PreparedData, relevant: Relevant) -> float:
    """Seconds of the ranking of all users, with its metrics."""
    start = time.perf_counter()
    scores_of = tower_scores(model, data, "test", data.item_counts("train"))
    ranked = rank(scores_of, data, relevant.users, "test", K, exclude_seen=True)
    measure_ranking(ranked, [("all", relevant)], [K], len(data.item_ids), "ranking")
    return time.perf_counter() - start


@torch.no_grad()
def _bare_ranking(users: Tensor, items: Tensor) -> float:
    """Seconds of the product and the top-k, one block of users after the other."""
    start = time.perf_counter()
    for block in torch.split(users, BLOCK):
        (block @ items.T).topk(K)
    return time.perf_counter() - start


def evaluation_cost(options: Options, folder: Path) -> dict[str, Any]:
    """Measure both sides in turns, the first not counted."""
    data = gowalla(options, folder)
    model = build_model(load_experiment("youtubednn"), data)
    relevant = ranked_users(data, options.quick)
    random = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, 64, generator=random) for n in (len(relevant.users), len(data.item_ids)))
    pairs = [
        (ranking_seconds(model, data, relevant), _bare_ranking(users, items)) for _ in range(RANKINGS + 1)
    ]
    mine, theirs = (statistics.median(side) for side in zip(*pairs[1:], strict=True))
    return {
        "evaluation_over_bare": mine / theirs,
        "evaluation_seconds": mine,
        "bare_seconds": theirs,
        "evaluation_users": len(relevant.users),
        "evaluation_peak_memory_mb": peak_memory_mb(),
    }


ROUNDS, QUICK_ROUNDS = 7, 1
# A quarter of all positions: a peer's arrays of padded histories hold this number in 0.1 GB.
POSITIONS = 2**18
OURS, BARE = "Turret", "bare loop"


class Contest(NamedTuple):
    """Our side, with its steps a turn, against some peers, and against the same in bare torch.

    `data` is what the peers read.
    """

    ours: Side
    steps: int
    peers: tuple[Contestant, ...]
    data: Path
    bare: Side | None = None


def contests(data: PreparedData, work: Path, quick: bool) -> dict[str, Contest]:
    """The contests by the key of their ratio; in a quick run the peers read an eighth, to be ready sooner."""
    share = 8 if quick else 1
    positions = write_positions(data, work / "positions.npz", HISTORY_LENGTH, POSITIONS // share)
    events = write_events(data, work / "events.npz", len(data.users) // share)
    contests = {"pooled_over_best_peer": Contest(pooled(data, work), 100, POOLED, positions)}
    for name, is_sampled, peers in (
        ("sampled", True, TRANSFORMER_SAMPLED),
        ("full", False, TRANSFORMER_FULL),
    ):
        ours, bare = transformer(data, work, is_sampled), bare_transformer(data, is_sampled)
        contests[f"transformer_{name}_over_rectools"] = Contest(ours, 20, peers, events, bare)
    return contests


def hold(contest: Contest, environments: Path, quick: bool) -> dict[str, Any]:
    """Start the peers, let all sides take turns, and compare ours with the best of them, and the bare loop.

    A peer that can't take part is named; where none can, there is no ratio.
    """
    with ExitStack() as running:
        starters = {side.name: partial(side.peer, environments, contest.data) for side in contest.peers}
        peers, missing = join(starters, running)
        turns = {OURS: Turn(contest.ours, contest.steps)}
        if contest.bare:
            turns[BARE] = Turn(contest.bare, contest.steps)
        turns |= {
            side.name: Turn(peers[side.name].run, side.steps) for side in contest.peers if side.name in peers
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
            key: hold(contest, options.given.peers, options.quick)
            for key, contest in contests(data, work, options.quick).items()
        }
        steps = catalog_steps(options, work)
        # A process of its own shows the memory of an evaluation, not that of the contests before it.
        ranking = alone(evaluation_cost, options, work / "gowalla")
    ratios = {key: row["ratio"] for key, row in held.items()}
    ratios["over_bare_loop"] = min(row["over_bare"]["ratio"] for row in held.values() if row["over_bare"])
    return {**ratios, **steps, **ranking, "threads": THREADS, "load": load, "contests": held}


if __name__ == "__main__":
    run(measure, more=peers_option())
