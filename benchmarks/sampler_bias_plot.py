"""The plot of `benchmarks.sampler_bias`: cross-entropy over K, a curve a sampler."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw one panel a set and write it to `path`; dashed lines are the full softmax and 1 % above it."""
    names = list(dict.fromkeys(row["set"] for row in rows))
    figure, panels = pyplot.subplots(1, len(names), figsize=(6 * len(names), 4.5), squeeze=False)
    for panel, name in zip(panels[0], names, strict=True):
        mine = [row for row in rows if row["set"] == name]
        full = {row["absolute"]: row["cross_entropy"] for row in mine if row["sampler"] == "full"}
        for sampler in dict.fromkeys(row["sampler"] for row in mine if row["k"]):
            points = [
                (r["k"], r["cross_entropy"] / full[r["absolute"]]) for r in mine if r["sampler"] == sampler
            ]
            panel.plot(*zip(*sorted(points), strict=True), marker="o", label=sampler.replace("_", " "))
        for level, style in ((1.0, "-"), (1.01, "--")):
            panel.axhline(level, color="black", linewidth=0.8, linestyle=style)
        panel.set(xscale="log", xlabel="K, candidates an example", title=name, ylim=(0.98, 1.2))
        panel.set_xticks(
            sorted({r["k"] for r in mine if r["k"]}), labels=sorted({r["k"] for r in mine if r["k"]})
        )
        panel.minorticks_off()
        panel.set_ylabel("cross-entropy / that of the full softmax")
    panels[0][-1].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
