"""The section of docs/estimators.md on losses over in-batch candidates."""

from collections.abc import Sequence
from statistics import mean, pstdev
from typing import Any

from benchmarks.in_batch_quality import METRICS, Row, spread
from turret.training.report.table import shown_bias


def in_batch_section(quality: dict[str, Any], report: dict[str, Any]) -> str:
    """The Markdown of `results/in_batch_quality.json`, and of the losses in `results/sampler_report.json`."""
    seeds = len({row["seed"] for row in quality["rows"]})
    return "\n".join(
        [
            "### Losses over in-batch candidates",
            "",
            *_errors({name: result["in_batch_losses"] for name, result in report["sets"].items()}),
            "The experiment `dssm`, which reads the items' features, with each loss in place of its own, in "
            f"batches of 2,048 with streaming frequencies: the last items of users, {seeds} seeds (`python "
            "-m benchmarks.in_batch_quality --json`):",
            "",
            *_quality(quality["rows"]),
            "",
            _wins(quality["rows"]),
        ]
    )


def _errors(sets: dict[str, Any]) -> list[str]:
    columns = [(name, row["batch_size"]) for name, losses in sets.items() for row in losses]
    columns = list(dict.fromkeys(columns))
    heads = " | ".join(f"`{name}`, B = {size:,}" for name, size in columns)
    lines = [
        "Bias and variance of the gradient in batches of training positives with known frequencies, of the "
        "models of the first tables (`python -m benchmarks.sampler_report --json`):",
        "",
        f"| bias, variance | {heads} |",
        "|---|" + "---|" * len(columns),
    ]
    for loss in dict.fromkeys(row["loss"] for losses in sets.values() for row in losses):
        cells = []
        for name, size in columns:
            (row,) = (one for one in sets[name] if (one["loss"], one["batch_size"]) == (loss, size))
            cells.append(f"{shown_bias(row)}, {row['variance']:.2g}")
        lines.append(f"| {loss} | {' | '.join(cells)} |")
    return [*lines, ""]


def _quality(rows: Sequence[Row]) -> list[str]:
    sets = list(dict.fromkeys(row["set"] for row in rows))
    heads = [f"`{name}`, {metric.upper()}" for name in sets for metric in METRICS]
    lines = [f"| loss | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for loss in dict.fromkeys(row["loss"] for row in rows):
        cells = (spread(rows, name, loss, metric) for name in sets for metric in METRICS)
        lines.append(f"| {loss} | {' | '.join(cells)} |")
    return lines


def _wins(rows: Sequence[Row]) -> str:
    """How often the corrected positive ranks better, of two trainings on the same set with the same seed."""
    by_loss = {(row["set"], row["seed"], row["loss"]): row["ndcg@10"] for row in rows}
    pairs = [
        (name, value - by_loss[name, seed, "sampled_softmax"])
        for (name, seed, loss), value in by_loss.items()
        if loss == "sampled_softmax_corrected"
    ]
    told = []
    for name in dict.fromkeys(name for name, _ in pairs):
        gains = [gain for set_name, gain in pairs if set_name == name]
        won = sum(gain > 0.0 for gain in gains)
        told.append(f"in {won} of {len(gains)} on `{name}`, by {mean(gains):+.4f} ± {pstdev(gains):.4f}")
    return (
        "Of two trainings with the same seed, `sampled_softmax_corrected` has a higher NDCG@10 than "
        f"`sampled_softmax` {'; '.join(told)}."
    )
