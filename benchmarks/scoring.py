"""Everyone's list in a file: `turret score` beside a bare product with top-k, and beside requests of 100.

Two invented shops with 100,000 users and some 30 events each; the towers are those of the experiment
`youtubednn`, trained for one epoch on fewer users of the same items. Both sides run on all cores, in turns.
The bare product is FAISS's, in blocks of 4,096 of the same user vectors, with the k best and nothing else.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Options, run
from benchmarks.processes import turret, turret_cost
from turret.data.prepared import PreparedData
from turret.scoring.run import PART, Run, Users, opened_source, score
from turret.scoring.scorer import QueryBlock, Scorer
from turret.scoring.users import UserSource
from turret.service.ranking.batches import recommend
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import load
from turret.tower.index.faiss_calls import faiss

WORK = Path("var/benchmarks/scoring")
ITEMS, USERS, QUICK_USERS, K = (27_000, 100_000), 100_000, 2_000, 20
_REQUEST, _ROUNDS = 100, 3


def scoring(options: Options) -> dict[str, Any]:
    """The users a second of each side, and the peak memory of a command by the number of users."""
    sizes = (1_000,) if options.quick else ITEMS
    return {"k": K, "shops": [_shop(items, QUICK_USERS if options.quick else USERS) for items in sizes]}


def _shop(items: int, users: int) -> dict[str, Any]:
    folder = WORK / f"{items}_{users}"
    if not (folder / "bundles" / "current").exists():
        _make(folder, items, users)
    bundle, data = load(folder / "bundles", "exact"), PreparedData.open(folder / "prepared")
    vectors = _user_vectors(bundle, folder)
    sides: dict[str, Callable[[], object]] = {
        "score": lambda: score(_run(bundle, folder)),
        "bare": lambda: _bare(vectors, bundle),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(_ROUNDS):
        for name, side in sides.items():
            begun, used = time.monotonic(), time.process_time()
            side()
            seconds[name].append((time.monotonic() - begun, time.process_time() - used))
    rates, busy = (
        {name: len(vectors) / min(taken[place] for taken in seconds[name]) for name in sides}
        for place in (0, 1)
    )
    few = max(users // 4, 1)
    (folder / "few.csv").write_text("\n".join(["user_id", *map(str, data.users.ids(range(few)))]))
    return {
        "items": len(bundle.vocabulary),
        "users": users,
        "dimension": bundle.manifest.dimension,
        "users_per_second": {name: round(rate) for name, rate in rates.items()},
        "over_bare": round(rates["score"] / rates["bare"], 3),
        # On a machine that others use too, the processor time is steadier than the clock.
        "over_bare_by_processor_time": round(busy["score"] / busy["bare"], 3),
        "requests_of_100_users_per_second": round(_requests(bundle, folder)),
        "by_index_users_per_second": round(_by_index(folder)),
        "peak_mb": {
            str(users): _peak(folder, "scores.parquet"),
            str(few): _peak(folder, "few.parquet", "--users", str(folder / "few.csv")),
        },
    }


def _make(folder: Path, items: int, users: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, people, events in (("", users, 30), ("_trained", max(users // 8, 500), 60)):
        shop = folder / f"shop{name}"
        turret("data", "synth", shop, "--users", people, "--items", items, "--events-per-user", events)
        turret("data", "prepare", shop, "--to", folder / f"prepared{name}")
        shutil.rmtree(shop)
    trained = ("--data", folder / "prepared_trained", "--run", folder / "run")
    turret("train", *trained, "--set", "training.epochs=1")
    turret("export", folder / "run", "--bundles", folder / "bundles", "--version", "exact")
    turret("index", folder / "bundles" / "exact", "--kind", "auto", "--version", "auto")


@contextmanager
def _opened(bundle: Bundle, folder: Path, by_index: bool = False) -> Iterator[tuple[Scorer, UserSource]]:
    run = _run(bundle, folder, by_index=by_index)
    with opened_source(run) as opened:
        scorer = opened.scorer()
        yield scorer, opened.users(scorer, 1_800_000_000_000, folder)


def _user_vectors(bundle: Bundle, folder: Path) -> Any:
    with _opened(bundle, folder) as (scorer, users):
        vectors = [scorer.encode(load()).vectors for load in users.blocks(PART)]
    return np.concatenate(vectors)


def _run(bundle: Bundle, folder: Path, name: str = "scores", by_index: bool = False) -> Run:
    return Run(bundle, Users(data=folder / "prepared"), folder / f"{name}.parquet", {"k": K}, by_index)


def _bare(vectors: Any, bundle: Bundle) -> None:
    items, dimension = np.ascontiguousarray(bundle.vectors), bundle.manifest.dimension
    for first in range(0, len(vectors), PART):
        part = np.ascontiguousarray(vectors[first : first + PART])
        rows, products = np.empty((len(part), K), np.int64), np.empty((len(part), K), np.float32)
        pointers = [faiss.swig_ptr(each) for each in (part, items, products, rows)]
        sizes = dimension, len(part), len(items)
        faiss.knn_inner_product(*pointers[:2], *sizes, K, *pointers[2:])


def _requests(bundle: Bundle, folder: Path) -> float:
    """Users a second of batches of 100 as the service ranks them, in one thread, without HTTP and JSON."""
    with _opened(bundle, folder, by_index=True) as (scorer, users):
        done, begun = 0, time.monotonic()
        for load in islice(users.blocks(_REQUEST), 50):
            block = load()
            assert isinstance(block, QueryBlock)
            done += len(recommend(scorer.model, scorer.view.fresh, block.queries))
        return done / (time.monotonic() - begun)


def _by_index(folder: Path) -> float:
    """Users a second by the index that `turret index --kind auto` chooses."""
    report = score(_run(load(folder / "bundles", "auto"), folder, "index", by_index=True))
    return report.users / report.seconds


def _peak(folder: Path, name: str, *words: str) -> int:
    """The peak memory of the command in megabytes."""
    data, target = folder / "prepared", folder / name
    cost = turret_cost("score", folder / "bundles" / "exact", "--data", data, "--to", target, "-k", K, *words)
    return round(cost.peak_mb)


if __name__ == "__main__":
    run(scoring, needs_data=False)
