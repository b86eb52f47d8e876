"""Botev et al. 2017, figures 2(a) and 2(b): a softmax regression by each estimator, and by rankings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.plots import curves as plot_curves
from benchmarks.research.paper_figure import (
    BERNOULLI,
    IMPORTANCE,
    STANDARD,
    Claim,
    Measurement,
    PaperFigure,
    Result,
    Results,
    Scale,
    by_setting,
    key_of,
)
from benchmarks.research.softmax_regression import (
    EXACT,
    Estimator,
    Problem,
    estimators,
    largest_fall,
    ranking_at,
    train,
)

# The article prints no rate. The exact gradient and all that approximate it have one, here the largest with
# which exact training and complementary sums converge; BlackOut and the ranking each have their largest.
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
RATES_OF_RANKINGS = (0.01, 0.03, 0.1)
MOMENTUM = 0.99
TUNED = ("BlackOut", "ranking")
DISPLAYED = (EXACT, IMPORTANCE, BERNOULLI, *TUNED)
LEFT_OUT = (STANDARD, "noise contrastive estimation", "negative sampling")
# The power of the frequency with which about 20 classes are in a Bernoulli draw.
BERNOULLI_ALPHA = 0.54
EPOCHS, QUICK_EPOCHS = 40, 6
# A training converges if its log likelihood of a point never falls further.
CONVERGED = 0.01
# Differences of the likelihood of a point (the geometric mean over points): of two curves that can't be told
# apart, of one method that is as good as another, and of one that is significantly worse.
VIRTUALLY, COMPETITIVE, SIGNIFICANT = 0.02, 0.01, 0.05
# A likelihood of a point, of 1,000 classes, with which a method works well.
WELL = 0.9
# In place of a log likelihood that isn't finite.
LOWEST = -1e6
CLASSES_OF_RANKING = 500
LOG_OTHERS = f"log(C - 1) = {math.log(CLASSES_OF_RANKING - 1):.2f}"
_DELTAS = {f"{delta:g}": delta for delta in (0.0, 2.0, 4.0, 8.0, 10.0, 12.0)}
_DELTAS[LOG_OTHERS] = math.log(CLASSES_OF_RANKING - 1)
DELTAS = dict(sorted(_DELTAS.items(), key=lambda item: item[1]))

Curves = Mapping[str, Sequence[float]]


def _problem(scale: Scale) -> Problem:
    return Problem(epochs=QUICK_EPOCHS if scale.quick else EPOCHS)


def runs_by_estimator(scale: Scale) -> dict[str, partial[Result]]:
    """A training for each rate and estimator."""
    problem = _problem(scale)
    wanted: dict[str, Estimator | None] = {EXACT: None, **estimators(problem.class_count)}
    wanted[BERNOULLI] = replace(estimators(problem.class_count)[BERNOULLI], alpha=BERNOULLI_ALPHA)
    return {
        key_of(f"{rate:g}", name): partial(_curve, problem, estimator, rate)
        for rate in RATES
        for name, estimator in wanted.items()
    }


def runs_by_delta(scale: Scale) -> dict[str, partial[Result]]:
    """A training for each rate and Delta, and the exact one."""
    problem = replace(_problem(scale), class_count=CLASSES_OF_RANKING)
    wanted = {EXACT: None} | {name: ranking_at(delta) for name, delta in DELTAS.items()}
    return {
        key_of(f"{rate:g}", name): partial(_curve, problem, estimator, rate)
        for rate in RATES_OF_RANKINGS
        for name, estimator in wanted.items()
    }


def _curve(problem: Problem, estimator: Estimator | None, rate: float) -> Result:
    curve = train(problem, estimator, 0, rate, MOMENTUM)
    return {"log_likelihood": [value if value > LOWEST else LOWEST for value in curve]}


def chosen(results: Results) -> tuple[dict[str, str], dict[str, list[float]]]:
    """The rate and the curve of each estimator; the smallest rate where none converges."""
    by_rate = by_setting(results, "log_likelihood")
    smallest, *_ = by_rate

    def largest(names: Sequence[str]) -> str:
        good = [rate for rate, made in by_rate.items() if all(_converges(made[name]) for name in names)]
        return [smallest, *good][-1]

    shared = largest((EXACT, IMPORTANCE, BERNOULLI))
    rates = {name: largest((name,)) if name in TUNED else shared for name in by_rate[smallest]}
    return rates, {name: by_rate[rate][name] for name, rate in rates.items()}


def _converges(curve: Sequence[float]) -> bool:
    return largest_fall(curve) <= CONVERGED


def claims_by_estimator(results: Results) -> list[Claim]:
    """The statements of section 6.1 and of the caption."""
    _, curves = chosen(results)
    ends = {name: math.exp(curve[-1]) for name, curve in curves.items()}
    pairs = zip(curves[IMPORTANCE], curves[BERNOULLI], strict=True)
    apart = max(abs(math.exp(one) - math.exp(other)) for one, other in pairs)
    best, worst = max(ends[name] for name in TUNED), min(ends[name] for name in DISPLAYED)
    return [
        Claim(
            "Both forms of complementary sums are virtually indistinguishable (caption).",
            f"Their likelihoods of a point are never more than {apart:.3f} apart.",
            apart <= VIRTUALLY,
            f"More than {VIRTUALLY:g} apart after some epoch.",
        ),
        Claim(
            "All displayed methods work well on this simple problem (section 6.1).",
            f"Likelihood of a point at the end: {_ends(ends, DISPLAYED)}.",
            worst >= WELL,
            f"One ends below {WELL:g}.",
        ),
        Claim(
            "The approach is competitive with those that are not based on the likelihood (abstract).",
            f"Complementary sums by importance end at {ends[IMPORTANCE]:.3f}, the better of BlackOut and the "
            f"ranking at {best:.3f}.",
            ends[IMPORTANCE] >= best - COMPETITIVE,
            f"It ends more than {COMPETITIVE:g} below.",
        ),
        Claim(
            "Standard importance sampling, noise contrastive estimation with z = 1 and negative sampling are "
            "significantly worse than the others (section 6.1).",
            f"Likelihood of a point at the end: {_ends(ends, LEFT_OUT)}; the worst other {worst:.3f}.",
            all(ends[name] < worst - SIGNIFICANT for name in LEFT_OUT),
            "Not so of "
            + " and ".join(name for name in LEFT_OUT if ends[name] >= worst - SIGNIFICANT)
            + f", which ends at most {SIGNIFICANT:g} below.",
        ),
    ]


def _ends(ends: Mapping[str, float], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {ends[name]:.3f}" for name in names)


def claims_by_delta(results: Results) -> list[Claim]:
    """That the threshold matters, and that log(C - 1) is a reasonable one, with each rate."""
    ends = {
        rate: {name: math.exp(made[name][-1]) for name in DELTAS}
        for rate, made in by_setting(results, "log_likelihood").items()
    }
    best = {rate: max(made, key=lambda name: made[name]) for rate, made in ends.items()}
    worst = {rate: min(made, key=lambda name: made[name]) for rate, made in ends.items()}
    return [
        Claim(
            "Delta can significantly affect how well the ranking works (section 6.1).",
            "Likelihood of a point at the end: "
            + "; ".join(
                f"{made[worst[rate]]:.3f} (Delta = {worst[rate]}) to {made[best[rate]]:.3f} "
                f"(Delta = {best[rate]}) with the rate {rate}"
                for rate, made in ends.items()
            )
            + ".",
            all(made[best[rate]] - made[worst[rate]] > SIGNIFICANT for rate, made in ends.items()),
            f"With some rate the difference is at most {SIGNIFICANT:g}.",
        ),
        Claim(
            "Delta = log(C - 1) is a reasonable setting (section 6.1).",
            "It ends at "
            + ", ".join(f"{made[LOG_OTHERS]:.3f} (rate {rate})" for rate, made in ends.items())
            + ".",
            all(made[LOG_OTHERS] >= made[best[rate]] - SIGNIFICANT for rate, made in ends.items()),
            f"With some rate it ends more than {SIGNIFICANT:g} below the best.",
        ),
    ]


def plot_by_estimator(results: Results, path: Path) -> None:
    """The displayed methods, and those that the paper leaves out."""
    _, curves = chosen(results)
    groups = {"displayed in the paper": DISPLAYED, "left out there": (EXACT, *LEFT_OUT)}
    _plot({title: {name: curves[name] for name in names} for title, names in groups.items()}, path)


def plot_by_delta(results: Results, path: Path) -> None:
    """A panel a rate, a curve a Delta."""
    _plot({f"rate {rate}": made for rate, made in by_setting(results, "log_likelihood").items()}, path)


def _plot(panels: Mapping[str, Curves], path: Path) -> None:
    negative = {
        title: {name: [-value for value in curve] for name, curve in curves.items()}
        for title, curves in panels.items()
    }
    plot_curves(negative, ("epoch", "negative log likelihood of a point"), path, scales=("linear", "log"))


BY_ESTIMATOR = PaperFigure(
    "botev_2a", Measurement("regression", runs_by_estimator), claims_by_estimator, plot_by_estimator
)
BY_DELTA = PaperFigure("botev_2b", Measurement("ranking", runs_by_delta), claims_by_delta, plot_by_delta)
