"""The measured part of docs/data.md: what preparing a large log costs."""

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "data.md"


def preparation_section(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/preparation.json`."""
    machine = results["machine"]
    rows = zip(results["sizes"], results["rows"], strict=True)
    return "\n".join(
        [
            "| events | seconds | nanoseconds an event | peak, GB | bare sort: seconds | peak, GB | ratio |",
            "|---|---|---|---|---|---|---|",
            *(_line(label, row["events"], results) for label, row in rows),
            "",
            "A synthetic log in Parquet parts, and beside it what polars takes to sort it by user and time "
            f"and write it again, in turns; {machine['cores']} cores ({machine['date'][:10]}; "
            "`python -m benchmarks.preparation --json`, which says what the log is).",
            "",
        ]
    )


def _line(label: str, events: int, results: dict[str, Any]) -> str:
    ours, bare = (results[f"{side}nanoseconds_per_event_{label}"] for side in ("", "bare_"))
    cells = [
        f"{events:,}",
        f"{1e-9 * events * ours:.1f}",
        f"{ours:.0f}",
        f"{results[f'peak_gb_{label}']:.2f}",
        f"{1e-9 * events * bare:.1f}",
        f"{results[f'bare_peak_gb_{label}']:.2f}",
        f"{results[f'over_bare_{label}']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"
