"""The statements of the papers about their figures, whether the runs here agree, and their figures.

A person judges by the runs whether a statement holds; the figures in the answer are theirs.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.research.estimators import BERNOULLI, EXACT, IMPORTANCE, STANDARD, Result, Results
from benchmarks.research.probability import COMPLEMENTARY, SPREAD
from benchmarks.research.sampled_classes import EXACT_ABSOLUTE
from benchmarks.research.softmax_regression import chosen


class Statement(NamedTuple):
    """A statement with its place in the paper, and the figures of the runs here; a "no" has its cause."""

    paper: str
    agrees: bool
    shown: Callable[[Results], str]


def _estimate(runs: Results, name: str) -> Result:
    """The estimates by the fewest candidates, with errors [P] of probabilities [P]."""
    one: Result = next(one for one in runs[SPREAD]["estimates"] if one["estimator"] == name)
    true = np.array(one["true"])
    return one | {"true": true, "errors": np.abs(10.0 ** np.array(one["log10_estimated"]) - true)}


def _median_error(runs: Results, name: str, low: float) -> float:
    """Of the probabilities from `low` to `low` + .25."""
    one = _estimate(runs, name)
    return float(np.median(one["errors"][(one["true"] >= low) & (one["true"] < low + 0.25)]))


def _medians(runs: Results, low: float) -> str:
    standard, complementary = (_median_error(runs, name, low) for name in (STANDARD, COMPLEMENTARY))
    return f"{standard:.3f} against {complementary:.3f} from {low:g} to {low + 0.25:g}"


def _above_one(runs: Results) -> str:
    one = _estimate(runs, STANDARD)
    shares = [
        np.mean(one["errors"] + one["true"] > 1.0, where=one["true"] >= low) for low in (0.0, 0.5, 0.75)
    ]
    return (
        f"{shares[0]:.0%} of its estimates are above one: {shares[1]:.0%} where the probability is above .5, "
        f"{shares[2]:.0%} above .75"
    )


def _root_mean_square(runs: Results, name: str) -> float:
    return float(_estimate(runs, name)["root_mean_square_error"])


def _last(runs: Results) -> dict[str, float]:
    """The log likelihood of a point at the end, of the run of each estimator that is shown."""
    return {name: one["log_likelihood"][-1] for name, one in chosen(runs).items()}


def _by_delta(runs: Results) -> str:
    return ", ".join(f"{one['log_likelihood'][-1]:.3f} at {name}" for name, one in runs.items())


def _past_the_suggested(runs: Results) -> str:
    none, own, most = (runs[f"Delta = {delta:.2f}"]["log_likelihood"][-1] for delta in (0, 6.21, 12))
    return f"past it the gain is small: {most - own:.3f} of the {most - none:.2f} from 0 to 12"


def _ends(runs: Results, names: Sequence[str], alphas: Sequence[float] = (0.0, 0.75, 1.0)) -> str:
    """The log likelihood of a word at the end for each power of the frequency, by estimator."""
    shown = []
    for name in names:
        ends = [runs[f"alpha = {alpha:g}: {name}"] for alpha in alphas]
        texts = ["diverges" if end["diverged"] else f"{end['log_likelihood'][-1]:.3f}" for end in ends]
        shown.append(f"{name} {', '.join(texts)}")
    return "; ".join(shown)


def _draw_time(runs: Results, name: str) -> float:
    """How many times as long a draw takes with the most classes as with the fewest."""
    few, *_, most = [one["draws_per_second"] for one in runs.values() if one["sampler"] == name]
    return float(few / most)


def _by_size(runs: Results, measure: str, names: Sequence[str], prefix: str = "") -> str:
    """The last `measure` of each sampler by m, and of the softmax of all classes."""
    shown = []
    for name in names:
        matching = [run for key, run in runs.items() if key.startswith(prefix) and run["sampler"] == name]
        ends = [f"{run[measure][-1]:.4g}" + (f" (m = {run['m']})" if run["m"] else "") for run in matching]
        shown.append(f"{name} {', '.join(ends)}")
    return "; ".join(shown)


def _perplexities(runs: Results, names: Sequence[str]) -> str:
    """The last perplexities of the test text."""
    return _by_size(runs, "perplexity", names)


def _over_epochs(runs: Results, names: Sequence[str]) -> str:
    """The perplexities after half of the epochs and after all of them."""
    shown = []
    for name in names:
        curve = runs[name]["perplexity"]
        shown.append(f"{name}: {curve[len(curve) // 2 - 1]:.4g}, then {curve[-1]:.4g}")
    return "; ".join(shown)


def _clicks(runs: Results, names: Sequence[str]) -> str:
    """The last cross-entropies in both catalogs."""
    sizes = dict.fromkeys(run["classes"] for run in runs.values())
    return " / ".join(_by_size(runs, "cross_entropy", names, f"{size:,} items: ") for size in sizes)


def _best_epochs(runs: Results, names: Sequence[str]) -> str:
    """The cross-entropies of the best epochs in both catalogs, by the softmax of all items."""
    sizes = dict.fromkeys(run["classes"] for run in runs.values())
    best = [[min(runs[f"{size:,} items: {name}"]["cross_entropy"]) for name in names] for size in sizes]
    return "; ".join(" and ".join(f"{value:.2f}" for value in pair) for pair in best)


def _final_quality(
    ends: Callable[[Results, Sequence[str]], str], most: str, how: str, absolute: Callable[[Results], str]
) -> tuple[Statement, ...]:
    """The statements about figure 2 of Blanc & Rendle, of which each data set has a panel.

    `ends` shows the last figures of samplers, `absolute` both full softmaxes; `most` is the largest m of the
    quadratic sampler, and `how` the verdict on 160 uniform samples beside 10 quadratic ones.
    """
    return (
        Statement(
            "The quality of softmax sampling is independent of m (section 4.2.1).",
            True,
            lambda runs: ends(runs, ["softmax"]),
        ),
        Statement(
            "Uniform and quadratic sampling are biased, and improve with m (section 4.2.1).",
            True,
            lambda runs: ends(runs, ["uniform", "quadratic"]),
        ),
        Statement(
            "Quadratic sampling has a much lower bias than uniform sampling (section 4.2.1).",
            True,
            lambda runs: "with the same m, as above",
        ),
        Statement(
            "It approaches the loss of the softmax with 10s to 100s of samples (section 4.2.1).",
            True,
            lambda runs: f"beside {most} above: {ends(runs, [EXACT_ABSOLUTE])}",
        ),
        Statement(
            "It needs one to two orders of magnitude fewer samples than uniform sampling (figure 2).",
            True,
            lambda runs: f"16 times as many uniform samples (m = 160) {how} than m = 10 here",
        ),
        Statement(
            "Absolute and usual softmax perform very similarly without sampling (section 3.3).",
            True,
            absolute,
        ),
    )


_BEST = ("complementary sum sampling", "BlackOut")
_DRAWN = ("softmax", "quadratic", "unigram", "uniform")
STATEMENTS: dict[str, tuple[Statement, ...]] = {
    "botev_1": (
        Statement(
            "(a) Standard importance sampling is wildly inaccurate, and worse the closer the probability "
            "comes to 1 (caption).",
            True,
            _above_one,
        ),
        Statement(
            "(a) It is a significant issue for small probabilities already (caption).",
            True,
            lambda runs: (
                f"median error beside complementary sums, {_medians(runs, 0.25)}; below .25 only "
                f"{_median_error(runs, STANDARD, 0.0) / _median_error(runs, COMPLEMENTARY, 0.0):.1f} times"
            ),
        ),
        Statement(
            "(b), (c) With the correct class in the sum the error is dramatically smaller (section 4.1).",
            True,
            lambda runs: (
                f"root mean square error {_root_mean_square(runs, COMPLEMENTARY):.3f} and "
                f"{_root_mean_square(runs, BERNOULLI):.3f} against {_root_mean_square(runs, STANDARD):.0f}"
            ),
        ),
        Statement(
            "Importance and Bernoulli sampling do not differ significantly here (section 4.1).",
            False,
            lambda runs: (
                "the error of Bernoulli sampling is "
                f"{_root_mean_square(runs, BERNOULLI) / _root_mean_square(runs, COMPLEMENTARY):.1f} times as "
                "large. Its number of terms is random, so the variance of its sum goes with the mean of u², "
                "1/3, not with the variance of u, 1/12: theory says 2"
            ),
        ),
    ),
    "botev_2a": (
        Statement(
            "Both forms of complementary sums are virtually indistinguishable (caption).",
            True,
            lambda runs: f"{_last(runs)[IMPORTANCE]:.4f} and {_last(runs)[BERNOULLI]:.4f}",
        ),
        Statement(
            "All displayed methods work well on this problem (section 6.1).",
            True,
            lambda runs: "from {1:.4f} to {0:.4f}; exact {2:.4f}".format(
                *sorted(_last(runs)[name] for name in (IMPORTANCE, BERNOULLI, "BlackOut", "ranking"))[::3],
                _last(runs)[EXACT],
            ),
        ),
        Statement(
            "A batch takes about 1,050 exponentials, and 50,000 without sampling (caption).",
            True,
            lambda runs: " and ".join(
                f"{chosen(runs)[name]['exponentials']:,.0f}" for name in (IMPORTANCE, EXACT)
            ),
        ),
        Statement(
            "With z = 1, noise contrastive estimation is very poor, and so is negative sampling (caption).",
            True,
            lambda runs: " and ".join(
                f"{_last(runs)[name]:.2f}" for name in ("noise contrastive estimation", "negative sampling")
            ),
        ),
    ),
    "botev_2b": (
        Statement("Delta significantly affects how well the ranking works (section 6.1).", True, _by_delta),
        Statement(
            "Delta = log(C - 1), which is 6.21, is a reasonable setting (section 6.1).",
            True,
            _past_the_suggested,
        ),
    ),
    "botev_3": (
        Statement(
            "BlackOut and complementary sums perform best (section 6.2).",
            True,
            lambda runs: (
                f"with alpha .75 and 1: {_ends(runs, _BEST, (0.75, 1.0))}; exact "
                f"{runs[EXACT]['log_likelihood'][-1]:.3f}; with alpha 1, where it is stable, standard "
                f"importance sampling is as good: {_ends(runs, [STANDARD], (1.0,))}"
            ),
        ),
        Statement(
            "Some methods are unstable, among them standard importance sampling (section 6.2).",
            True,
            lambda runs: f"alpha 0, .75 and 1, also at the lower rate: {_ends(runs, [STANDARD])}",
        ),
        Statement(
            "Ranking and negative sampling are significantly inferior (section 6.2).",
            True,
            lambda runs: f"alpha .75 and 1: {_ends(runs, ['ranking', 'negative sampling'], (0.75, 1.0))}",
        ),
        Statement(
            "alpha = 0 works less well (section 6.2).",
            True,
            lambda runs: f"alpha 0, .75 and 1: {_ends(runs, _BEST)}",
        ),
    ),
    "blanc_rendle_2_ptb": _final_quality(
        _perplexities, "m = 40", "are far worse", lambda runs: _perplexities(runs, [EXACT, EXACT_ABSOLUTE])
    ),
    "blanc_rendle_3": (
        Statement(
            "Very biased models perform poorly even when they are trained until convergence (section 4.2.1).",
            True,
            lambda runs: _over_epochs(runs, [f"uniform, m = {size}" for size in (10, 40, 160)]),
        ),
        Statement(
            "Once enough samples remove the bias, more of them hardly speed up convergence (section 4.2.2).",
            True,
            lambda runs: _over_epochs(runs, [EXACT, "softmax, m = 10", "softmax, m = 40"]),
        ),
    ),
    "blanc_rendle_4": (
        Statement(
            "All distributions converge at a similar speed; uniform sampling converges to a much worse loss "
            "(section 4.2.2).",
            True,
            lambda runs: _over_epochs(runs, [EXACT, *(f"{name}, m = 40" for name in _DRAWN)]),
        ),
    ),
    "blanc_rendle_2_clicks": _final_quality(
        _clicks,
        "m = 160",
        "are worse",
        lambda runs: (
            f"usual and absolute in their best epochs {_best_epochs(runs, [EXACT, EXACT_ABSOLUTE])}; "
            "after them the usual one fits the clicks of earlier days"
        ),
    ),
    "draw_cost": (
        Statement(
            "The tree of the kernel takes D log n for a draw (section 3.2).",
            True,
            lambda runs: (
                f"with 100 times the classes a draw takes {_draw_time(runs, 'quadratic, tree'):.1f} times as "
                f"long; by a kernel without a tree, the quartic one, {_draw_time(runs, 'quartic'):,.0f} times"
            ),
        ),
    ),
}
