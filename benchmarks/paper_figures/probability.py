"""Botev et al. 2017, figure 1: the probability of a class, estimated from 10 to 50 of 10,000 classes."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.likelihood_estimates import (
    BERNOULLI,
    CANDIDATES,
    COMPLEMENTARY,
    POINTS,
    STANDARD,
    Points,
    figure_1,
)
from benchmarks.paper_figures.contract import (
    BOTEV,
    Claim,
    Measurement,
    PaperFigure,
    Result,
    Results,
    Scale,
    markdown,
)
from benchmarks.plots import figure
from turret.training.randomness import stream

CLASSES, POINT_COUNT = 10_000, 200
CAPTIONED, SPREAD = "captioned", "captioned, y spread"
COMPLEMENTS = (COMPLEMENTARY, BERNOULLI)
# A tenth of the axis of probabilities: two errors that are nearer to each other look alike in the plot.
CLOSE = 0.1
# An error that is so many times another is called dramatically larger.
DRAMATIC = 10.0
SIGNIFICANT = 2.0


def runs(scale: Scale) -> dict[str, partial[Result]]:
    """A run for each way to choose the scores."""
    count = POINT_COUNT // 4 if scale.quick else POINT_COUNT
    return {kind: partial(estimate, kind, count) for kind in POINTS}


def estimate(kind: str, point_count: int) -> Result:
    """All estimates of one set of points."""
    points: Points = POINTS[kind](CLASSES, point_count, stream(0, "points", 0))
    true = points[2].exp()
    return {
        "points": point_count,
        "share_undecided": float(((true > 0.01) & (true < 0.99)).double().mean()),
        "estimates": [
            {
                **one.figures(),
                "true": [round(float(value), 5) for value in one.true],
                "log10_estimated": [round(float(value) / 2.302585093, 4) for value in one.log_estimated],
            }
            for one in figure_1(points, seed=0)
        ],
    }


def row(result: Result, estimator: str, candidates: int) -> Result:
    """The estimates of one estimator at one K."""
    (found,) = (
        one for one in result["estimates"] if (one["estimator"], one["candidates"]) == (estimator, candidates)
    )
    return dict(found)


def claims(results: Results) -> list[Claim]:
    """The statements of the caption and of section 4.1, where the points cover the axis of probabilities."""
    spread = results[SPREAD]
    rows = {name: [row(spread, name, size) for size in CANDIDATES] for name in (STANDARD, *COMPLEMENTS)}
    errors = {name: [one["root_mean_square_error"] for one in made] for name, made in rows.items()}
    low, high = ([_median_error(one, *part) for one in rows[STANDARD]] for part in ((0.0, 0.25), (0.75, 1.0)))
    complement = [_median_error(one, 0.0, 0.25) for one in rows[COMPLEMENTARY]]
    largest = max(one["largest_log10_estimate"] for one in rows[STANDARD])
    others = [errors[name] for name in COMPLEMENTS]
    return [
        Claim(
            "(a) Standard importance sampling gives wildly inaccurate estimates, the more so the closer the "
            "probability comes to 1 (caption).",
            f"{_by_size([one['share_above_one'] for one in rows[STANDARD]], '.0%')} of the estimates are "
            f"above one, the largest 10^{largest:.1f}. Median error of probabilities below .25: "
            f"{_by_size(low, '.3f')}; above .75: {_by_size(high, '.2f')}.",
            all(one["share_above_one"] > 0.25 for one in rows[STANDARD])
            and all(after > DRAMATIC * before for before, after in zip(low, high, strict=True)),
        ),
        Claim(
            "This is a significant issue for small probabilities already (caption).",
            f"Median error of probabilities below .25: {_by_size(low, '.3f')} beside "
            f"{_by_size(complement, '.3f')} by complementary sums.",
            all(one > SIGNIFICANT * other for one, other in zip(low, complement, strict=True)),
            f"Less than {SIGNIFICANT:g} times as large: the missing term is a small part of the sum there.",
        ),
        Claim(
            "(b), (c) With the correct class in the sum the error is dramatically smaller (section 4.1).",
            f"Root mean square errors: {_by_size(errors[STANDARD], '.3g')} without; "
            f"{_by_size(errors[COMPLEMENTARY], '.3f')} by importance, "
            f"{_by_size(errors[BERNOULLI], '.3f')} by Bernoulli draws; none of these is above one.",
            all(
                standard > DRAMATIC * max(complements)
                for standard, *complements in zip(errors[STANDARD], *others, strict=True)
            )
            and not any(one["share_above_one"] for name in COMPLEMENTS for one in rows[name]),
        ),
        Claim(
            "Both forms of complementary sums differ insignificantly here (section 4.1).",
            "Root mean square errors by Bernoulli draws less those by importance: "
            f"{_by_size([two - one for one, two in zip(*others, strict=True)], '.3f')}.",
            all(abs(two - one) <= CLOSE for one, two in zip(*others, strict=True)),
        ),
    ]


def _by_size(values: Sequence[float], form: str) -> str:
    return ", ".join(f"{value:{form}} (K = {size})" for value, size in zip(values, CANDIDATES, strict=True))


def _median_error(one: Result, least: float, most: float) -> float:
    """The median of |estimate - truth| over points whose probability is in that part of the axis."""
    errors = [
        abs(10.0**estimate - true)
        for true, estimate in zip(one["true"], one["log10_estimated"], strict=True)
        if least <= true < most
    ]
    return float(np.median(errors))


def setting(results: Results) -> str:
    """Sizes, and where the caption's points lie."""
    captioned = results[CAPTIONED]
    return (
        f"{CLASSES:,} classes, {captioned['points']} points, uniform proposal; u_i uniform on [0, 1] and "
        "u_1 = exp(C y) with y from a normal distribution, in logarithms, as u_1 has thousands of digits. "
        f"{captioned['share_undecided']:.1%} of these points have a probability between .01 and .99, and the "
        "others lie at 0 and 1, where complementary sums are exact; the article's figure covers the whole "
        "axis. The statements are therefore held against y chosen such that the probability is uniform. Our "
        "own variant has Gaussian scores. The Bernoulli draw expects K classes."
    )


