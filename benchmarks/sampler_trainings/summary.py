"""A summary of the trainings: the K that each sampler needs, the convergence of the full softmax, tables."""

import statistics
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from turret.training.seeds.summary import spread

Row = dict[str, Any]
CRITERIA = ("cross_entropy", "perplexity")
SHARE = 0.01
# The full softmax has converged where twice the examples change its cross entropy by less than this share.
CONVERGED = 0.005


def of_sampler(rows: Sequence[Row], sampler: str) -> list[Row]:
    """The rows of a sampler by falling K."""
    return sorted((row for row in rows if row["sampler"] == sampler), key=lambda row: -row["k"])


def full_of(rows: Sequence[Row], absolute: bool) -> Row:
    """The full softmax with this scoring, on as many examples as the samplers; of one set and seed."""
    found = [row for row in rows if row["sampler"] == "full" and row["absolute"] == absolute]
    lengths = {row["examples"] for row in rows if row["k"]}
    alike = [row for row in found if row["examples"] in lengths]
    return min(alike or found, key=lambda row: int(row["examples"]))


def excess(rows: Sequence[Row], row: Row, measure: str) -> float:
    """The share by which `row` is above the full softmax of its scoring, among `rows` of its set and seed."""
    return float(row[measure] / full_of(rows, row["absolute"])[measure] - 1.0)


def within(rows: Sequence[Row], sampler: str, measure: str, share: float = SHARE) -> int | None:
    """The least K from which on a sampler stays within `share` of the full softmax; of one set and seed."""
    least = None
    for row in of_sampler(rows, sampler):
        if excess(rows, row, measure) > share:
            break
        least = row["k"]
    return least


def summary(rows: Sequence[Row]) -> Row:
    """Every figure that is claimed, by set."""
    sets = {name: by_seed(rows, name) for name in dict.fromkeys(row["set"] for row in rows)}
    return {
        "full_softmax": {name: _full(seeds) for name, seeds in sets.items()},
        "convergence": {name: _convergence(seeds) for name, seeds in sets.items()},
        "k_within_1pct": {
            name: {measure: _needed(seeds, measure) for measure in CRITERIA} for name, seeds in sets.items()
        },
        "uniform_over_quadratic": {
            name: {measure: _ratios(seeds, measure) for measure in CRITERIA} for name, seeds in sets.items()
        },
    }


def by_seed(rows: Sequence[Row], name: str) -> dict[int, list[Row]]:
    """The rows of a set, by seed, for seeds with both full softmaxes."""
    mine = [row for row in rows if row["set"] == name]
    signed, absolute = (
        {row["seed"] for row in of_sampler(mine, "full") if row["absolute"] == kind} for kind in (False, True)
    )
    return {seed: [row for row in mine if row["seed"] == seed] for seed in sorted(signed & absolute)}


def samplers_of(seeds: dict[int, list[Row]]) -> list[str]:
    """The samplers of a set, in their order; the full softmax is none."""
    return list(dict.fromkeys(row["sampler"] for rows in seeds.values() for row in rows if row["k"]))


def _full(seeds: dict[int, list[Row]]) -> Row:
    return {
        name: {
            measure: spread([full_of(rows, absolute)[measure] for rows in seeds.values()])
            for measure in CRITERIA
        }
        for name, absolute in (("absolute", True), ("signed", False))
    }


def _convergence(seeds: dict[int, list[Row]]) -> Row:
    """The change of the held-out cross entropy by twice and by half the examples, where it was measured.

    `change` is that by twice the examples. The full softmax overfits where it is positive; `least` says
    whether neither length is better than the one of the samplers.
    """
    found = {}
    for name, absolute in (("absolute", True), ("signed", False)):
        for rows in seeds.values():
            once = full_of(rows, absolute)
            lengths = {
                row["examples"]: row["cross_entropy"] / once["cross_entropy"] - 1.0
                for row in of_sampler(rows, "full")
                if row["absolute"] == absolute
            }
            change, by_half = lengths.get(2 * once["examples"]), lengths.get(once["examples"] // 2)
            if change is not None:
                found[name] = {
                    "examples": once["examples"],
                    "cross_entropy": once["cross_entropy"],
                    "change": change,
                    "change_by_half": by_half,
                    "converged": abs(change) < CONVERGED,
                    "least": min(lengths.values()) >= 0.0,
                }
    return found


def _needed(seeds: dict[int, list[Row]], measure: str) -> Row:
    found: Row = {}
    for sampler in samplers_of(seeds):
        measured = {seed: rows for seed, rows in seeds.items() if of_sampler(rows, sampler)}
        sizes = {str(seed): within(rows, sampler, measure) for seed, rows in measured.items()}
        known = [size for size in sizes.values() if size is not None]
        found[sampler] = {"seeds": sizes, **(spread(known) if len(known) == len(sizes) else {})}
    return found


def _ratios(seeds: dict[int, list[Row]], measure: str) -> Row:
    """How many times as many candidates uniform needs, by seed.

    Where uniform never comes within 1 %, twice its largest K stands for its need; `at_least` has such seeds.
    """
    found: dict[str, float] = {}
    at_least = []
    for seed, rows in seeds.items():
        uniform, quadratic = (within(rows, name, measure) for name in ("uniform", "quadratic"))
        if quadratic is None or not of_sampler(rows, "uniform"):
            continue
        if uniform is None:
            at_least.append(seed)
        found[str(seed)] = (uniform or 2 * of_sampler(rows, "uniform")[0]["k"]) / quadratic
    return {"seeds": found, "at_least": at_least, **(spread(list(found.values())) if found else {})}


def table(rows: Sequence[Row], name: str) -> Table:
    """Cross entropy and perplexity of a set, means over seeds, a line a sampler."""
    seeds = by_seed(rows, name)
    mine = [row for of_seed in seeds.values() for row in of_seed]
    sizes = sorted({row["k"] for row in mine if row["k"]})
    full = _full(seeds)
    heads = (
        f"{kind} {full[kind]['cross_entropy']['mean']:.4f} ({full[kind]['perplexity']['mean']:,.0f})"
        for kind in ("absolute", "signed")
    )
    lines = Table(title=f"{name}: cross entropy (perplexity); full softmax {', '.join(heads)}")
    for heading in ("", *(f"K = {size}" for size in sizes)):
        lines.add_column(heading, justify="right")
    for sampler in samplers_of(seeds):
        cells = (_cell([row for row in of_sampler(mine, sampler) if row["k"] == size]) for size in sizes)
        lines.add_row(sampler, *cells)
    return lines


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    entropy, perplexity = (statistics.mean(row[measure] for row in rows) for measure in CRITERIA)
    return f"{entropy:.4f} ({perplexity:,.0f})"
