"""What the rows of `benchmarks.sampler_bias` come to: the K that each sampler needs, and a table a set."""

from typing import Any

from rich.table import Table

Row = dict[str, Any]


def samplers_of(rows: list[Row]) -> list[str]:
    """The samplers of `rows`, in their order; the full softmax is none."""
    return list(dict.fromkeys(row["sampler"] for row in rows if row["k"]))


def within(rows: list[Row], sampler: str, share: float = 0.01) -> int | None:
    """The least K from which on a sampler's cross-entropy stays within `share` of the full softmax's."""
    mine = sorted((row for row in rows if row["sampler"] == sampler), key=lambda row: -row["k"])
    least = None
    for row in mine:
        if row["cross_entropy"] > (1.0 + share) * full_of(rows, row["absolute"]):
            break
        least = row["k"]
    return least


def full_of(rows: list[Row], absolute: bool) -> float:
    """The cross-entropy that the full softmax reaches with this scoring."""
    found: float = next(
        row["cross_entropy"] for row in rows if row["sampler"] == "full" and row["absolute"] == absolute
    )
    return found


def summary(rows: list[Row]) -> Row:
    """For each set the K that each sampler needs, and how many times as many uniform needs as quadratic.

    Where uniform does not get there at any K, the ratio is a lower bound from the largest K.
    """
    names = list(dict.fromkeys(row["set"] for row in rows))
    needed = {
        name: {s: within([r for r in rows if r["set"] == name], s) for s in samplers_of(rows)}
        for name in names
    }
    largest = max(row["k"] for row in rows)
    return {
        "k_within_1pct": needed,
        "uniform_over_quadratic": {
            name: (k["uniform"] or 2 * largest) / k["quadratic"] if k["quadratic"] else None
            for name, k in needed.items()
        },
        "uniform_never_within": [name for name, k in needed.items() if k["uniform"] is None],
    }


def table(rows: list[Row], name: str) -> Table:
    """The cross-entropies of a set, a line a sampler."""
    mine = [row for row in rows if row["set"] == name]
    sizes = sorted({row["k"] for row in mine if row["k"]})
    found = {(row["sampler"], row["k"]): row["cross_entropy"] for row in mine}
    signed, absolute = full_of(mine, False), full_of(mine, True)
    lines = Table(
        title=f"{name}: full softmax cross-entropy (full softmax {absolute:.4f}; {signed:.4f} with its sign)"
    )
    for heading in ("", *(f"K = {size}" for size in sizes)):
        lines.add_column(heading, justify="right")
    for sampler in samplers_of(rows):
        values = (found.get((sampler, size)) for size in sizes)
        lines.add_row(sampler, *("" if value is None else f"{value:.4f}" for value in values))
    return lines
