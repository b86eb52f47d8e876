"""What the service costs and whether it grows, as a section of docs/serving.md."""

from pathlib import Path
from typing import Any

from benchmarks.serving import OURS
from benchmarks.serving_process import BARE

PAGE = Path(__file__).parent.parent / "docs" / "serving.md"


def serving_section(serving: dict[str, Any], soak: dict[str, Any]) -> str:
    """Requests/s beside a bare route, activations under load, starts and memory, in Markdown."""
    machine, resident = serving["machine"], serving["resident_mb"]
    last = soak["points"][-1]
    return "\n".join(
        [
            "`POST /v1/recommend` with 50 items of history in the body and k = 10, beside a bare FastAPI",
            "route of the same process that reads the same body into a model and writes as many bytes. The",
            f"process keeps to one core, the generator of the load, with {serving['connections']} "
            "connections, to another (`python -m benchmarks.serving --json`):",
            "",
            "| items | requests/s | bare | share | p99 | times that of the bare route |",
            "|---|---|---|---|---|---|",
            *map(_row, serving["shops"].values()),
            "",
            f"With 100,000 items: {serving['activations']} activations under that load, "
            f"{serving['activation_s']:.2f} s each, {serving['activate_failed']} requests failed, p99 "
            f"{serving['activate_p99_over_steady']:.2f} times that between them. A cold start takes "
            f"{serving['cold_start_s']:.2f} s. The bundle has {serving['bundle_mb']:.0f} MB; one worker "
            f"holds {resident['1']:.0f} MB, each further one {serving['further_worker_mb']:.0f} MB more.",
            "",
            f"{last['requests']:,} mixed requests and {last['activations']} activations with two workers: "
            f"{soak['first_mb']:.0f} MB after the first tenth, {soak['last_mb']:.0f} MB at the end; "
            f"{soak['failed']} requests failed (`python -m benchmarks.soak --json`).",
            "",
            f"{machine['cores']} cores, {machine['date'][:10]}.",
            "",
        ]
    )


def _row(shop: dict[str, Any]) -> str:
    rates, tails = shop["rps"], shop["p99_s"]
    return (
        f"| {shop['items']:,} | {rates[OURS]:,.0f} | {rates[BARE]:,.0f} "
        f"| {shop['rps_ratio']:.2f} ({shop['rps_ratio_least']:.2f} to {shop['rps_ratio_greatest']:.2f}) "
        f"| {tails[OURS] * 1e3:.1f} ms | {shop['p99_ratio']:.2f} |"
    )
