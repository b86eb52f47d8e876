"""The gain of towers that read the kinds of the events of a history: `tower.user.kinds` on and off.

Protocol: two logs. `shop` is generated (`turret data synth --messy`): purchases are the targets, views and
carts signals, returns negatives, and nothing consumes, so that used items are ranked. `films` is a quarter of
the users of MovieLens 1M: films of 4 and 5 stars are the targets, those of 3, and of 1 or 2, are two kinds of
signals. The last target of each user is the test, and the whole catalog is ranked. NDCG@10 is by the towers
alone among the items that are new to the user, which they learn (`new ndcg@10`), and with the repeat term
among all, which reads kinds in either case. Each value is the mean of the seeds; differences are paired by
user, with 95 % intervals.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import Options, run
from turret.data.configuration import load_configuration
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.messy import MessyConfig
from turret.data.synthetic.synthesis import synthesise
from turret.tower.slots import slot_metric
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.evaluation import TOWERS, evaluate_rankers
from turret.training.evaluation.metrics import difference_interval
from turret.training.loop.train import train
from turret.training.run import Run

METRIC, SEEDS, EPOCHS = "ndcg@10", 2, 10
EXPERIMENT = "youtubednn"
SETTINGS = ("training.batch_size=1024", "training.patience=1000", "training.device=cpu")
_STARS = pl.when(pl.col("rating") >= 4).then(pl.lit("liked"))
_SHOP = {
    "columns": {"user": "user_id", "item": "item_id", "time": "time", "kind": "event"},
    "kinds": {"view": "signal", "cart": "signal", "purchase": "target", "return": "negative"},
    "filters": {"max_user_events": 2000},
    "on_bad": "drop",
}
_FILMS = {
    "columns": {"user": "user_id", "item": "item_id", "time": "pos", "kind": "kind"},
    "kinds": {"liked": "target", "seen": "signal", "disliked": "signal"},
    "on_bad": "drop",
}


def shop(options: Options, folder: Path) -> PreparedData:
    """Prepare the messy shop."""
    synthesise(MessyConfig(users=300 if options.quick else 3_000), folder / "raw")
    return _prepared({**_SHOP, "source": folder / "raw"}, folder)


def films(options: Options, folder: Path) -> PreparedData:
    """Prepare films that users liked, saw, and disliked."""
    ratings = pl.read_parquet(options.data / "ml-1m" / "ratings.parquet")
    of_some = pl.col("user_id") % (40 if options.quick else 4) == 1
    kind = _STARS.when(pl.col("rating") == 3).then(pl.lit("seen")).otherwise(pl.lit("disliked"))
    log = ratings.filter(of_some).select("user_id", "item_id", "pos", kind=kind)
    log.write_csv(folder / "ratings.csv")
    return _prepared({**_FILMS, "source": folder / "ratings.csv"}, folder)


def _prepared(settings: dict[str, Any], folder: Path) -> PreparedData:
    prepare(load_configuration(PrepareConfig, None, settings), folder / "prepared")
    return PreparedData.open(folder / "prepared")


def values_of(data: PreparedData, kinds: bool, quick: bool, folder: Path) -> list[NDArray[Any]]:
    """The metric [U] by the towers alone, and with the repeat term if there is one: means of the seeds."""
    epochs, seeds, by_seed = 1 if quick else EPOCHS, 1 if quick else SEEDS, []
    for seed in range(seeds):
        changes = (
            f"tower.user.kinds={str(kinds).lower()}",
            f"training.seed={seed}",
            f"training.epochs={epochs}",
        )
        experiment = load_experiment(EXPERIMENT, [*SETTINGS, *changes])
        trained = Run(folder / f"{kinds}-{seed}", experiment, data.folder, data.fingerprint)
        train(trained, data, report=lambda _: None)
        with_term = [False, True] if trained.repeats() else [False]
        by_seed.append([_values(trained, data, repeats) for repeats in with_term])
    return [np.mean(each, axis=0) for each in zip(*by_seed, strict=False)]


def _values(trained: Run, data: PreparedData, repeats: bool) -> NDArray[Any]:
    rankers = {TOWERS: lambda: trained.open_ranker(data, "test", repeats)}
    _, of_users = evaluate_rankers(rankers, data, "test", trained.experiment.evaluation)
    return of_users.values[TOWERS][METRIC if repeats else slot_metric("new", METRIC)]


def measure(options: Options) -> dict[str, Any]:
    """A row for each log, without the repeat term and with it."""
    rows = []
    for log in (shop, films):
        with TemporaryDirectory() as scratch:
            folder = Path(scratch)
            data = log(options, folder)
            without, read = (values_of(data, on, options.quick, folder) for on in (False, True))
            for repeats, before, after in zip((False, True), without, read, strict=False):
                has_target = ~np.isnan(before)  # of users whose targets are all used ones, no value is new
                before, after = before[has_target], after[has_target]
                low, high = difference_interval(after - before)
                row: dict[str, Any] = {"log": log.__name__, "repeats": repeats, "users": len(before)}
                row |= {"without": float(before.mean()), "with": float(after.mean())}
                rows.append({**row, "low": low, "high": high})
                print(rows[-1], flush=True)
    return {"metric": METRIC, "experiment": EXPERIMENT, "seeds": SEEDS, "epochs": EPOCHS, "rows": rows}


if __name__ == "__main__":
    run(measure)
