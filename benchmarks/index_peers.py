"""Graph libraries as sides of the comparison, each in its own environment and process."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.index_sets import IndexSet
from benchmarks.peers.contestants import SCRIPTS, THREADS
from benchmarks.peers.environments import environment
from benchmarks.peers.peer import Peer

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
        """Its process, not yet started. Raises PeerMissingError where its environment can't be made."""
        python = environment(REQUIREMENTS, environments)
        built = kept / "-".join([self.script, *map(str, self.settings.values())])
        told = {**self.settings, "ks": ks, "target": target, "threads": THREADS, "built": str(built)}
        return Peer(f"{self.name}, {one.name}", SCRIPTS / f"{self.script}.py", python, data, told, LIMIT)


def _hnswlib(links: int, effort: int) -> GraphPeer:
    return GraphPeer(f"hnswlib M={links}", "hnswlib_search", {"M": links, "ef_construction": effort})


def _usearch(links: int, effort: int, dtype: str) -> GraphPeer:
    settings = {"connectivity": links, "expansion_add": effort, "dtype": dtype}
    return GraphPeer(f"usearch {dtype} M={links}", "usearch_search", settings)


# Their documented defaults, with more links, and what was faster at recall .99 on some set.
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
    """Who is compared with on a set of `count` items; of many, the one of each library that was fastest."""
    return EVERYWHERE + SMALL if count < MANY else EVERYWHERE
