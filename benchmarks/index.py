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
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np

from benchmarks.harness import Options, run
from benchmarks.index_sets import KEPT, IndexSet, Side, exact_side, index_set, kinds, side
from benchmarks.peers.contestants import THREADS
from benchmarks.peers.peer import Peer, environment, join, peers_option

REQUIREMENTS = "graph_search"
# A graph of a million takes minutes to build, once.
LIMIT = 1800.0


@dataclass(frozen=True)
class GraphPeer:
    """A library's script, and the settings of the graph it builds."""

    name: str
    script: str
    settings: Mapping[str, Any]

    def peer(
        self, environments: Path, one: IndexSet, data: Path, kept: Path, ks: list[int], target: float
    ) -> Peer:
        """Its process, not yet started. Raises PeerError where its environment can't be made."""
        python = environment(REQUIREMENTS, environments)
        built = kept / "-".join([self.script, *map(str, self.settings.values())])
        told = {**self.settings, "ks": ks, "target": target, "threads": THREADS, "built": str(built)}
        return Peer(f"{self.name}, {one.name}", self.script, python, data, told, LIMIT)


def _hnswlib(links: int, effort: int) -> GraphPeer:
    return GraphPeer(f"hnswlib M={links}", "hnswlib_search", {"M": links, "ef_construction": effort})


def _usearch(links: int, effort: int, dtype: str) -> GraphPeer:
    settings = {"connectivity": links, "expansion_add": effort, "dtype": dtype}
    return GraphPeer(f"usearch {dtype} M={links}", "usearch_search", settings)


# Their documented defaults, with more links, and the faster ones at recall .99 on some set.
EVERYWHERE = (_hnswlib(16, 200), _usearch(16, 128, "f16"))
SMALL = (
    _hnswlib(12, 300),
    _hnswlib(16, 500),
    _hnswlib(32, 200),
    _usearch(16, 128, "f32"),
    _usearch(16, 128, "i8"),
    _usearch(32, 128, "f16"),
)
# A graph of more takes 10 to 20 minutes to build.
MANY = 10**5


def graph_peers(count: int) -> tuple[GraphPeer, ...]:
    """The peers on a set of `count` items; of many, the fastest one of each library."""
    return EVERYWHERE + SMALL if count < MANY else EVERYWHERE


SETS, QUICK_SETS = ("ml-1m", "gowalla", "million"), ("invented",)
KS, TARGET = [10, 100], 0.99
ROUNDS, QUICK_ROUNDS = 7, 3
# A turn takes about so long.
TURN_SECONDS, LEAST, MOST = 0.2, 20, 2000
# Calls of a side: the seconds that its turn took for so many queries, for each k.
Seconds = dict[int, dict[str, float]]


def parser() -> argparse.ArgumentParser:
    """The options that only this script has."""
    made = argparse.ArgumentParser(add_help=False, parents=[peers_option()])
    made.add_argument(
        "--sets", nargs="+", choices=SETS + QUICK_SETS, help=f"which vectors ({' '.join(SETS)})"
    )
    return made


def race(one: IndexSet, options: Options, work: Path) -> dict[str, Any]:
    """All sides in turns on one set: their rates, and our best over the best peer, for each k."""
    kept = (KEPT / "built" / f"{one.name}-{one.key}").resolve()
    kept.mkdir(parents=True, exist_ok=True)
    ours = [exact_side(one, KS), *(side(one, each, KS, TARGET, kept) for each in kinds(one))]
    data = one.write(work / f"{one.name}.npz")
    with ExitStack() as running:
        graphs = EVERYWHERE if options.quick else graph_peers(len(one.items))
        made = {
            graph.name: partial(graph.peer, options.given.peers, one, data, kept, KS, TARGET)
            for graph in graphs
        }
        peers, missing = join(made, running)
        rates, told = turns(one, ours, peers, QUICK_ROUNDS if options.quick else ROUNDS)
    sides = {made.name: result_of(made) for made in ours} | told
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


def result_of(made: Side) -> dict[str, Any]:
    """What a side of ours is asked with, in the form in which peers say it."""
    return {
        "by_k": {str(k): {**settings, "recall": found} for k, (_, found, settings) in made.chosen.items()}
    }


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
        mine, other = rates[ours["side"]], rates[f"{theirs['side']}, {theirs['call']}"]
        by_round = [a / b for a, b in zip(mine, other, strict=True)]
        figures |= {
            "ratio": ours["queries_per_second"] / theirs["queries_per_second"],
            "ratio_least": min(by_round),
            "ratio_greatest": max(by_round),
            "ours": ours["side"],
            "against": f"{theirs['side']}, {theirs['call']}",
        }
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
    run(measure, more=parser(), is_whole=lambda options: set(options.given.sets or SETS) == set(SETS))
