"""Training by two processes of one thread, beside one process of one thread and one of two.

The transformer as it is shipped (full softmax) and with candidates that each process draws, the pooled tower
with the candidates of the whole batch, and the pooled tower with a table split over the processes. All sides
make the same global batches and take turns in one run; the claims are ratios of medians. One process on half
a batch shows the cost of smaller batches alone. The processes talk over the loopback; the time of a network
is computed from the bytes that they send.
"""

import statistics
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.distributed_training.cost_model import GBIT_PER_S, cost
from benchmarks.distributed_training.sides import Setting, Side
from benchmarks.harness import Options, Turn, alternate, rate_ratio, rate_summary, run
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

TWO, ONE, THREADS, HALF = "2 processes", "1 process", "1 process of 2 threads", "1 process, half batches"
ROUNDS, QUICK_ROUNDS = 5, 1
WORKERS = (8, 64)
ITEMS, WIDE_ITEMS, EVENTS_A_USER = 10_000, 200_000, 50
NEVER = 10**9
IN_BATCH = 'objective={loss="sampled_softmax_corrected", sampler={kind="in_batch"}}'
SAMPLED = 'objective={loss="sampled_softmax", sampler={kind="uniform", negatives=256}}'
STILL = "tower.user.dropout=0.0"
BATCH = 4096


def shop(folder: Path, items: int, users: int) -> Path:
    """Prepared data of users with 50 events each; every item has one."""
    random = np.random.default_rng(0)
    events = users * EVENTS_A_USER
    drawn = np.concatenate([random.permutation(items), random.zipf(1.3, events) % items])[:events]
    random.shuffle(drawn)
    rows = zip(np.repeat(np.arange(users), EVENTS_A_USER), drawn, strict=True)
    folder.mkdir()
    lines = (f"{user},{item}" for user, item in rows)
    (folder / "events.csv").write_text("\n".join(["user,item", *lines]) + "\n", encoding="utf-8")
    config = {"source": folder / "events.csv", "columns": {"in_file_order": True}}
    prepare(PrepareConfig.model_validate(config), folder / "prepared")
    return folder / "prepared"


def settings(work: Path) -> dict[str, tuple[Setting, int]]:
    """What is trained, and the steps of a turn."""
    usual, wide = shop(work / "shop", ITEMS, 4000), shop(work / "wide", WIDE_ITEMS, 6000)
    pooled = ("tower.user.history_length=50", IN_BATCH, STILL)
    return {
        "transformer": (Setting(usual, work, "transformer", (), BATCH, NEVER), 4),
        "transformer_sampled": (Setting(usual, work, "transformer", (SAMPLED,), BATCH, NEVER), 20),
        "in_batch": (Setting(usual, work, "youtubednn", pooled, BATCH, NEVER), 6),
        "split_table": (Setting(wide, work, "youtubednn", pooled, BATCH, 65_536), 6),
    }


def compare(setting: Setting, steps: int, rounds: int) -> dict[str, Any]:
    """Let the sides take turns: examples/s, losses of the same steps, bytes and memory."""
    sides = {TWO: Side(setting, 2, 1), ONE: Side(setting, 1, 1), THREADS: Side(setting, 1, 2)}
    sides[HALF] = Side(replace(setting, batch=setting.batch // 2), 1, 1)
    try:
        losses = {name: side.turns(steps)[0].losses for name, side in sides.items()}
        lengths = {name: 2 * steps if name == HALF else steps for name in sides}
        rates = alternate({name: Turn(side.run, lengths[name]) for name, side in sides.items()}, rounds)
        last = {name: side.turns(steps) for name, side in sides.items()}
    finally:
        for side in sides.values():
            side.close()
    two, one = last[TWO], last[ONE][0]
    sent = {kind: statistics.mean(turn.sent[kind] for turn in two) / steps for kind in two[0].sent}
    seconds = two[0].examples / steps / statistics.median(rates[ONE]) / 2
    return {
        "examples_per_s": rate_summary(rates),
        "over_one": rate_ratio(rates, TWO, [ONE]),
        "over_two_threads": rate_ratio(rates, TWO, [THREADS]),
        "half_over_one": rate_ratio(rates, HALF, [ONE]),
        "loss_difference": max(
            abs(ours - theirs) for ours, theirs in zip(losses[TWO], losses[ONE], strict=True)
        ),
        "bytes_sent_a_step": sent,
        "seconds_computing_a_step": seconds,
        "cost_model": [asdict(cost(sent, seconds, workers)) for workers in WORKERS],
        "peak_mb": {name: max(turn.peak_mb for turn in turns) for name, turns in last.items()},
        "table_mb": {"2 processes": max(turn.tables_mb for turn in two), "1 process": one.tables_mb},
    }


def measure(options: Options) -> dict[str, Any]:
    """Every training on all sides."""
    with tempfile.TemporaryDirectory() as work:
        rounds = QUICK_ROUNDS if options.quick else ROUNDS
        measured = {
            name: compare(setting, 2 if options.quick else steps, rounds)
            for name, (setting, steps) in settings(Path(work)).items()
        }
    split = measured["split_table"]
    return {
        "speedup_2_over_1": measured["transformer"]["over_one"]["ratio"],
        "loss_difference": max(measured[name]["loss_difference"] for name in ("in_batch", "split_table")),
        "memory_share_of_table": split["table_mb"]["2 processes"] / split["table_mb"]["1 process"],
        "network_gbit_per_s": GBIT_PER_S,
        "trainings": measured,
    }


if __name__ == "__main__":
    run(measure, needs_data=False)
