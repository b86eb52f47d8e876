"""The section of docs/estimators.md on labelled pairs and given negatives."""

import statistics
from typing import Any


def labelled_section(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/labelled_pairs.json`."""
    rows = [
        f"| {row['name']} | {_cell(row['by_seed']['auc'], 3)} | {_cell(row['by_seed']['ndcg@10'], 4)} |"
        for row in results["rows"]
    ]
    return "\n".join(
        [
            "### Labelled pairs and given negatives",
            "",
            f"`{results['set']}` with ratings of 4 and above as label 1 and all others as 0: "
            f"{results['events']:,} events with {results['negatives']:,} negatives. Mean and standard "
            f"deviation of {len(results['seeds'])} seeds, {results['epochs']} epochs, on each user's last "
            f"event: the AUC of its negatives ({results['users']:,} users), by which the losses over given "
            "negatives and labelled pairs select their epoch, and NDCG@10 in the whole catalog, by which "
            "those over draws do (`python -m benchmarks.labelled_pairs --json`).",
            "",
            "| trained on | AUC | NDCG@10 |",
            "|---|---|---|",
            *rows,
        ]
    )


def _cell(values: list[float], digits: int) -> str:
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"
