"""The section of docs/evaluation.md on the first week of four logs."""

from pathlib import Path
from typing import Any

from benchmarks.first_week_sets import SETS

PAGE = Path(__file__).parent.parent / "docs" / "evaluation.md"
_TITLES = {
    "popularity": "popularity",
    "recent_popularity": "recent",
    "co_occurrence": "co-occurrence",
    "item_knn": "item-kNN",
    "ease": "EASE",
    "als": "ALS",
}


def first_week_section(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/first_week.json`."""
    sets = results["sets"]
    names = [name for name in _TITLES if any(name in found["baselines"] for found in sets.values())]
    titles = " | ".join(_TITLES[name] for name in names)
    lines = [
        f"| log | picked | towers | {titles} | over the best | minutes |",
        "|---|---|---|" + "---|" * len(names) + "---|---|",
    ]
    for name, found in sets.items():
        best = found["best_baseline"]
        difference = found["differences"][best]
        cells = [
            f"`{name}`",
            found["picked"],
            f"**{found['towers']['mean']:.4f}**",
            *(_mean(found["baselines"].get(baseline)) for baseline in names),
            f"{found['auto_over_best_baseline']:.2f} times ({difference['mean']:+.4f}, "
            f"[{difference['low']:+.4f}, {difference['high']:+.4f}])",
            f"{sum(found['seconds'].values()) / 60:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    machine = results["machine"]
    protocols = "; ".join(f"`{name}`: {SETS[name].protocol}" for name in sets)
    return "\n".join(
        [
            "NDCG@10 on each user's last event, the whole catalog ranked, with nothing set but the columns "
            "(`python -m benchmarks.first_week --json`). The last columns hold the ratio to the best "
            "baseline with the paired difference and its 95 % interval, and the minutes of `data prepare`, "
            f"`train --experiment auto` and `evaluate` on {machine['cores']} cores ({machine['date'][:10]}). "
            f"{protocols}.",
            "",
            *lines,
            "",
        ]
    )


def _mean(found: dict[str, float] | None) -> str:
    return "" if found is None else f"{found['mean']:.4f}"
