"""What a second stage brings: LightGBM over the candidates of `turret score`, beside the order of the towers.

The log is online-retail, divided by time: towers are trained on the purchases before 10 October 2011 and
choose their epoch by the month after, the ranker is trained on the candidates of that month, and the last
month of the log is the test. The fields of the items are counted before the ranker's month, so that nothing
of a target is known. Asked is once for each customer with a purchase in a part, before the first one; the
targets are the distinct items that the customer bought in the part. Intervals are 95 %, over customers.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightgbm
import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars import selectors as cs

from benchmarks.harness import Options, run
from benchmarks.processes import turret
from turret.data.prepared import Part, PreparedData
from turret.training.evaluation.metrics import difference_interval

K, CANDIDATES = 20, 200
_RANKED, _TESTED = "2011-10-10", "2011-11-09"
_SEED, _ROUNDS = 7, 200


def second_stage(options: Options) -> dict[str, Any]:
    """Recall and NDCG of the test customers in both orders, and the differences."""
    with TemporaryDirectory() as folder:
        work = Path(folder)
        data, tables = _candidates(options.data / "online-retail", work, 1 if options.quick else 12)
        train, test = (tables[part] for part in ("validation", "test"))
        ranker = _ranker(train)
        ranked = test.with_columns(first=-pl.col("rank"), second=ranker.predict(_features(test).to_numpy()))
        sides = {
            "towers": _gains(ranked, "first", data, "test"),
            "lightgbm": _gains(ranked, "second", data, "test"),
        }
        gain = dict(zip(ranker.feature_name(), ranker.feature_importance("gain").tolist(), strict=True))
        first = sorted(gain, key=lambda name: -gain[name])[:4]
        return {
            "k": K,
            "candidates": CANDIDATES,
            "customers": {"trained": train["user_id"].n_unique(), "tested": len(sides["towers"][0])},
            "found": round(float(_gains(ranked, "first", data, "test", CANDIDATES)[0].mean()), 4),
            "features": {name: round(gain[name] / sum(gain.values()), 3) for name in first},
            "metrics": {
                name: _compared(*(sides[side][place] for side in ("towers", "lightgbm")))
                for place, name in enumerate((f"recall@{K}", f"ndcg@{K}"))
            },
        }


def _candidates(source: Path, work: Path, epochs: int) -> tuple[PreparedData, dict[Part, pl.DataFrame]]:
    """The prepared data, and the candidates of both parts."""
    lines = pl.read_parquet(source / "transactions.parquet")
    lines = lines.filter(pl.col("user_id").is_not_null() & (pl.col("quantity") > 0)).sort("timestamp")
    lines.select("user_id", "item_id", "timestamp").write_parquet(work / "events.parquet")
    begins = pl.lit(_RANKED).str.to_datetime()
    known = lines.with_columns(pl.col("timestamp").cast(pl.Datetime)).filter(pl.col("timestamp") < begins)
    days = (begins - pl.col("timestamp")).dt.total_days()
    counts = known.group_by("item_id").agg(
        purchases=pl.len(),
        of_a_month=(days < 30).sum(),
        customers=pl.col("user_id").n_unique(),
        price=pl.col("unit_price").median(),
        pieces=pl.col("quantity").median(),
        days_known=days.max(),
    )
    counts.write_parquet(work / "items.parquet")
    columns = ("--user", "user_id", "--item", "item_id", "--time", "timestamp", "--item-id", "item_id")
    parts = ("--split", "time", "--validation-from", _RANKED, "--test-from", _TESTED)
    prepared, trained, bundles = work / "prepared", work / "run", work / "bundles"
    turret(
        *("data", "prepare", work / "events.parquet", "--items", work / "items.parquet", "--to", prepared),
        *(*columns, *parts),
    )
    settings = ("--set", 'objective={loss="full_softmax"}', "--set", f"training.epochs={epochs}")
    turret("train", "--data", prepared, "--run", trained, *settings)
    turret("export", trained, "--bundles", bundles)
    tables: dict[Part, pl.DataFrame] = {}
    for part in ("validation", "test"):
        target = work / f"{part}.parquet"
        turret(
            *("score", bundles, "--data", prepared, "--candidates", part, "-k", CANDIDATES, "--to", target)
        )
        tables[part] = pl.read_parquet(target)
    return PreparedData.open(prepared), tables


def _features(table: pl.DataFrame) -> pl.DataFrame:
    return table.select("rank", "score", pl.col("^(item|user)\\..*$")).select(cs.numeric())


def _ranker(table: pl.DataFrame) -> lightgbm.Booster:
    sizes = table.group_by("user_id", maintain_order=True).len()["len"].to_numpy()
    read = _features(table)
    taken = table["taken"].cast(pl.Int32).to_numpy()
    known = lightgbm.Dataset(read.to_numpy(), taken, group=sizes, feature_name=read.columns)
    settings = {"objective": "lambdarank", "learning_rate": 0.05, "seed": _SEED, "verbosity": -1}
    return lightgbm.train(settings, known, _ROUNDS)


def _gains(
    table: pl.DataFrame, by: str, data: PreparedData, part: Part, k: int = K
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Recall and NDCG of the first `k` of each customer in the order of a column, best first."""
    ordered = table.sort("user_id", by, descending=[False, True], maintain_order=True)
    recalls, gains = list[float](), list[float]()
    discounts = 1.0 / np.log2(np.arange(k) + 2)
    for (user,), rows in ordered.group_by("user_id", maintain_order=True):
        row = data.users.row(user)
        assert row is not None
        count = len(np.unique(data.targets(row, part)))
        taken = rows["taken"].to_numpy()[:k]
        recalls.append(taken.sum() / count)
        gains.append((taken * discounts[: len(taken)]).sum() / discounts[:count].sum())
    return np.array(recalls), np.array(gains)


def _compared(before: NDArray[np.float64], after: NDArray[np.float64]) -> dict[str, Any]:
    low, high = difference_interval(after - before)
    means = {"towers": before.mean(), "lightgbm": after.mean(), "difference": (after - before).mean()}
    return {name: round(float(mean), 4) for name, mean in means.items()} | {
        "interval": [round(float(low), 4), round(float(high), 4)]
    }


if __name__ == "__main__":
    run(second_stage)
