"""What the scripts of graph libraries share: the least ef that reaches the recall, and timed turns."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# The finest steps that still tell one recall from the next.
EFS = (
    *range(10, 40, 2),
    *(40, 44, 48, 52, 56, 60, 64, 72, 80, 90, 100, 112, 128, 144, 160, 180, 200, 224, 256, 288, 320),
    *(360, 400, 450, 512, 600, 700, 850, 1024),
)
# Where twice the effort finds less than this more, the rest is lost in the codes.
FLAT = 0.0005

One = Callable[[Any, int], Any]
Batch = Callable[[Any, int], Any]


def recall(found: Any, truth: Any, k: int) -> float:
    """The mean share of the true first k rows [Q, >= k] among those found [Q, k]."""
    hits = [len(np.intersect1d(own, true)) for own, true in zip(found, truth[:, :k], strict=True)]
    return float(np.mean(hits)) / k


def least_ef(batch: Batch, set_ef: Callable[[int], None], arrays: Any, k: int, target: float) -> Any:
    """The smallest ef whose recall@k reaches `target`, else the best seen: {"ef", "recall"}."""
    seen: list[tuple[int, float]] = []
    for ef in (one for one in EFS if one >= k):
        set_ef(ef)
        seen.append((ef, recall(batch(arrays["queries"], k), arrays["truth"], k)))
        earlier = [found for before, found in seen if before <= ef / 2]
        if seen[-1][1] >= target or (earlier and seen[-1][1] - earlier[-1] < FLAT):
            break
    ef, reached = max(seen, key=lambda pair: pair[1])
    return {"ef": ef, "recall": reached}


def turns(
    one: One, batch: Batch, set_ef: Callable[[int], None], arrays: Any, settings: Any
) -> Callable[[int], dict[str, Any]]:
    """A function that asks so many queries for each k of the settings: one a call, and all in one call.

    Its result has the seconds of both under `by_k`; `seconds` are those of the first k, of the faster call.
    They are the process's own: what others do on the machine meanwhile isn't counted.
    """
    queries = arrays["queries"]
    chosen = {k: least_ef(batch, set_ef, arrays, k, settings["target"]) for k in settings["ks"]}

    def run(steps: int) -> dict[str, Any]:
        asked = queries[np.arange(steps) % len(queries)]
        result = {}
        for k, setting in chosen.items():
            set_ef(setting["ef"])
            start = time.process_time()
            for query in asked:
                one(query, k)
            middle = time.process_time()
            batch(asked, k)
            end = time.process_time()
            result[str(k)] = {**setting, "single": middle - start, "batch": end - middle}
        first = result[str(settings["ks"][0])]
        return {"examples": steps, "seconds": min(first["single"], first["batch"]), "by_k": result}

    return run


def keep(path: str, make: Callable[[str], None]) -> None:
    """Let `make` write the index to `path` unless it is there already."""
    if not os.path.isfile(path):
        make(f"{path}.part")
        os.replace(f"{path}.part", path)
