"""The measured part of docs/estimators.md: which sampler comes how near the full softmax, at what cost."""

from pathlib import Path
from typing import Any

from benchmarks.frequency_page import frequency_section
from benchmarks.in_batch_page import in_batch_section
from benchmarks.kernel_page import alphas, steps, summed
from benchmarks.labelled_page import labelled_section
from benchmarks.ngram_page import ngram_section
from benchmarks.sampler_trainings.page import absolute, trained
from benchmarks.spherical_page import updates
from benchmarks.variants_page import variants_section

PAGE = Path(__file__).parent.parent / "docs" / "estimators.md"
SIZES = (4, 16, 64, 256)
COST_SIZE = 64


def estimators_section(
    report: dict[str, Any],
    bias: dict[str, Any],
    sums: dict[str, Any],
    cost: dict[str, Any],
    kernels: dict[str, Any],
    frequency: dict[str, Any],
    ngrams: dict[str, Any],
    spherical: dict[str, Any],
    labelled: dict[str, Any],
    in_batch_quality: dict[str, Any],
    signs: dict[str, Any],
    variants: dict[str, Any],
) -> str:
    """The section in Markdown, from the results that `benchmarks.readme` names for this page."""
    sections = (
        report_section(report),
        alphas(kernels),
        trained(bias),
        in_batch_section(in_batch_quality, report),
        absolute(signs),
        summed(sums),
        frequency_section(frequency),
        ngram_section(ngrams),
        steps(cost),
        updates(spherical),
        labelled_section(labelled),
        variants_section(variants),
    )
    return "\n\n".join(sections)


def report_section(results: dict[str, Any]) -> str:
    """The tables of `results/sampler_report.json`."""
    sets = [_one_set(name, report) for name, report in results["sets"].items()]
    return "\n\n".join([*sets, _closing(results)])


def _one_set(name: str, report: dict[str, Any]) -> str:
    settings, scoring = report["experiment"]["training"], report["scoring"]
    return "\n".join(
        [
            f"`{name}`: {report['items']:,} items, {report['dimension']} wide, {scoring['kind']} at "
            f"temperature {scoring['temperature']:g}, YouTubeDNN after {settings['epochs']} epochs; "
            f"{report['queries']} queries, up to {report['draws']} draws of each.",
            "",
            *_samplers(report),
            "",
            *_staleness(report),
            "",
            f"![Bias against cost on {name}](../benchmarks/results/sampler_report_{name}.svg)",
        ]
    )


def _samplers(report: dict[str, Any]) -> list[str]:
    full = report["full_softmax"]["milliseconds"]
    labels = dict.fromkeys(row["sampler"] for row in report["samplers"])
    columns = " | ".join(f"bias, K = {size}" for size in SIZES)
    lines = [
        f"| sampler | KL | ESS, K = {COST_SIZE} | {columns} | time, K = {COST_SIZE} |",
        "|---|---|---|" + "---|" * (len(SIZES) + 1),
    ]
    for label in labels:
        rows = {row["negatives"]: row for row in report["samplers"] if row["sampler"] == label}
        lines.append(_line(label, rows, full))
    return lines


def _line(label: str, rows: dict[int | None, dict[str, Any]], full: float) -> str:
    """One sampler at all sizes; where the batch decides the size, its one bias is named with it."""
    shown = rows.get(COST_SIZE) or next(iter(rows.values()))
    kl = "∞" if shown["kl"] is None else f"{shown['kl']:.2f}"
    if None in rows:
        biases = [f"{_bias(shown)} (K = {shown['candidates']:,.0f})", *("" for _ in SIZES[1:])]
    else:
        biases = [_bias(rows[size]) if size in rows else "" for size in SIZES]
    cells = [label, kl, f"{shown['effective_share']:.0%}", *biases, f"{shown['milliseconds'] / full:.2g}"]
    return f"| {' | '.join(cells)} |"


def _bias(row: dict[str, Any]) -> str:
    return f"{row['bias']:.1%}" if row["bias_low"] > 0.0 else f"< {row['bias_high']:.1%}"


def _staleness(report: dict[str, Any]) -> list[str]:
    rows = report["staleness"]
    ages = sorted({row["refresh_every"] for row in rows})
    heads = " | ".join(f"bias, `refresh_every = {age}` | ESS" for age in ages)
    lines = [f"| K = {rows[0]['negatives']} | {heads} |", "|---|" + "---|---|" * len(ages)]
    for label in dict.fromkeys(row["sampler"] for row in rows):
        by_age = {row["refresh_every"]: row for row in rows if row["sampler"] == label}
        cells = [f"{_bias(by_age[age])} | {by_age[age]['effective_share']:.0%}" for age in ages]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    lines += ["", f"({rows[0]['steps']} more steps moved the item vectors by {rows[0]['moved']:.0%}.)"]
    return lines


def _closing(results: dict[str, Any]) -> str:
    machine, first = results["machine"], next(iter(results["sets"].values()))
    return (
        f"Time is that of a step of {first['batch_size']:,} examples relative to the full softmax's, "
        f"without the optimiser, on {machine['cores']} cores ({machine['date'][:10]}; `python -m "
        "benchmarks.sampler_report --json`); a bias after `<` can't be told from none. `mixed` is `in_batch` "
        "and K uniform candidates, `mixed, mined` K uniform ones and 16 mined."
    )
