"""The sections of docs/estimators.md on partial samples, shared draws and an unbiased 1 / Z."""

from typing import Any

from benchmarks.figures_text import bias, span
from benchmarks.reciprocal_page import reciprocal_section


def variants_section(results: dict[str, Any]) -> str:
    """The sections in Markdown, from `results/estimate_variants.json`."""
    parts = (partial_section(results), shared_section(results), reciprocal_section(results))
    return "\n\n".join(parts)


def partial_section(results: dict[str, Any]) -> str:
    """Several samples from one walk."""
    lines = []
    for name, measured in results["sets"].items():
        lines += [
            f"| `{name}`, K = 64 | walks | ESS | bias | variance | draw, ms | step, ms |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in measured["partial"]:
            cells = (f"{row['effective_share']:.0%}", bias(row), f"{row['variance']:.2f}")
            times = (f"{row['draw_ms']:.1f}", f"{row['step_ms']:.0f}")
            lines.append(f"| {row['sampler']} | {row['walks']} | {' | '.join((*cells, *times))} |")
        lines.append("")
    return "\n".join(
        [
            "### Several samples from one walk",
            "",
            "Blanc & Rendle 2018, section 3.2.2, propose to take more than one item of the block in which a "
            "walk of the kernel sampler ends, and do not measure it. Items of the block by their kernels, or "
            "all items of a leaf of D / 2, whose count is m q(leaf) after m walks. Times of the processor, "
            "for 1,024 examples (`python -m benchmarks.estimate_variants --json`, as the next two tables).",
            "",
            *lines,
            partial_verdict(results),
        ]
    )


def partial_verdict(results: dict[str, Any]) -> str:
    """The range over the sets of the savings and costs of one walk, relative to the shipped sampler."""
    saved, lost = [], []
    for measured in results["sets"].values():
        shipped, *others = measured["partial"]
        fastest = min(others, key=lambda row: row["draw_ms"])
        saved.append((shipped["draw_ms"] - fastest["draw_ms"]) / shipped["step_ms"])
        lost.append(fastest["variance"] / shipped["variance"])
    return (
        f"Beside the shipped sampler, the fastest of these draws saves at most {max(0.0, *saved):.0%} of a "
        f"step, and its variance is {span(lost, '.1f')} times as large. Most queries are drawn by rejection, "
        "without a walk, and a block is read once for all draws of an example, so little is left to save: "
        "there is no setting for it."
    )


def shared_section(results: dict[str, Any]) -> str:
    """One draw for the batch."""
    lines = []
    for name, measured in with_shared(results).items():
        lines += [
            f"| `{name}` | S | bias | variance | variance of the batch | step, ms |",
            "|---|---|---|---|---|---|",
        ]
        for row in measured["shared"]:
            batch = (f"{row['batch_variance']:.2f}", f"{row['step_ms']:.0f}")
            cells = (str(row["size"]), bias(row), f"{row['variance']:.3f}", *batch)
            lines.append(f"| {row['draw']} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(
        [
            "### Draws of the batch and of each example",
            "",
            "`unigram` with alpha = 1, by whom a draw is for. Masked positives are the default; `S + 32` is "
            "`exclude_positive = true` with `spare = 32`, draws of each example are `exclude_positive = true`"
            " alone. Bias and variance are of one example's gradient by its user vector; the last variance "
            "is of the gradient of a batch of 1,024 by the item vectors, to which examples that share a draw "
            "bring the same noise.",
            "",
            *lines,
            shared_verdict(results),
        ]
    )


def with_shared(results: dict[str, Any]) -> dict[str, Any]:
    """The sets on which shared draws were measured."""
    return {name: measured for name, measured in results["sets"].items() if "shared" in measured}


def shared_verdict(results: dict[str, Any]) -> str:
    """The ratios at the larger S."""
    rows = [measured["shared"][-4:] for measured in with_shared(results).values()]
    spared = [spare["variance"] / masked["variance"] for masked, spare, *_ in rows]
    own, half = (compared([(row[0], row[at]) for row in rows]) for at in (2, 3))
    return (
        "Leaving the positive out of a shared draw makes the variance of an example's gradient "
        f"{span(spared, '.2f')} times that of masking it, so `spare` is for repeating the paper. Draws of "
        f"each example, of the same S, have {own}; half of each, whose counts add, {half}. A shared draw is "
        "the cheaper way to a small bias, draws of each example are the cheaper way to a small variance."
    )


def compared(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """The variance of a batch and the time of a step of second rows beside the first ones."""
    variance = [other["batch_variance"] / one["batch_variance"] for one, other in pairs]
    times = [other["step_ms"] / one["step_ms"] for one, other in pairs]
    return f"{span(variance, '.3f')} of the batch's variance at {span(times, '.1f')} times the time of a step"
