"""Botev et al. 2017, figures 2(a) and 2(b): a softmax regression by each estimator, and by rankings."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.complementary_sum import largest_fall
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
from benchmarks.paper_figures.estimator_curves import (
    ALTERNATIVES,
    IMPORTANCE,
    by_setting,
    falls,
    key_of,
    only_standard_is_unstable,
    standard_to_complementary,
)
from benchmarks.paper_figures.plots import plot_curves
from benchmarks.softmax_regression import (
    EXACT,
    OPTIMISER,
    Estimator,
    Optimiser,
    Problem,
    estimators,
    ranking_at,
    train,
)

OPTIMISERS = {
    "ours": OPTIMISER,
    "slower, decaying": Optimiser(0.1, 0.9, 0.96),
    "momentum .99": Optimiser(0.02, 0.99, 0.96),
}
EPOCHS, QUICK_EPOCHS = 40, 6
# How far below the best alternative's likelihood of a point one is still called competitive.
COMPETITIVE = 0.01
# By how much a log likelihood has to fall from its highest point to be called unstable.
UNSTABLE = 0.01
CLASSES = Problem.class_count
DELTAS = {f"{delta:g}": delta for delta in (0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0)}
LOG_OTHERS = f"log(C - 1) = {math.log(CLASSES - 1):.2f}"
DELTAS[LOG_OTHERS] = math.log(CLASSES - 1)
DELTAS = dict(sorted(DELTAS.items(), key=lambda item: item[1]))
NOT_READ = (
    "The paper's text beyond its first section could not be read, so its optimiser, rates and plotted values "
    "are not known here."
)


def _problem(scale: Scale) -> Problem:
    return Problem(epochs=QUICK_EPOCHS if scale.quick else EPOCHS)


def runs_by_estimator(scale: Scale) -> dict[str, partial[Result]]:
    """A training for each optimiser and estimator."""
    problem = _problem(scale)
    wanted: dict[str, Estimator | None] = {EXACT: None, **estimators(problem.class_count)}
    return {
        key_of(settings, name): partial(_curve, problem, estimator, OPTIMISERS[settings])
        for settings in OPTIMISERS
        for name, estimator in wanted.items()
    }


def runs_by_delta(scale: Scale) -> dict[str, partial[Result]]:
    """A training for each Delta, and the exact one."""
    problem = _problem(scale)
    wanted = {EXACT: None} | {name: ranking_at(delta) for name, delta in DELTAS.items()}
    return {name: partial(_curve, problem, estimator, OPTIMISER) for name, estimator in wanted.items()}


def _curve(problem: Problem, estimator: Estimator | None, settings: Optimiser) -> Result:
    return {"log_likelihood": train(problem, estimator, 0, settings)}


def claims_by_estimator(results: Results) -> list[Claim]:
    """Complementary sums are competitive and stable under each optimiser."""
    curves = by_setting(results, "log_likelihood")
    likelihood = {
        settings: {name: math.exp(values[-1]) for name, values in made.items()}
        for settings, made in curves.items()
    }
    fallen = falls(curves)
    best = {settings: max(made[name] for name in ALTERNATIVES) for settings, made in likelihood.items()}
    return [
        Claim(
            "The approach is competitive with those that are not based on the likelihood (abstract).",
            "Likelihood of a point at the end, beside the best alternative: "
            + "; ".join(
                f"{made[IMPORTANCE]:.3f} to {best[settings]:.3f} ({settings})"
                for settings, made in likelihood.items()
            )
            + ".",
            all(made[IMPORTANCE] >= best[name] - COMPETITIVE for name, made in likelihood.items()),
            "With some optimiser it ends further below the best alternative than "
            f"{COMPETITIVE:g} of the likelihood.",
        ),
        Claim(
            "Standard importance sampling becomes unstable as learning progresses, and the complementary sum "
            "does not (the authors' article).",
            "Largest fall of the log likelihood, standard and complementary: "
            f"{standard_to_complementary(fallen, 3)}.",
            only_standard_is_unstable(fallen, UNSTABLE),
            f"A fall of {UNSTABLE:g} is called unstable, and standard importance sampling does not show one "
            "with every optimiser.",
        ),
    ]


def claims_by_delta(results: Results) -> list[Claim]:
    """That log(C - 1) is the threshold to take, and the one that follows exact training."""
    ends = {name: results[name]["log_likelihood"][-1] for name in DELTAS}
    best = max(ends, key=lambda name: ends[name])
    exact = results[EXACT]["log_likelihood"]
    distances = {name: _distance(results[name]["log_likelihood"], exact) for name in DELTAS}
    nearest = min(distances, key=lambda name: distances[name])
    return [
        Claim(
            "The ranking's relation to the likelihood gives the optimal threshold (abstract of the first "
            "version, arXiv 1606.06959): Delta = log(C - 1).",
            f"The best of the sweep is Delta = {best}, {ends[best]:.4f}; log(C - 1) ends at "
            f"{ends[LOG_OTHERS]:.4f}, Delta = 0 at {ends['0']:.4f}, and exact training at "
            f"{exact[-1]:.4f}.",
            best == LOG_OTHERS,
            "The points can be separated, so a larger Delta, which asks for wider margins, always ends at a "
            "larger likelihood of the points that are trained on.",
        ),
        Claim(
            "At Delta = log(C - 1) a pair is the complementary sum of one drawn class (eq. 25-27), so this "
            "Delta is the one that follows exact training.",
            f"Nearest to exact training's curve, in the mean over epochs, is Delta = {nearest} "
            f"({distances[nearest]:.4f}); log(C - 1) is {distances[LOG_OTHERS]:.4f} away.",
            nearest == LOG_OTHERS,
            "A neighbouring Delta of the sweep lies nearer.",
        ),
    ]


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(abs(one - other) for one, other in zip(first, second, strict=True)) / len(first)


def setting_by_estimator(results: Results) -> str:
    """Sizes and optimisers."""
    epochs = len(next(iter(results.values()))["log_likelihood"])
    optimisers = "; ".join(
        f"*{name}*: rate {one.rate:g}, momentum {one.momentum:g}, rate times {one.decay:g} an epoch"
        for name, one in OPTIMISERS.items()
    )
    return (
        f"{_sizes(epochs)} The proposal is the classes' frequency. The paper's settings are not known "
        f"here, so each statement is held against three of SGD with Nesterov momentum: {optimisers}."
    )


def setting_by_delta(results: Results) -> str:
    """Sizes."""
    epochs = len(results[EXACT]["log_likelihood"])
    return f"{_sizes(epochs)} Classes are drawn evenly; SGD with Nesterov momentum, rate .3, momentum .9."


def _sizes(epochs: int) -> str:
    problem = Problem()
    return (
        f"{problem.class_count:,} classes, {problem.point_count:,} points in {problem.width} dimensions, "
        f"batches of {problem.batch_size}, {problem.candidates} candidates, {epochs} epochs, one seed."
    )


def table_by_estimator(results: Results) -> list[str]:
    """The end and the largest fall of each curve."""
    curves = by_setting(results, "log_likelihood")
    rows = [
        [
            name,
            *(f"{made[name][-1]:.4f}, {largest_fall(made[name]):.2g}" for made in curves.values()),
        ]
        for name in next(iter(curves.values()))
    ]
    return markdown(["log likelihood of a point at the end, largest fall", *curves], rows)


def table_by_delta(results: Results) -> list[str]:
    """The log likelihood in the course of training."""
    marks = [epoch for epoch in (1, 5, 10, 20, 40) if epoch <= len(results[EXACT]["log_likelihood"])]
    rows = [
        [name if name == EXACT else f"Delta = {name}", *(f"{curve[mark - 1]:.4f}" for mark in marks)]
        for name, curve in ((name, result["log_likelihood"]) for name, result in results.items())
    ]
    return markdown(["log likelihood of a point", *(f"epoch {mark}" for mark in marks)], rows)


def plot_by_estimator(results: Results, path: Path) -> None:
    """A panel an optimiser."""
    panels = {
        name: {one: [-value for value in values] for one, values in made.items()}
        for name, made in by_setting(results, "log_likelihood").items()
    }
    plot_curves(panels, ("epoch", "negative log likelihood of a point"), path, scales=("linear", "log"))


def plot_by_delta(results: Results, path: Path) -> None:
    """A curve a Delta."""
    curves = {name: [-value for value in result["log_likelihood"]] for name, result in results.items()}
    labels = ("epoch", "negative log likelihood of a point")
    plot_curves({"ranking": curves}, labels, path, scales=("linear", "log"))


BY_ESTIMATOR = PaperFigure(
    name="botev_2a",
    paper=BOTEV,
    title="Figure 2(a): softmax regression by each estimator",
    readable=NOT_READ,
    measurement=Measurement("regression", runs_by_estimator),
    setting=setting_by_estimator,
    claims=claims_by_estimator,
    table=table_by_estimator,
    plot=plot_by_estimator,
    plot_name="botev_2a.svg",
)
BY_DELTA = PaperFigure(
    name="botev_2b",
    paper=BOTEV,
    title="Figure 2(b): the threshold Delta of the ranking",
    readable=NOT_READ,
    measurement=Measurement("ranking", runs_by_delta),
    setting=setting_by_delta,
    claims=claims_by_delta,
    table=table_by_delta,
    plot=plot_by_delta,
    plot_name="botev_2b.svg",
)
