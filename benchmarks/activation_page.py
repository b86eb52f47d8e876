"""The measured part of docs/operations.md: how the comparison of an activation decides."""

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "operations.md"
_TITLES = {"ml-100k": "MovieLens 100K", "online-retail": "Online Retail"}


def activation_section(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/activation.json`."""
    logs, machine = results["logs"], results["machine"]
    return "\n".join(
        [
            "| log | users | version | margin | accepted | refused as worse | too few users |",
            "|---|---|---|---|---|---|---|",
            *(line for name, log in logs.items() for line in _lines(_TITLES[name], log)),
            "",
            f"Versions of {results['seeds']} seeds of the default experiment, each compared with the others, "
            "and a model of one epoch, compared with each of them, by NDCG@10 on the last event of each user "
            f"({machine['cores']} cores, {machine['date'][:10]}; `python -m benchmarks.activation --json`). "
            + " ".join(_widths(_TITLES[name], log) for name, log in logs.items()),
            "",
        ]
    )


def _lines(title: str, log: dict[str, Any]) -> list[str]:
    return [
        f"| {title} | {log['users']:,} | {version} | {float(margin):g} | {outcomes['accepted']} "
        f"| {outcomes['worse']} | {outcomes['unclear']} |"
        for kind, version in (("equal", "another seed"), ("one epoch", "one epoch"))
        for margin, outcomes in log[kind].items()
    ]


def _widths(title: str, log: dict[str, Any]) -> str:
    seeds, undertrained = log["ndcg@10"]["seeds"], log["ndcg@10"]["one epoch"]
    return (
        f"{title}: NDCG@10 is {min(seeds):.4f} to {max(seeds):.4f}, and {undertrained:.4f} after one epoch; "
        f"the interval of two seeds reaches {log['half_width']:.0%} of it to either side; a comparison takes "
        f"{log['seconds']:.1f} s."
    )
