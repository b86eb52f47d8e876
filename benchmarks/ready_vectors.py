"""Ready vectors as item features: their quality beside ids and texts, and the memory of a million of them.

`vector_quality`: Amazon Scientific, whose items have a text, and 1,585 of them a text and an image vector.
On the log of these items, the last event of each user is the test and the one before it selects the epoch
(warm), and a tenth of the items is held out as in `python -m benchmarks.variants cold_items` (cold). The
whole log, which published figures refer to, has the warm test alone.

`vector_memory`: a million items with 768 numbers of float16 each, and the most memory that each step of a
model on vectors alone takes: preparation, one epoch, export, and opening and asking the bundle.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Options, over_seeds, peak_memory_mb, run
from benchmarks.processes import alone
from benchmarks.variants import FeaturedSet, Row, cold_data, tested
from turret.data.prepared import PreparedData
from turret.data.reading.schema import FeatureColumns, FilesSplit

SEEDS = (0, 1, 2)
METRICS = ("recall@10", "ndcg@10", "recall@100")
_ALONE = ("tower.item.id=false", "tower.item.id_dropout=0.0")
MODELS: dict[str, tuple[str, ...]] = {
    "ids": ("tower.item.features=[]", "tower.item.hidden=[]", "tower.item.id_dropout=0.0"),
    "trigrams": (*_ALONE, 'tower.item.features=["text"]'),
    "text vectors": (*_ALONE, 'tower.item.features=["text_vector"]'),
    "image vectors": (*_ALONE, 'tower.item.features=["image_vector"]'),
    "both vectors": (*_ALONE, 'tower.item.features=["text_vector", "image_vector"]'),
    "ids, trigrams and both vectors": ('tower.item.features=["text", "text_vector", "image_vector"]',),
}
_SHOP = FeatureColumns(text=("text",), vector=("text_vector", "image_vector"), ignore=("*",))


def _featured(log: pl.DataFrame) -> FeaturedSet:
    return FeaturedSet(lambda _: log.drop("split").sort("user_id", "time"), _SHOP)


def vector_quality(options: Options) -> Row:
    """Measure every model with every seed, warm on both logs and cold on that of the items with vectors."""
    seeds = SEEDS[:1] if options.quick else SEEDS
    epochs = ("training.epochs=1",) if options.quick else ()
    source = options.data / "amazon-scientific"
    result: Row = {"seeds": len(seeds)}
    with tempfile.TemporaryDirectory() as folder:
        shop = Path(folder) / "shop"
        shop.mkdir()
        items, vectors = (pl.read_parquet(source / f"{name}.parquet") for name in ("items", "vectors"))
        items.join(vectors, on="item_id", how="left").write_parquet(shop / "items.parquet")

        def means(warm_data: PreparedData | None, settings: Sequence[str]) -> Row:
            """The means over seeds of every model; without data, on the last log less its cold items."""
            rows_by_model: dict[str, list[dict[str, float]]] = {model: [] for model in MODELS}
            for seed in seeds:
                with tempfile.TemporaryDirectory(dir=folder) as work:
                    data = warm_data or cold_data(shop, chosen, seed, Path(work))
                    for model, changes in MODELS.items():
                        run, all_changes = Path(work) / model, [*changes, *settings]
                        rows_by_model[model].append(tested("dssm", all_changes, seed, data, run, METRICS))
            return {model: over_seeds(rows, METRICS) for model, rows in rows_by_model.items()}

        for name in ("interactions", "interactions_with_vectors"):
            log = pl.read_parquet(source / f"{name}.parquet").select(
                "user_id", "item_id", "split", time="pos"
            )
            chosen = _featured(log)
            work = Path(folder) / name
            work.mkdir()
            parts = {"train": "train", "validation": "valid", "test": "test"}
            for part in parts.values():
                log.filter(pl.col("split") == part).drop("split").write_parquet(work / f"{part}.parquet")
            split = FilesSplit(
                kind="files", **{role: work / f"{part}.parquet" for role, part in parts.items()}
            )
            data = chosen.prepared(shop, work, split=split)
            warm = means(data, epochs)
            result[name] = {"users": len(data.users), "items": len(data.item_ids), "warm": warm}
        fixed = epochs or ("training.epochs=3",)
        result["cold"] = means(None, fixed)
    return result


ITEMS, WIDTH, USERS, EVENTS = 1_000_000, 768, 100_000, 10
STEPS = ("prepare", "train", "export", "serve")


def vector_memory(options: Options) -> Row:
    """The peak memory of each step, in a process of its own."""
    count = 20_000 if options.quick else ITEMS
    result: Row = {"items": count, "numbers": WIDTH}
    with tempfile.TemporaryDirectory() as folder:
        _write_catalog(Path(folder), count)
        for step in STEPS:
            result[f"{step}_mb"] = alone(_step, step, Path(folder))
            print(step, result[f"{step}_mb"], flush=True)
    return result


def _write_catalog(folder: Path, count: int) -> None:
    random = np.random.default_rng(0)
    vectors = np.lib.format.open_memmap(folder / "look.npy", "w+", np.float16, (count, WIDTH))
    for first in range(0, count, 10_000):
        vectors[first : first + 10_000] = random.standard_normal(
            (min(10_000, count - first), WIDTH), np.float32
        )
    vectors.flush()
    np.save(folder / "look.ids.npy", np.arange(count))
    items = np.concatenate([random.permutation(count), random.integers(0, count, USERS * EVENTS)])
    users = random.integers(0, USERS, len(items))
    pl.DataFrame({"user": users, "item": items, "time": np.arange(len(items))}).write_parquet(
        folder / "events.parquet"
    )
    pl.DataFrame({"item": np.arange(count)}).write_parquet(folder / "items.parquet")


def _step(name: str, folder: Path) -> float:
    """Take one step; return the peak memory of this process."""
    import turret

    settings: dict[str, Any] = {"tower.item.id": False, "tower.item.id_dropout": 0.0, "tower.item.hidden": []}
    settings |= {"training.epochs": 1, "training.validation_users": 1000}
    if name == "prepare":
        vectors = {"item_features": {"vector": [f"look={folder / 'look.npy'}"], "ignore": ["*"]}}
        turret.prepare(
            folder / "events.parquet", folder / "data", items=folder / "items.parquet", settings=vectors
        )
    elif name == "train":
        turret.train(folder / "data", folder / "run", experiment="dssm", settings=settings)
    elif name == "export":
        turret.open_run(folder / "run").export(folder / "bundles", "v1")
    else:
        turret.load(folder / "bundles").recommend([1, 2, 3], 10)
    return peak_memory_mb()


if __name__ == "__main__":
    run(vector_quality, vector_memory)
