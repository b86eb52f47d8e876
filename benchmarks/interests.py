"""Users of several interests against one vector: `python -m benchmarks.interests --json`.

Protocol: two logs. In `tastes`, which is generated, items belong to groups, a user has one to six groups, and
each event is an item of one of them that is new to the user, by its popularity within the group. `films` is
MovieLens 1M. The last event of each user is the test, the one before it validation, and the whole catalog is
ranked. Four vectors of 64 numbers (`interests`) are compared with one vector of 64 numbers (`one`) and of 128
(`wide`), which has half as many as the four together, in the experiments `youtubednn` and `transformer` as
they are shipped, but for a common number of epochs. Values are means of the seeds, and differences from `one`
and `wide` are paired by user, with 95 % intervals.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Options, run_rows
from turret.data.configuration import load_configuration
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.evaluation import TOWERS, evaluate_rankers
from turret.training.evaluation.metrics import Values, difference_interval
from turret.training.loop.train import train
from turret.training.run import Run

METRICS, SEEDS, EPOCHS = ("ndcg@10", "recall@10"), 3, 20
EXPERIMENTS = ("youtubednn", "transformer")
COMMON = ("tower.dimension=64", "training.patience=1000", "training.device=cpu")
SIDES: dict[str, tuple[str, ...]] = {
    "one": (),
    "wide": ("tower.dimension=128",),
    "interests": ("tower.user.interests=4",),
}
Row = dict[str, Any]
GROUPS, GROUP_SIZE, MOST_TASTES, EVENTS = 60, 50, 6, 30


def tastes(options: Options, folder: Path) -> Path:
    """Write a log of users whose events are of one to six groups of items each."""
    users, random = 300 if options.quick else 6_000, np.random.default_rng(0)
    popularity = 1.0 / np.arange(1, GROUP_SIZE + 1)
    popularity /= popularity.sum()
    rows: list[tuple[int, int, int]] = []
    for user in range(users):
        groups = random.choice(GROUPS, random.integers(1, MOST_TASTES + 1), replace=False)
        orders = {
            group: iter(random.choice(GROUP_SIZE, EVENTS, replace=False, p=popularity).tolist())
            for group in groups.tolist()
        }
        for position, group in enumerate(random.choice(groups, EVENTS).tolist()):
            rows.append((user, group * GROUP_SIZE + next(orders[group]), position))
    pl.DataFrame(rows, schema=["user_id", "item_id", "pos"], orient="row").write_csv(folder / "log.csv")
    return folder / "log.csv"


def films(options: Options, folder: Path) -> Path:
    """Write the ratings of MovieLens 1M; a quick run has a tenth of the users."""
    ratings = pl.read_parquet(options.data / "ml-1m" / "ratings.parquet")
    of_some = pl.col("user_id") % (10 if options.quick else 1) == 0
    ratings.filter(of_some).select("user_id", "item_id", "pos").write_csv(folder / "log.csv")
    return folder / "log.csv"


def _prepared(source: Path) -> PreparedData:
    columns = {"user": "user_id", "item": "item_id", "time": "pos"}
    settings = load_configuration(
        PrepareConfig, None, {"source": source, "columns": columns, "on_bad": "drop"}
    )
    prepare(settings, source.parent / "prepared")
    return PreparedData.open(source.parent / "prepared")


def values_of(data: PreparedData, experiment: str, side: str, quick: bool, folder: Path) -> dict[str, Values]:
    """The metrics [U] of the users in the test part, as means of the seeds."""
    by_seed = []
    for seed in range(1 if quick else SEEDS):
        changes = [
            *COMMON,
            *SIDES[side],
            f"training.epochs={1 if quick else EPOCHS}",
            f"training.seed={seed}",
        ]
        config = load_experiment(experiment, changes)
        trained = Run(folder / f"{experiment}-{side}-{seed}", config, data.folder, data.fingerprint)
        train(trained, data, report=lambda _: None)
        rankers = {TOWERS: lambda trained=trained: trained.open_ranker(data, "test")}
        _, of_users = evaluate_rankers(rankers, data, "test", config.evaluation)
        by_seed.append(of_users.values[TOWERS])
    return {metric: np.mean([values[metric] for values in by_seed], axis=0) for metric in METRICS}


def measure(options: Options, kept: list[Row]) -> Iterator[Row]:
    """A row for each log, experiment and side that is not kept."""
    known = {(row["log"], row["experiment"]) for row in kept}
    for log in (tastes, films):
        with TemporaryDirectory() as scratch:
            data = _prepared(log(options, Path(scratch)))
            for experiment in EXPERIMENTS:
                if (log.__name__, experiment) in known:
                    continue
                values = {
                    side: values_of(data, experiment, side, options.quick, Path(scratch)) for side in SIDES
                }
                for side, of_side in values.items():
                    row: Row = {"log": log.__name__, "experiment": experiment, "side": side}
                    row |= {metric: float(of_side[metric].mean()) for metric in METRICS}
                    for other in ("one", "wide"):
                        low, high = difference_interval(of_side[METRICS[0]] - values[other][METRICS[0]])
                        row |= {f"over_{other}_low": low, f"over_{other}_high": high}
                    yield row


def summary(rows: list[Row]) -> Row:
    """The settings that all rows share."""
    return {"seeds": SEEDS, "epochs": EPOCHS, "interests": 4}


if __name__ == "__main__":
    run_rows(measure, summary)
