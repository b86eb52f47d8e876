"""The sections of docs/estimators.md on whole trainings and on the absolute softmax."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.sampler_trainings.summary import CONVERGED, CRITERIA, Row, by_seed, of_sampler, samplers_of

_TITLES = {"cross_entropy": "cross entropy", "perplexity": "perplexity"}


def trained(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/sampler_bias.json`."""
    sets = list(results["k_within_1pct"])
    return "\n".join(
        [
            "### Whole trainings",
            "",
            "A small model trained to the end of one schedule with every sampler, and the *full softmax* "
            "cross entropy and perplexity of held-out targets (`python -m benchmarks.sampler_bias --json`; "
            "`--help` describes the model). Each seed is of the model, the order and the draws. ± is the "
            "standard deviation over seeds; a figure without it is of one seed. Sets of the script that are "
            "not shown have not been run.",
            "",
            *_full(results),
            "",
            "The least K from which on a sampler stays within 1 % of the full softmax of its own seed, seed "
            "by seed; `-`: at no K that was measured. 1 % of the perplexity is 0.01 nats, 1 % of the cross "
            "entropy many times that.",
            "",
            *_needed(results),
            "",
            *(line for name in sets for line in _reached(results["rows"], name)),
            "![Perplexity over K](../benchmarks/results/sampler_bias.png)",
        ]
    )


def _full(results: dict[str, Any]) -> list[str]:
    lines = [
        "| full softmax | cross entropy | perplexity | examples | cross entropy by twice as many | by half |",
        "|---|---|---|---|---|---|",
    ]
    for name, kinds in results["full_softmax"].items():
        for kind, found in kinds.items():
            converged = results["convergence"][name].get(kind)
            cells = [f"`{name}`, {kind}", *(_spread(found[measure]) for measure in CRITERIA)]
            if converged:
                changes = (_change(converged[which]) for which in ("change", "change_by_half"))
                cells += [f"{converged['examples']:,}", *changes]
            lines.append(f"| {' | '.join([*cells, *[''] * (6 - len(cells))])} |")
    return [*lines, *_overfitting(results["convergence"])]


def _change(change: float | None) -> str:
    return "" if change is None else f"{change:+.2%}"


def _overfitting(convergence: dict[str, Any]) -> list[str]:
    """A sentence on the sets that twice the examples make worse."""
    names = [name for name, kinds in convergence.items() if _overfits(kinds)]
    if not names:
        return []
    sets = " and ".join(f"`{name}`" for name in names)
    return ["", f"On {sets} the full softmax does not converge but overfits: twice the examples are worse."]


def _overfits(kinds: dict[str, Any]) -> bool:
    return any(found["change"] > CONVERGED for found in kinds.values())


def _spread(found: dict[str, Any]) -> str:
    digits = 3 if found["mean"] < 100 else 0
    text = f"{found['mean']:,.{digits}f}"
    return text if found["deviation"] is None else f"{text} ± {found['deviation']:.{digits}f}"


def _needed(results: dict[str, Any]) -> list[str]:
    needed = results["k_within_1pct"]
    columns = [(name, measure) for name in needed for measure in CRITERIA]
    heads = " | ".join(f"`{name}`, {_TITLES[measure]}" for name, measure in columns)
    lines = [f"| | {heads} |", "|---|" + "---|" * len(columns)]
    samplers = dict.fromkeys(sampler for of_set in needed.values() for sampler in of_set["perplexity"])
    for sampler in samplers:
        cells = (_sizes(needed[name][measure].get(sampler)) for name, measure in columns)
        lines.append(f"| {_title(sampler)} | {' | '.join(cells)} |")
    ratios = (_ratio(results["uniform_over_quadratic"][name][measure]) for name, measure in columns)
    lines.append(f"| uniform over quadratic | {' | '.join(ratios)} |")
    return lines


def _title(sampler: str) -> str:
    return sampler.replace("_signed", ", signed")


def _sizes(needed: dict[str, Any] | None) -> str:
    if needed is None:
        return ""
    return ", ".join("-" if size is None else str(size) for size in needed["seeds"].values())


def _ratio(found: dict[str, Any]) -> str:
    if "mean" not in found:
        return "unknown"
    spread = "" if found["deviation"] is None else f" ± {found['deviation']:.1f}"
    return f"{'at least ' if found['at_least'] else ''}{found['mean']:.3g}{spread} times"


def _reached(rows: Sequence[Row], name: str) -> list[str]:
    """Cross entropy and perplexity at every K, means over the seeds that there are."""
    mine = [row for of_seed in by_seed(rows, name).values() for row in of_seed]
    sizes = sorted({row["k"] for row in mine if row["k"]})
    heads = " | ".join(f"K = {size}" for size in sizes)
    lines = [f"| `{name}` | {heads} |", "|---|" + "---|" * len(sizes)]
    for sampler in samplers_of(by_seed(rows, name)):
        cells = (_mean([row for row in of_sampler(mine, sampler) if row["k"] == size]) for size in sizes)
        lines.append(f"| {_title(sampler)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _mean(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    entropy, perplexity = (statistics.mean(row[measure] for row in rows) for measure in CRITERIA)
    return f"{entropy:.3f} ({perplexity:,.0f})"


def absolute(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/absolute_softmax.json`."""
    pairs: dict[str, dict[bool, Row]] = {}
    for row in results["rows"]:
        changes = [
            name.replace("_", " ") for name, value in row.items() if value is True and name != "absolute"
        ]
        pairs.setdefault(", ".join(changes) or "as above", {})[row["absolute"]] = row
    lines = [
        "| model | signed | absolute | difference | targets below zero | items below zero |",
        "|---|---|---|---|---|---|",
    ]
    for name, both in pairs.items():
        signed, unsigned = both[False], both[True]
        cells = [
            name,
            *(f"{row['cross_entropy']:.3f} ({row['perplexity']:,.0f})" for row in (signed, unsigned)),
        ]
        cells.append(f"{unsigned['cross_entropy'] - signed['cross_entropy']:+.3f}")
        cells += [f"{unsigned[share]:.0%}" for share in ("negative_targets", "negative_items")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(
        [
            "### The absolute softmax beside the signed one",
            "",
            "By a footnote of Blanc & Rendle 2018 the absolute softmax loses nothing. In the model of the "
            "whole trainings it ends above the signed one. Single changes of that model show the reason "
            f"(`{results['set']}`, full softmax, {results['examples']:,} examples; cross entropy and "
            "perplexity of held-out targets; `python -m benchmarks.absolute_softmax --json`; `--help` lists "
            "the changes). Shares are of held-out targets, and of items by their mean over users, whose "
            "score is negative before its absolute value is taken. There is one seed, so small differences "
            "may be chance.",
            "",
            *lines,
            "",
            "The signs are the reason, not the range of the scores. The start gives about half of the items "
            "a negative side by chance, and they stay there. The absolute score holds w and -w for alike, "
            "but a history is a mean of the same vectors, in which they cancel. With a table of its own for "
            "the history most of the difference is gone, and with a start at positive scores as well all of "
            "it: the absolute model then ends near the signed one without changes. More examples, more "
            "dimensions or a bias close little of it.",
        ]
    )
