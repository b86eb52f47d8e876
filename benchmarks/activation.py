"""The decisions of `turret activate --not-worse-than`: other seeds of a recipe, and undertrained models.

For MovieLens 100K and Online Retail (the last event of each user is the test; used items are ranked for the
latter), the recipe is trained with several seeds, and once for an epoch only. Every ordered pair of seeds is
a comparison of equally good versions, which should be accepted; the undertrained model should be refused.
"""

import time
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.protocol import Options, finish, read_options
from turret.activation.not_worse import MARGIN, Comparison, UnclearError, WorseError, compare_versions
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.commands import export_run, train_run
from turret.training.process import set_up_process

SEEDS, QUICK_SEEDS = 3, 2
MARGINS = (0.05, MARGIN, 0.2)
UNDERTRAINED = "one-epoch"


@dataclass(frozen=True)
class Log:
    """A data set: its source below the folder of data sets, and settings of preparation and training."""

    source: str
    options: dict[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()


LOGS = {
    "ml-100k": Log("ml-100k/original"),
    "online-retail": Log(
        "online-retail/transactions.parquet", {"on_bad": "drop"}, ("evaluation.exclude_seen=false",)
    ),
}


def publish_versions(data: PreparedData, settings: tuple[str, ...], seeds: int, folder: Path) -> list[str]:
    """Train and export the versions of one log; return the names of the equally good ones."""
    overrides = {f"seed-{seed}": (f"training.seed={seed}",) for seed in range(seeds)}
    overrides[UNDERTRAINED] = ("training.epochs=1",)
    for name, changes in overrides.items():
        train_run(data.folder, None, folder / name, [*settings, *changes])
        export_run(folder / name, None, folder / "bundles", name)
    return list(overrides)[:-1]


def decision(comparison: Comparison) -> str:
    """The outcome of a comparison, as a word."""
    try:
        comparison.check()
    except WorseError:
        return "worse"
    except UnclearError:
        return "unclear"
    return "accepted"


def measure(log: Log, source: Path, seeds: int, folder: Path) -> dict[str, Any]:
    """Train the versions of one log, and count the decisions at each margin."""
    prepare(PrepareConfig.model_validate({"source": source / log.source, **log.options}), folder / "data")
    data = PreparedData.open(folder / "data")
    names = publish_versions(data, log.settings, seeds, folder)
    clock = time.perf_counter()
    equal = [compare_versions(folder / "bundles", *pair, data) for pair in permutations(names, 2)]
    worse = [compare_versions(folder / "bundles", UNDERTRAINED, name, data) for name in names]
    seconds = (time.perf_counter() - clock) / len(equal + worse)
    return {
        "counts": data.manifest.counts.model_dump(),
        "repeat_share": data.manifest.repeat_share,
        "users": len(equal[0].held_out.users),
        "ndcg@10": {"seeds": [pair.live for pair in equal[:: seeds - 1]], "one epoch": worse[0].new},
        "half_width": sum((one.high - one.low) / 2 / one.live for one in equal) / len(equal),
        "seconds": seconds,
        "equal": {str(margin): counts(equal, margin) for margin in MARGINS},
        "one epoch": {str(margin): counts(worse, margin) for margin in MARGINS},
    }


def counts(comparisons: list[Comparison], margin: float) -> dict[str, int]:
    """The number of comparisons with each outcome at a margin."""
    outcomes = [decision(replace(comparison, margin=margin)) for comparison in comparisons]
    return {outcome: outcomes.count(outcome) for outcome in ("accepted", "worse", "unclear")}


def show(logs: dict[str, Any]) -> None:
    """Print a line for each log, kind of pair and margin."""
    table = Table("log", "users", "pairs", "margin", "accepted", "worse", "unclear", "seconds each")
    for name, log in logs.items():
        for kind in ("equal", "one epoch"):
            for margin, outcomes in log[kind].items():
                cells = (str(log["users"]), kind, margin, *map(str, outcomes.values()))
                table.add_row(name, *cells, f"{log['seconds']:.1f}")
    Console(width=110).print(table)


def run(options: Options) -> None:
    """Measure all logs, print the table, and keep the figures."""
    logs: dict[str, Any] = {}
    for name, log in LOGS.items():
        if not options.quick or name == "ml-100k":
            with TemporaryDirectory() as folder:
                seeds = QUICK_SEEDS if options.quick else SEEDS
                logs[name] = measure(log, options.data, seeds, Path(folder))
    show(logs)
    finish("activation", options, {"seeds": SEEDS, "logs": logs})


if __name__ == "__main__":
    set_up_process()
    run(read_options(__doc__))
