"""hnswlib or usearch: a graph over vectors, searched with one thread at the least ef of a recall."""

import os
import time
from collections.abc import Callable
from typing import Any

import hnswlib
import numpy as np
from usearch.index import Index

# The finest steps that still tell one recall from the next.
EFS = (
    *range(10, 40, 2),
    *(40, 44, 48, 52, 56, 60, 64, 72, 80, 90, 100, 112, 128, 144, 160, 180, 200, 224, 256, 288, 320),
    *(360, 400, 450, 512, 600, 700, 850, 1024),
)
# Where twice the effort finds less than this more, the rest is lost in the codes.
FLAT = 0.0005


class Hnswlib:
    """Settings: M, ef_construction."""

    def __init__(self, items: Any, settings: dict[str, Any]) -> None:
        self.index = hnswlib.Index(space="ip", dim=items.shape[1])
        if not os.path.isfile(settings["built"]):
            made = hnswlib.Index(space="ip", dim=items.shape[1])
            options = {name: settings[name] for name in ("M", "ef_construction")}
            made.init_index(len(items), random_seed=100, **options)
            made.add_items(items, num_threads=settings["threads"])
            keep(settings["built"], made.save_index)
        self.index.load_index(settings["built"], max_elements=len(items))
        self.index.set_num_threads(1)
        self.set_ef = self.index.set_ef

    def search(self, queries: Any, k: int) -> Any:
        """The rows of the best k for one query, or for each of several."""
        return self.index.knn_query(queries, k, num_threads=1)[0]


class Usearch:
    """Settings: connectivity, expansion_add, dtype."""

    def __init__(self, items: Any, settings: dict[str, Any]) -> None:
        if not os.path.isfile(settings["built"]):
            options = {name: settings[name] for name in ("connectivity", "expansion_add", "dtype")}
            made = Index(ndim=items.shape[1], metric="ip", **options)
            made.add(np.arange(len(items)), items, threads=settings["threads"])
            keep(settings["built"], made.save)
        self.index = Index.restore(settings["built"])

    def set_ef(self, ef: int) -> None:
        """Search as broadly as that."""
        self.index.expansion_search = ef

    def search(self, queries: Any, k: int) -> Any:
        """The rows of the best k for one query, or for each of several."""
        return self.index.search(queries, k, threads=1).keys


def keep(path: str, save: Callable[[str], None]) -> None:
    """Let the whole index appear at `path`."""
    save(f"{path}.part")
    os.replace(f"{path}.part", path)


def least_ef(index: Any, arrays: Any, k: int, target: float) -> dict[str, Any]:
    """The smallest ef whose recall@k reaches `target`, else the best seen."""
    seen: list[tuple[int, float]] = []
    for ef in (one for one in EFS if one >= k):
        index.set_ef(ef)
        found = index.search(arrays["queries"], k)
        hits = [
            len(np.intersect1d(own, true)) for own, true in zip(found, arrays["truth"][:, :k], strict=True)
        ]
        seen.append((ef, float(np.mean(hits)) / k))
        earlier = [recall for before, recall in seen if before <= ef / 2]
        if seen[-1][1] >= target or (earlier and seen[-1][1] - earlier[-1] < FLAT):
            break
    ef, reached = max(seen, key=lambda pair: pair[1])
    return {"ef": ef, "recall": reached}


def prepare(data: str, settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Settings: library, ks, target (recall), threads (to build), built (a file), and those of the library.

    A step asks one query for each k, one a call, and all in one call: `by_k` has the seconds of both. They
    are the process's own: what others do on the machine meanwhile isn't counted.
    """
    arrays = dict(np.load(data))
    index: Any = {"hnswlib": Hnswlib, "usearch": Usearch}[settings["library"]](arrays["items"], settings)
    chosen = {k: least_ef(index, arrays, k, settings["target"]) for k in settings["ks"]}

    def run(steps: int) -> dict[str, Any]:
        asked = arrays["queries"][np.arange(steps) % len(arrays["queries"])]
        result = {}
        for k, setting in chosen.items():
            index.set_ef(setting["ef"])
            start = time.process_time()
            for query in asked:
                index.search(query, k)
            middle = time.process_time()
            index.search(asked, k)
            end = time.process_time()
            result[str(k)] = {**setting, "single": middle - start, "batch": end - middle}
        first = result[str(settings["ks"][0])]
        return {"examples": steps, "seconds": min(first["single"], first["batch"]), "by_k": result}

    return run
