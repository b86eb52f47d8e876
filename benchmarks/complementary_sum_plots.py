"""The plots of `benchmarks.complementary_sum`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.likelihood_estimates import Estimates
from benchmarks.softmax_regression import EXACT


def plot_figure_1(made: Sequence[Estimates], path: Path) -> None:
    """One panel an estimator: estimated over true probability, a colour for each K."""
    figure = Figure(figsize=(8.0, 3.8), layout="constrained")
    names = list(dict.fromkeys(one.estimator for one in made))
    for panel, name in zip(figure.subplots(1, len(names)), names, strict=True):
        for one in (one for one in made if one.estimator == name):
            panel.plot(one.true, one.estimated, ".", markersize=3, label=f"K = {one.candidates}")
        _finish_panel(
            panel, name, beyond_one=max(one.estimated.max() for one in made if one.estimator == name) > 1
        )
    figure.savefig(path, dpi=100)


def _finish_panel(panel: Axes, name: str, beyond_one: bool) -> None:
    right = np.linspace(0.002, 1.0, 500)
    panel.plot(right, right, color="black", linewidth=1)
    panel.set(title=name, xlabel="probability of the point's class", ylabel="its estimate")
    if beyond_one:
        panel.set_yscale("log")
        panel.set_ylabel("its estimate (logarithmic scale)")
    panel.legend(loc="upper left")


def plot_figure_2a(curves: Mapping[str, Sequence[float]], path: Path) -> None:
    """The mean negative log likelihood of the points after each epoch, a curve an estimator."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    panel = figure.subplots()
    for name, likelihoods in curves.items():
        style = {"color": "black", "linewidth": 2.5, "zorder": 0} if name == EXACT else {"linewidth": 1.2}
        panel.plot(range(1, len(likelihoods) + 1), [-value for value in likelihoods], label=name, **style)
    panel.set(yscale="log", xlabel="epoch", ylabel="mean negative log likelihood of a point")
    figure.legend(fontsize="small", loc="outside upper center", ncols=2)
    figure.savefig(path, dpi=100)
