"""The section of docs/results.md on the part that gowalla's settings were chosen on."""

from collections.abc import Sequence
from statistics import mean, pstdev
from typing import Any

from benchmarks.quality_sets import SETS
from benchmarks.validation_parts import EARLIER, SHIPPED, of

METRICS = SETS["gowalla"].metrics


def validation_section(results: dict[str, Any], refitted: Sequence[dict[str, Any]]) -> str:
    """The Markdown of `results/validation_parts.json`; `refitted` are kept seeds of the shipped recipe."""
    rows = results["rows"]
    found = [
        ("test", SHIPPED, "test-selected: the epoch is the best on the test", of(rows, SHIPPED, "test")),
        ("test", SHIPPED, "all training items, all epochs", list(refitted) or of(rows, SHIPPED, "none")),
        ("test", EARLIER, "all training items, all epochs", of(rows, EARLIER, "none")),
        *(
            (part, recipe, "the epoch is the best on that tenth", of(rows, recipe, part))
            for part in ("last tenth", "random tenth")
            for recipe in (SHIPPED, EARLIER)
        ),
    ]
    lines = [
        f"| {part} | {recipe} | {how} | {_metrics(chosen)} | {len(chosen)} |"
        for part, recipe, how, chosen in found
        if chosen
    ]
    date = results["machine"]["date"][:10]
    heads = " | ".join(name.upper() for name in METRICS)
    return "\n".join(
        [
            "The recipe that was found on a random tenth of each user's training items, our first validation "
            "part, beside the shipped one, found on the last tenth, by the part that is asked for "
            f"(`python -m benchmarks.validation_parts --json`, {date}). Had the random tenth alone decided, "
            "the figures on the test would be those of the recipe found on it. Test-selected figures, as "
            "other publications have them, are named so.",
            "",
            f"| part asked for | recipe | trained | {heads} | seeds |",
            "|---|---|---|" + "---|" * (len(METRICS) + 1),
            *lines,
            "",
        ]
    )


def _metrics(rows: Sequence[dict[str, Any]]) -> str:
    """The mean of each metric, with its standard deviation where there are several seeds."""
    columns = [[row[name] for row in rows] for name in METRICS]
    spreads = [f" ± {pstdev(column):.4f}" if len(rows) > 1 else "" for column in columns]
    return " | ".join(f"{mean(column):.4f}{spread}" for column, spread in zip(columns, spreads, strict=True))
