"""usearch: a graph over the vectors, in a type of number that is asked for, searched with one thread."""

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from usearch.index import Index

# The child imports nothing of the place where its script lies by itself.
sys.path.append(os.path.dirname(__file__))
from graph_race import keep, turns


def prepare(data: str, settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Settings: connectivity, expansion_add, dtype, ks, target (recall), threads (to build), built."""
    arrays = dict(np.load(data))
    count, width = arrays["items"].shape

    def make(path: str) -> None:
        names = ("connectivity", "expansion_add", "dtype")
        index = Index(ndim=width, metric="ip", **{name: settings[name] for name in names})
        index.add(np.arange(count), arrays["items"], threads=settings["threads"])
        index.save(path)

    keep(settings["built"], make)
    index = Index.restore(settings["built"])

    def set_ef(ef: int) -> None:
        index.expansion_search = ef

    run: Callable[[int], dict[str, Any]] = turns(
        lambda query, k: index.search(query, k, threads=1),
        lambda queries, k: index.search(queries, k, threads=1).keys,
        set_ef,
        arrays,
        settings,
    )
    return run
