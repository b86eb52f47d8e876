"""Engines against the indexes in the process, as a section of docs/engines.md."""

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "engines.md"
_NAMES = {
    "exact": "exact, in the process",
    "faiss": "FAISS (`--kind auto`), in the process",
    "redis": "Redis search",
    "milvus": "Milvus standalone",
}


def engines_section(engines: dict[str, Any]) -> str:
    """The figures of benchmarks/engines.py in Markdown."""
    machine, measured = engines["machine"], engines["engines"]
    shares = [f"{100 * one['share']:.2g} %" for one in measured["exact"]["cells"][1:]]
    lines = [
        f"{engines['items']:,} items, requests with 50 items of history for 10 recommendations, through the "
        f"service; service, engine and load on the same {machine['cores']} cores "
        f"(`python -m benchmarks.engines --json`, {machine['date'][:10]}). Requests/s by the share of the "
        "items that a filter allows, with the recall of the 10 best; * where the service scores the allowed "
        "items itself, as that is faster or no effort of the engine reaches the recall:",
        "",
        f"| index | all items | {' | '.join(shares)} | publish | bytes an item |",
        f"|---|{'---|' * (len(shares) + 3)}",
    ]
    for name, engine in measured.items():
        is_engine = "publish_s" in engine
        cells = [
            f"{one['requests_per_s']:,.0f} ({one['recall']:.4f}){' *' * (is_engine and not one['by_engine'])}"
            for one in engine["cells"]
        ]
        load = ["", ""]
        if is_engine:
            load = [f"{engine['publish_s']:.0f} s", f"{engine['resident_bytes_an_item']:,.0f}"]
        lines.append(f"| {' | '.join([_NAMES[name], *cells, *load])} |")
    lines += [
        "",
        f"Short answers: {engines['short_answers']}. Requests that failed while versions were switched under "
        f"load: {engines['failed_on_switch']} of {engines['asked_on_switch']:,}.",
        "",
    ]
    return "\n".join(lines)