def table(results: Results) -> list[str]:
    """A row for each kind of points, estimator and K."""
    rows = []
    for kind, result in results.items():
        for one in result["estimates"]:
            error = one["root_mean_square_error"]
            cells = (
                "beyond a float" if error is None else f"{error:.3g}",
                f"{one['median_log_error']:.3g}",
                f"10^{round(one['largest_log10_estimate'], 1) + 0.0:.1f}",
                f"{one['share_above_one']:.0%}",
            )
            rows.append([kind, one["estimator"], str(one["candidates"]), *cells])
    return markdown(
        ["points", "estimator", "K", "RMS error", "median error of log p", "largest", "above one"], rows
    )


def plot(results: Results, path: Path) -> None:
    """The panels, for the points that cover the axis."""
    estimates = results[SPREAD]["estimates"]
    names = list(dict.fromkeys(one["estimator"] for one in estimates))
    with figure(path, (4.0 * len(names), 3.8), len(names), share_y=False) as panels:
        for panel, name in zip(panels, names, strict=True):
            mine = [one for one in estimates if one["estimator"] == name]
            for one in mine:
                estimated = [10.0**value for value in one["log10_estimated"]]
                panel.plot(one["true"], estimated, ".", markersize=3, label=f"K = {one['candidates']}")
            # Many points, as the line is not straight on a logarithmic axis.
            right = [place / 200 for place in range(1, 201)]
            panel.plot(right, right, color="black", linewidth=1)
            panel.set(title=name, xlabel="probability of the class", ylabel="its estimate")
            if any(one["share_above_one"] for one in mine):
                panel.set(yscale="log", ylabel="its estimate (logarithmic scale)")
            panel.legend(loc="upper left", fontsize="x-small")


FIGURE = PaperFigure(
    name="botev_1",
    paper=BOTEV,
    title="Figure 1: estimates of a probability",
    readable="The points are printed as a plot, without numbers.",
    measurement=Measurement("probability", runs),
    setting=setting,
    claims=claims,
    table=table,
    plot=plot,
    plot_name="botev_1.png",
)
