"""The sections of docs/estimators.md on kernels: factor and power, sums, and the cost of steps."""

from typing import Any


def alphas(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/kernel_alpha.json`."""
    models = results["models"]
    heads = [f"`{model['set']}`, {_epochs(model['epochs'])}" for model in models]
    sizes = dict.fromkeys((row["sampler"], row["negatives"]) for row in models[0]["samplers"])
    lines = [f"| kernel | {' | '.join(heads)} |", "|---|" + "---|" * len(models)]
    for sampler, negatives in sizes:
        cells = [_accuracy(_row(model, sampler, negatives)) for model in models]
        name = sampler.replace("quadratic ", "quadratic, alpha = ")
        lines.append(f"| {name}, K = {negatives} | {' | '.join(cells)} |")
    lines += ["", f"| expected draws | {' | '.join(heads)} |", "|---|" + "---|" * len(models)]
    for nth, rejected in enumerate(models[0]["rejection"]):
        both = [model["rejection"][nth] for model in models]
        for key, name in (("uniform", "quadratic"), ("quadratic", "quartic")):
            cells = [f"{row[f'{key}_draws_a_{name}_draw']:.0f}" for row in both]
            lines.append(f"| {key} for one {name}, alpha = {rejected['alpha']:g} | {' | '.join(cells)} |")
    return "\n".join(
        [
            "### The factor and the power of the kernel",
            "",
            "The kernels alpha s^2 + 1 and s^4 + 1 of tempered scores s, on models after one epoch and after "
            "six: KL, ESS and bias as above (`python -m benchmarks.kernel_alpha --json`).",
            "",
            *lines,
            "",
            "From alpha = 10 on the factor hardly matters, so the default is the paper's 100. The quartic "
            "kernel is the better proposal: it takes several times as many quadratic candidates to reach its "
            "bias. Rejection from the quadratic kernel draws from it exactly: s^4 + 1 <= c (alpha s^2 + 1) "
            "with c = max(1, (M^4 + 1) / (alpha M^2 + 1)) where M, the greatest product of norms over the "
            "temperature, bounds |s|; the last table has the medians of c Z_2 / Z_4, the draws for one that "
            "is accepted. But a log count needs Z_4 as well, and its exact sum takes (D (D + 1) / 2)^2 "
            "products for each query and each renewed item vector, 4.3 million for vectors 64 wide: "
            "a thousand times as many as the quadratic kernel's Z. So `quartic` stays a reference.",
        ]
    )


def _epochs(number: int) -> str:
    return "1 epoch" if number == 1 else f"{number} epochs"


def _row(model: dict[str, Any], sampler: str, negatives: int) -> dict[str, Any]:
    wanted = (sampler, negatives)
    return next(row for row in model["samplers"] if (row["sampler"], row["negatives"]) == wanted)


def _accuracy(row: dict[str, Any]) -> str:
    bias = f"{row['bias']:.1%}" if row["bias_low"] > 0.0 else f"< {row['bias_high']:.1%}"
    return f"{row['kl']:.2f}, {row['effective_share']:.0%}, {bias}"


def steps(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/kernel_cost.json`."""
    setting, machine = results["setting"], results["machine"]
    lines = [
        "| items | full softmax, ms | with large pages | quadratic kernel, ms | of it the draw "
        "| ratio | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_step(row) for row in results["rows"]]
    return "\n".join(
        [
            "### Steps by catalog size",
            "",
            f"Whole training steps of {setting['batch']} examples, vectors {setting['width']} wide, "
            f"{setting['negatives']} candidates for each example, medians on {setting['threads']} threads "
            f"({machine['date'][:10]}; `python -m benchmarks.kernel_cost --json`). The full softmax needs "
            "matrices of B x N, which come faster where torch asks for large pages (with "
            "`THP_MEM_ALLOC_ENABLE=1` in the environment). Item vectors are random and of one length, so "
            "draws are made by rejection; where queries are peaked or lengths very uneven, they are "
            "made by blocks, which takes longer. Memory is in units of the item table's.",
            "",
            *lines,
            "",
        ]
    )


def _step(row: dict[str, Any]) -> str:
    full, large = (
        f"{row[side]['median_ms']:,.0f}" if side in row else "" for side in ("full", "full_large_pages")
    )
    ratio = f"{row['ratio_full']:.1f} ({row['ratio_full_large_pages']:.1f})" if "ratio_full" in row else ""
    share = row["sampler_bytes"] / row["table_bytes"]
    times = (row["sampled"]["median_ms"], row["sampled"]["draw_ms"])
    cells = [f"{row['items']:,}", full, large, *(f"{time:.1f}" for time in times), ratio, f"{share:.2f}"]
    return f"| {' | '.join(cells)} |"


def summed(results: dict[str, Any]) -> str:
    """The section in Markdown, from `results/complementary_sum.json`."""
    setting = results["configuration"]["figure2a"]
    ends = results["final_log_likelihood"]
    lines = [
        "| estimator | log likelihood of a point at the end | largest fall on the way |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {value:.4f} | {results['largest_fall'][name]:.2g} |" for name, value in ends.items()
    ]
    return "\n".join(
        [
            "### Complementary sums against plain importance sampling",
            "",
            f"Softmax regression over {setting['class_count']:,} classes of the sizes of figure 2 (a) of "
            "Botev et al. 2017, with a constant in the scores and Nesterov momentum "
            "(`python -m benchmarks.complementary_sum --json`): the complementary sum ends within "
            f"{results['likelihood_gap']:.1e} of exact training's likelihood of a point; of its logarithm, "
            f"which is near zero by then, within {results['log_likelihood_gap']:.1%}.",
            "",
            *lines,
            "",
            "![Log likelihood over steps](../benchmarks/results/complementary_sum_figure2a.png)",
        ]
    )
