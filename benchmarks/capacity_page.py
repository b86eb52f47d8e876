"""The cost of a request through the proxy and of a change on all replicas, as a section of docs/deploy.md."""

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "deploy.md"


def capacity_section(proxy: dict[str, Any], replicas: dict[str, Any]) -> str:
    """Requests/s of a core, memory, and seconds until all replicas follow, in Markdown."""
    machine, direct, through, core = proxy["machine"], proxy["direct"], proxy["through"], proxy["core_rps"]
    return "\n".join(
        [
            f"{proxy['items']:,} items, 50 items of history, k = 10 (`python -m benchmarks.proxy --json`):",
            "",
            "| | processor time of a request | requests/s of one core |",
            "|---|---|---|",
            f"| replica, asked directly | {direct['replica_ms']:.2f} ms | {core['replica_direct']:,.0f} |",
            f"| replica behind the proxy | {through['replica_ms']:.2f} ms | {core['replica']:,.0f} |",
            f"| proxy | {through['proxy_ms']:.2f} ms | {core['proxy']:,.0f} |",
            "",
            f"A replica of one worker holds {proxy['replica_mb']:.0f} MB. Its bundle has "
            f"{proxy['bundle_mb']:.0f} MB, so one of a million items has about "
            f"{proxy['bundle_mb'] * 1e6 / proxy['items']:,.0f} MB.",
            "",
            "Seconds until every replica has followed (`python -m benchmarks.replicas --json`):",
            "",
            "| replicas | activation, median | change of an item, median | p95 |",
            "|---|---|---|---|",
            *map(_row, replicas["replicas"]),
            "",
            f"{machine['cores']} cores, {machine['date'][:10]}.",
            "",
        ]
    )


def _row(one: dict[str, Any]) -> str:
    change = one["item_change_ms"]
    return (
        f"| {one['replicas']} | {one['activation_ms']['median'] / 1000:.2f} | {change['median'] / 1000:.3f} "
        f"| {change['p95'] / 1000:.3f} |"
    )
