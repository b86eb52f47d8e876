"""The speed of every kind of index at one recall, beside hnswlib and usearch.

The vectors come from models that are trained on ML-1M and Gowalla, the questions from their users; a million
vectors are drawn like Gowalla's.
Each side is asked with its fastest settings whose recall@10, measured on 2,000 questions, is at least .99:
Turret one query a call, as it is served; peers in single calls and all in one call, of which the faster
counts. Each side has one thread, and all take turns; seconds are processor seconds, and the claim is the
ratio of medians. The same is measured at 100. Models and slow indexes are made once, and kept below var/. So
a first run takes half an hour or more (graphs of a million need most of it), and later ones about ten
minutes. `--quick` searches a few thousand invented vectors, and claims nothing.
"""

import argparse
import os
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np

from benchmarks.harness import Options, rate_ratio, run
from benchmarks.index_sets import KEPT, IndexSet, Side, exact_side, index_set, kinds, side
from benchmarks.peers.contestants import THREADS
from benchmarks.peers.peer import Peer, environment, join, peers_option

Graphs = dict[str, dict[str, Any]]
"""The settings of each peer, by its name."""


def _hnswlib(links: int, effort: int) -> Graphs:
    return {f"hnswlib M={links}": {"library": "hnswlib", "M": links, "ef_construction": effort}}


def _usearch(links: int, effort: int, dtype: str) -> Graphs:
    settings = {"connectivity": links, "expansion_add": effort, "dtype": dtype}
    return {f"usearch {dtype} M={links}": {"library": "usearch", **settings}}


# The peers' documented defaults; then those with more links, and the faster ones at recall .99 on some set.
EVERYWHERE = _hnswlib(16, 200) | _usearch(16, 128, "f16")
SMALL = _hnswlib(12, 300) | _hnswlib(16, 500) | _hnswlib(32, 200)
SMALL |= _usearch(16, 128, "f32") | _usearch(16, 128, "i8") | _usearch(32, 128, "f16")
# A graph of more items takes 10 to 20 minutes to build: of each library, the fastest peer joins.
MANY, LIMIT = 10**5, 1800.0


def graph_peer(settings: dict[str, Any], environments: Path, data: Path, kept: Path) -> Peer:
    """The process of a peer, not yet started. Raises PeerError where its environment can't be made."""
    python = environment("graph_search", environments)
    built = kept / "-".join(map(str, settings.values()))
    told = {**settings, "ks": KS, "target": TARGET, "threads": THREADS, "built": str(built)}
    return Peer(str(settings["library"]), "graph_search", python, data, told, LIMIT)


SETS, QUICK_SETS = ("ml-1m", "gowalla", "million"), ("invented",)
KS, TARGET = [10, 100], 0.99
ROUNDS, QUICK_ROUNDS = 7, 3
# The seconds that a turn should take, and the least and the most queries in it.
TURN_SECONDS, LEAST, MOST = 0.2, 20, 2000


def race(dataset: IndexSet, options: Options, work: Path) -> dict[str, Any]:
    """Let all sides take turns on a set; return their rates, and our best over the best peer, for each k."""
    kept = (KEPT / "built" / f"{dataset.name}-{dataset.key}").resolve()
    kept.mkdir(parents=True, exist_ok=True)
    ours = [exact_side(dataset, KS), *(side(dataset, each, KS, TARGET, kept) for each in kinds(dataset))]
    data = dataset.write(work / f"{dataset.name}.npz")
    with ExitStack() as running:
        graphs = EVERYWHERE if options.quick or len(dataset.items) >= MANY else EVERYWHERE | SMALL
        starters = {
            name: partial(graph_peer, settings, options.given.peers, data, kept)
            for name, settings in graphs.items()
        }
        peers, missing = join(starters, running)
        rates, told = turns(dataset, ours, peers, QUICK_ROUNDS if options.quick else ROUNDS)
    mine = {index.name: {"by_k": {str(k): told for k, (_, told) in index.chosen.items()}} for index in ours}
    sides = mine | told
    return {
        "items": len(dataset.items),
        "questions": len(dataset.queries),
        "missing": missing,
        **{f"at_{k}": compared(rates[k], sides, k) for k in KS},
    }


