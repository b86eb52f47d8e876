"""The section of docs/estimators.md on an unbiased 1 / Z."""

from typing import Any

from benchmarks.figures_text import bias, span


def reciprocal_section(results: dict[str, Any]) -> str:
    """The unbiased reciprocal."""
    lines = []
    for name, measured in results["sets"].items():
        lines += [
            f"| `{name}` | K | sampled softmax | w = 1 / Z | infinite | w = 1 / Z_0 | infinite | no mean |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in measured["reciprocal"]:
            infinite = row["infinite_variance"]
            cells = [row["proposal"], str(row["candidates"]), error(row["errors"]["sampled softmax"])]
            for label in ("w = 1 / Z", "w = 1 / Z_0"):
                cells += [error(row["errors"][label]), f"{infinite[label]:.0%}"]
            cells.append(f"{row['no_mean']:.1%}")
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(
        [
            "### An unbiased 1 / Z",
            "",
            "The gradient of log Z is dZ / Z, and 1 / Z can be estimated without bias by a geometric series "
            "under Russian roulette (Booth 2007, mentioned by Botev et al. 2017): w sum_n prod (1 - w Z_i) / "
            "p^n, with independent estimates Z_i and p = 2/3. Bias and variance of the gradient with the "
            "same expected number K of candidates (`?`: a bias lost in the noise); the share of queries, or "
            "of their draws of w, for which the variance is infinite as E(1 - w Z_1)^2 >= p; and of draws "
            "with w Z >= 2, where the series diverges. w = 1 / Z is not to be had; w = 1 / Z_0 takes one "
            "more estimate.",
            "",
            *lines,
            "Softmax regression over 1,000 classes, the problem of [the complementary "
            "sums](#complementary-sums-against-plain-importance-sampling): the log likelihood of a point "
            "after 30 epochs, the range over three seeds.",
            "",
            *trainings(results["regression"]),
            "",
            reciprocal_verdict(results),
        ]
    )


def trainings(rows: list[dict[str, Any]]) -> list[str]:
    """The table of the regression."""
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    lines = [f"| candidates | learning rate | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for size, rate in dict.fromkeys((row["candidates"], row["rate"]) for row in rows):
        ends = [row["ends"] for row in rows if (row["candidates"], row["rate"]) == (size, rate)]
        lines.append(f"| {size} | {rate:g} | {' | '.join(end(values) for values in ends)} |")
    return lines


def end(values: list[float | None]) -> str:
    """The range of the finite ends, and how many are none."""
    finite = [value for value in values if value is not None]
    lost = len(values) - len(finite)
    parts = [span(finite, ".3f")] if finite else []
    return ", ".join([*parts, *([f"diverges ({lost} of {len(values)})"] if lost else [])])


def reciprocal_verdict(results: dict[str, Any]) -> str:
    """The price of an unbiased gradient where its variance is finite."""
    rows = [row for measured in results["sets"].values() for row in measured["reciprocal"]]
    sure = [row["errors"] for row in rows if row["infinite_variance"]["w = 1 / Z"] == 0.0]
    ratios = [of["w = 1 / Z"]["variance"] / of["sampled softmax"]["variance"] for of in sure]
    if not ratios:
        return "The variance is infinite for some query in every row, so this is no loss to choose."
    return (
        "Even with the w that is not to be had, and where no query's variance is infinite, the variance is "
        f"{span(ratios, '.0f')} times that of the sampled softmax, whose bias more candidates remove as "
        "well. So the unbiased 1 / Z is measured here and is no loss to choose."
    )


def error(row: dict[str, Any]) -> str:
    """Bias and variance in one cell; the bias only if it is known to be below one, none beyond floats."""
    if row["variance"] is None or row["bias_high"] is None:
        return "overflow"
    known = bias(row) if row["bias_high"] < 1.0 else "?"
    return f"{known}, {row['variance']:.2g}"
