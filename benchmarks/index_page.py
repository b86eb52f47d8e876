"""The figures of indexes beside graph libraries, as a section of docs/vector_index.md."""

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "vector_index.md"
SETS = {
    "ml-1m": "ML-1M, `youtubednn`",
    "gowalla": "Gowalla, `ids`",
    "million": "drawn like Gowalla's",
}


def index_section(figures: dict[str, Any]) -> str:
    """What each kind of index and each library answers at the recall, in Markdown."""
    machine, target = figures["machine"], figures["target"]
    return "\n".join(
        [
            f"The best 10 of real item vectors for real users, at a recall of {target:g} or more on 2,000",
            "questions, one thread: Turret one query a call, peers by the faster of single calls and one",
            "call for all; queries/s are medians over rounds (`python -m benchmarks.index --json`). Our",
            f"fastest kind answers at least {figures['qps_over_best_peer_at_99']:.2f} times as many as the",
            "best peer. Of a million items no `hnsw` was made: hnswlib has such a graph, and it takes long.",
            "",
            "![Recall against queries/s](../benchmarks/results/index.svg)",
            "",
            *(line for name, one in figures["sets"].items() for line in _table(name, one, target)),
            f"{machine['cores']} cores, {machine['date'][:10]}.",
            "",
        ]
    )


def fastest_calls(one: dict[str, Any]) -> list[dict[str, Any]]:
    """A set's sides for the best 10, the fastest first; of the two calls of a peer the faster."""
    fastest: dict[str, dict[str, Any]] = {}
    for call in sorted(one["at_10"]["sides"], key=lambda call: -call["queries_per_second"]):
        fastest.setdefault(call["side"], call)
    return list(fastest.values())


def _table(name: str, one: dict[str, Any], target: float) -> list[str]:
    at = one["at_10"]
    return [
        f"{SETS[name]}, {one['items']:,} items: {at['ours']} over {at['against']} {at['ratio']:.2f} "
        f"({at['ratio_least']:.2f} to {at['ratio_greatest']:.2f} by round); for the best 100 "
        f"{one['at_100']['ratio']:.2f}.",
        "",
        "| | recall@10 | queries/s |",
        "|---|---|---|",
        *(_row(call, target) for call in fastest_calls(one)),
        "",
    ]


def _row(call: dict[str, Any], target: float) -> str:
    name = call["side"] if call["is_peer"] else f"`{call['side']}`"
    missed = "" if call["recall"] >= target else ", missed"
    return f"| {name} | {call['recall']:.4f}{missed} | {call['queries_per_second']:,.0f} |"
