"""How fast every kind of index finds what exact search finds, beside hnswlib and usearch.

Real vectors of trained models, asked by real users: ML-1M and Gowalla, and a million drawn like Gowalla's.
Each side is asked with its fastest settings whose recall@10, measured on 2,000 questions, is at least .99:
Turret one query a call, as it is served; peers in single calls and all in one call, of which the faster
counts. One thread each, all sides in turns; seconds are those that a process has the processor, and what is
claimed is the ratio of medians. The same at 100. Models are trained, and what takes long is built, once: they
are kept below var/. So a first run takes half an hour or more (graphs of a million need most of it), and
later ones about ten minutes. `--quick` asks a few thousand invented vectors, of which nothing is claimed.
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


# Their documented defaults, with more links, and the faster ones at recall .99 on some set.
EVERYWHERE = _hnswlib(16, 200) | _usearch(16, 128, "f16")
SMALL = _hnswlib(12, 300) | _hnswlib(16, 500) | _hnswlib(32, 200)
SMALL |= _usearch(16, 128, "f32") | _usearch(16, 128, "i8") | _usearch(32, 128, "f16")
# A graph of more takes 10 to 20 minutes to build: of many items, the fastest peer of each library.
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
# A turn takes about so long.
TURN_SECONDS, LEAST, MOST = 0.2, 20, 2000


def race(one: IndexSet, options: Options, work: Path) -> dict[str, Any]:
    """All sides in turns on one set: their rates, and our best over the best peer, for each k."""
    kept = (KEPT / "built" / f"{one.name}-{one.key}").resolve()
    kept.mkdir(parents=True, exist_ok=True)
    ours = [exact_side(one, KS), *(side(one, each, KS, TARGET, kept) for each in kinds(one))]
    data = one.write(work / f"{one.name}.npz")
    with ExitStack() as running:
        graphs = EVERYWHERE if options.quick or len(one.items) >= MANY else EVERYWHERE | SMALL
        made = {
            name: partial(graph_peer, settings, options.given.peers, data, kept)
            for name, settings in graphs.items()
        }
        peers, missing = join(made, running)
        rates, told = turns(one, ours, peers, QUICK_ROUNDS if options.quick else ROUNDS)
    mine = {made.name: {"by_k": {str(k): told for k, (_, told) in made.chosen.items()}} for made in ours}
    sides = mine | told
    return {
        "items": len(one.items),
        "questions": len(one.queries),
        "missing": missing,
        **{f"at_{k}": compared(rates[k], sides, k) for k in KS},
    }


def turns(
    one: IndexSet, ours: list[Side], peers: dict[str, Peer], rounds: int
) -> tuple[dict[int, dict[str, list[float]]], dict[str, Any]]:
    """Queries/s by k, side and call, round by round; and what each peer says of its settings."""
    rates: dict[int, dict[str, list[float]]] = {k: {} for k in KS}
    told: dict[str, Any] = {}
    steps = {made.name: {k: _steps(made.run(one.queries[:LEAST], k)) for k in KS} for made in ours}
    asked = {name: _steps(peer.run(LEAST)[1]) for name, peer in peers.items()}
    for _ in range(rounds):
        for made in ours:
            for k in KS:
                queries = one.queries[np.arange(steps[made.name][k]) % len(one.queries)]
                rate = len(queries) / made.run(queries, k)
                rates[k].setdefault(made.name, []).append(rate)
        for name, peer in peers.items():
            answer = told[name] = peer.ask(asked[name])
            for k in KS:
                for call in ("single", "batch"):
                    rate = asked[name] / answer["by_k"][str(k)][call]
                    rates[k].setdefault(f"{name}, {call}", []).append(rate)
    return rates, told


def _steps(seconds: float) -> int:
    """How many queries fill a turn, if `LEAST` of them take so many seconds."""
    return int(np.clip(TURN_SECONDS * LEAST / max(seconds, 1e-9), LEAST, MOST))


def compared(rates: dict[str, list[float]], sides: dict[str, Any], k: int) -> dict[str, Any]:
    """Every call's figures at one k; our fastest that reaches the recall over the fastest peer that does."""
    calls = []
    for call, own in rates.items():
        name, _, way = call.rpartition(", ")
        setting = dict(sides[name or call]["by_k"][str(k)])
        calls.append(
            {
                "side": name or call,
                "call": way if name else "single",
                "is_peer": bool(name),
                "recall": setting.pop("recall"),
                "queries_per_second": median(own),
                "least": min(own),
                "greatest": max(own),
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
    """Every set, one after the other."""
    load = os.getloadavg()[0]
    if load > 1:
        print(f"The machine is busy (load {load:.1f}): graphs, which wait for memory, suffer most.")
    names = options.given.sets or (QUICK_SETS if options.quick else SETS)
    faiss.omp_set_num_threads(1)
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            threads = faiss.omp_get_max_threads()
            one = index_set(name, options.data)
            faiss.omp_set_num_threads(threads)
            found[name] = race(one, options, Path(folder))
    ratios = [each[f"at_{KS[0]}"]["ratio"] for each in found.values()]
    return {
        "qps_over_best_peer_at_99": None if None in ratios else min(ratios),
        "target": TARGET,
        "threads": 1,
        "load": load,
        "sets": found,
    }


if __name__ == "__main__":
    more = argparse.ArgumentParser(add_help=False, parents=[peers_option()])
    about = f"which vectors ({' '.join(SETS)})"
    more.add_argument("--sets", nargs="+", choices=SETS + QUICK_SETS, help=about)
    run(measure, more=more, is_whole=lambda options: set(options.given.sets or SETS) == set(SETS))
