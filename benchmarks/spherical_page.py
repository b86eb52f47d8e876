"""The section of docs/estimators.md on the exact update of the spherical softmax."""

from typing import Any


def updates(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/spherical_update.json`."""
    machine = results["machine"]
    lines = ["| items | over all scores, ms | `FactoredItems`, ms | ratio |", "|---|---|---|---|"]
    lines += [
        f"| {row['items']:,} | {row['dense_ms']:,.0f} | {row['factored_ms']:.1f} | {row['ratio']:,.0f} |"
        for row in results["rows"]
    ]
    return "\n".join(
        [
            "### The exact update of the spherical softmax",
            "",
            f"Loss, gradient and step of {results['batch']} examples, vectors {results['dimension']} wide, "
            f"medians on {results['threads']} threads ({machine['date'][:10]}; `python -m "
            "benchmarks.spherical_update --json`).",
            "",
            *lines,
        ]
    )
