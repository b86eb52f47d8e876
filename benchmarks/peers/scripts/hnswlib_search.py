"""hnswlib: a graph over the vectors, searched by `knn_query` with one thread."""

import os
import sys
from collections.abc import Callable
from typing import Any

import hnswlib
import numpy as np

# The child imports nothing of the place where its script lies by itself.
sys.path.append(os.path.dirname(__file__))
from graph_race import keep, turns


def prepare(data: str, settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Settings: M, ef_construction, ks, target (recall), threads (to build), built (a file)."""
    arrays = dict(np.load(data))
    count, width = arrays["items"].shape

    def make(path: str) -> None:
        index = hnswlib.Index(space="ip", dim=width)
        index.init_index(count, M=settings["M"], ef_construction=settings["ef_construction"], random_seed=100)
        index.add_items(arrays["items"], num_threads=settings["threads"])
        index.save_index(path)

    keep(settings["built"], make)
    index = hnswlib.Index(space="ip", dim=width)
    index.load_index(settings["built"], max_elements=count)
    index.set_num_threads(1)
    run: Callable[[int], dict[str, Any]] = turns(
        lambda query, k: index.knn_query(query, k, num_threads=1),
        lambda queries, k: index.knn_query(queries, k, num_threads=1)[0],
        index.set_ef,
        arrays,
        settings,
    )
    return run