def turns(
    dataset: IndexSet, ours: list[Side], peers: dict[str, Peer], rounds: int
) -> tuple[dict[int, dict[str, list[float]]], dict[str, Any]]:
    """Queries/s by k, side and call, round by round; and the settings that each peer reports."""
    rates: dict[int, dict[str, list[float]]] = {k: {} for k in KS}
    told: dict[str, Any] = {}
    steps = {index.name: {k: _steps(index.run(dataset.queries[:LEAST], k)) for k in KS} for index in ours}
    peer_steps = {name: _steps(peer.run(LEAST)[1]) for name, peer in peers.items()}
    for _ in range(rounds):
        for index in ours:
            for k in KS:
                queries = dataset.queries[np.arange(steps[index.name][k]) % len(dataset.queries)]
                rate = len(queries) / index.run(queries, k)
                rates[k].setdefault(index.name, []).append(rate)
        for name, peer in peers.items():
            answer = told[name] = peer.ask(peer_steps[name])
            for k in KS:
                for call in ("single", "batch"):
                    rate = peer_steps[name] / answer["by_k"][str(k)][call]
                    rates[k].setdefault(f"{name}, {call}", []).append(rate)
    return rates, told


def _steps(seconds: float) -> int:
    """How many queries fill a turn, if `LEAST` of them take so many seconds."""
    return int(np.clip(TURN_SECONDS * LEAST / max(seconds, 1e-9), LEAST, MOST))


def compared(rates: dict[str, list[float]], sides: dict[str, Any], k: int) -> dict[str, Any]:
    """Every call's figures at one k; our fastest that reaches the recall over the fastest peer that does."""
    calls = []
    for call, side_rates in rates.items():
        name, _, way = call.rpartition(", ")
        setting = dict(sides[name or call]["by_k"][str(k)])
        calls.append(
            {
                "side": name or call,
                "call": way if name else "single",
                "is_peer": bool(name),
                "recall": setting.pop("recall"),
                "queries_per_second": median(side_rates),
                "least": min(side_rates),
                "greatest": max(side_rates),
                "settings": {key: setting[key] for key in setting if key not in ("single", "batch")},
            }
        )
    ours, theirs = (_fastest(calls, is_peer) for is_peer in (False, True))
    figures: dict[str, Any] = {"ratio": None, "sides": calls}
    if ours and theirs:
        against = f"{theirs['side']}, {theirs['call']}"
        figures |= {"ours": ours["side"], **rate_ratio(rates, ours["side"], [against])}
    return figures


def _fastest(calls: list[dict[str, Any]], is_peer: bool) -> dict[str, Any] | None:
    able = [call for call in calls if call["is_peer"] == is_peer and call["recall"] >= TARGET]
    return max(able, key=lambda call: float(call["queries_per_second"]), default=None)


def measure(options: Options) -> dict[str, Any]:
    """Measure every set, one after the other."""
    load = os.getloadavg()[0]
    if load > 1:
        print(f"The machine is busy (load {load:.1f}): graphs, which wait for memory, suffer most.")
    names = options.given.sets or (QUICK_SETS if options.quick else SETS)
    faiss.omp_set_num_threads(1)
    figures = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            threads = faiss.omp_get_max_threads()
            dataset = index_set(name, options.data)
            faiss.omp_set_num_threads(threads)
            figures[name] = race(dataset, options, Path(folder))
    ratios = [each[f"at_{KS[0]}"]["ratio"] for each in figures.values()]
    return {
        "qps_over_best_peer_at_99": None if None in ratios else min(ratios),
        "target": TARGET,
        "threads": 1,
        "load": load,
        "sets": figures,
    }


if __name__ == "__main__":
    more = argparse.ArgumentParser(add_help=False, parents=[peers_option()])
    about = f"which vectors ({' '.join(SETS)})"
    more.add_argument("--sets", nargs="+", choices=SETS + QUICK_SETS, help=about)
    run(measure, more=more, is_whole=lambda options: set(options.given.sets or SETS) == set(SETS))
