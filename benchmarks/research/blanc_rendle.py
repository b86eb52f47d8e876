"""Blanc & Rendle 2018, figures 2 to 4: a language model's quality and convergence by sampler and by m."""

import math
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.plots import curves as plot_curves
from benchmarks.research.language_model import (
    CPU,
    Estimate,
    Schedule,
    Text,
    WordModel,
    generated,
    text_of,
    train,
)
from benchmarks.research.paper_figure import Claim, Measurement, PaperFigure, Result, Results, Scale
from turret.tower.config import ScoringConfig
from turret.tower.towers.scoring import cross_scores
from turret.training.losses.sampled import sampled_softmax
from turret.training.samplers.adaptive.dense import DenseSampler, quartic_kernel, softmax_kernel
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.snapshot import Snapshot
from turret.training.samplers.fixed.alias import unigram_weights
from turret.training.samplers.fixed.bigram import BigramSampler
from turret.training.samplers.fixed.complement import ComplementSampler
from turret.training.samplers.kernel.quadratic import QuadraticSampler

FULL, FULL_ABSOLUTE = "exact", "exact, absolute softmax"
ALPHA = 100.0
# Symmetric kernels train the absolute softmax, as the paper advises (section 3.3).
SYMMETRIC = ("quadratic", "quartic")
SIZES: Mapping[str, tuple[int, ...]] = {
    "uniform": (8, 32, 128, 512),
    "unigram": (8, 32, 128),
    "bigram": (8, 32, 128),
    "quadratic": (8, 32, 128),
    "quartic": (8, 128),
    "softmax": (8, 128),
}
LARGE_SIZES: Mapping[str, tuple[int, ...]] = {
    "uniform": (8, 32, 128),
    "unigram": (32,),
    "quadratic": (8, 32, 128),
}
WORDS, LENGTH, WIDTH, SCHEDULE = 10_000, 110_000, 24, Schedule(epochs=2)
LARGE_WORDS, LARGE_LENGTH, LARGE_WIDTH = 100_000, 66_000, 16
LARGE_SCHEDULE = Schedule(epochs=1, checks=1)
# Item vectors are copied once in so many steps; the counts are of the copies.
REFRESH_LARGE = 100


def dense_quadratic(query: Tensor, vectors: Tensor) -> Tensor:
    """log(alpha o^2 + 1) of all logits: the tree's distribution, faster at 10,000 words of a narrow model."""
    scores = cross_scores(query, vectors, ScoringConfig(kind="dot", temperature=1.0))
    return torch.log1p(ALPHA * scores.square_())


def sampler(kind: str, size: int, text: Text) -> Sampler:
    """m = `size` words an example; all samplers but the bigram leave the example's own word out."""
    scoring = ScoringConfig(kind="dot", temperature=1.0)
    kernels = {
        "quadratic": dense_quadratic,
        "quartic": quartic_kernel(scoring),
        "softmax": softmax_kernel(scoring),
    }
    if kind == "quadratic" and text.vocabulary >= LARGE_WORDS:
        return QuadraticSampler(text.vocabulary, size, ALPHA, REFRESH_LARGE, CPU, exclude_positive=True)
    if kind in kernels:
        return DenseSampler(kernels[kind], size, Snapshot(text.vocabulary, 1, CPU), exclude_positive=True)
    unigram = unigram_weights(text.counts(), 1.0)
    if kind == "bigram":
        return BigramSampler(*text.bigrams(), unigram, 10.0, size, CPU)
    return ComplementSampler(np.ones(text.vocabulary) if kind == "uniform" else unigram, size, CPU)


@cache
def _words(folder: Path, quick: bool) -> Text:
    return text_of(folder, 1_000 if quick else WORDS, 12_000 if quick else LENGTH)


@cache
def _generated(quick: bool) -> Text:
    return generated(2_000, 12_000, 0) if quick else generated(LARGE_WORDS, LARGE_LENGTH, 0)


def trained(text: Text, kind: str, size: int, width: int, schedule: Schedule) -> Result:
    """Train once; the held-out cross-entropy before training and at every check."""
    absolute = kind in SYMMETRIC or kind == FULL_ABSOLUTE
    model = WordModel(text.vocabulary, width, absolute)
    estimate = None
    if kind not in (FULL, FULL_ABSOLUTE):
        estimate = Estimate(sampled_softmax, sampler(kind, size, text))
    return {
        "sampler": kind,
        "m": size,
        "cross_entropy": train(model, text, schedule, estimate),
        "text": text.name,
        "words": text.vocabulary,
        "training_words": len(text.training),
        "held_out_words": len(text.held_out),
        "width": width,
        **vars(schedule),
    }


def _runs(
    text: Text, sizes: Mapping[str, tuple[int, ...]], width: int, schedule: Schedule
) -> dict[str, partial[Result]]:
    wanted = [(FULL, 0), (FULL_ABSOLUTE, 0)]
    wanted += [(kind, size) for kind, some in sizes.items() for size in some]
    return {
        f"{kind}, m = {size}" if size else kind: partial(trained, text, kind, size, width, schedule)
        for kind, size in wanted
    }


def runs(scale: Scale) -> dict[str, partial[Result]]:
    """Both full softmaxes, and each sampler at each m."""
    schedule = Schedule(epochs=1) if scale.quick else SCHEDULE
    return _runs(_words(scale.data, scale.quick), SIZES, WIDTH, schedule)


def large_runs(scale: Scale) -> dict[str, partial[Result]]:
    """The same for a large vocabulary, of a generated text."""
    return _runs(_generated(scale.quick), LARGE_SIZES, LARGE_WIDTH, LARGE_SCHEDULE)


TRAININGS = Measurement("word_samplers", runs)
LARGE_TRAININGS = Measurement("word_samplers_100k", large_runs)


# A perplexity so near that of the full softmax of the same form is called unbiased.
NEAR = 1.05
# Converged is so near the own end, in nats; speeds are equal up to one check.
CONVERGED = 0.1
Samplers = dict[str, dict[int, list[float]]]


def by_sampler(results: Results) -> Samplers:
    """The cross-entropies of each sampler by m."""
    curves: Samplers = {}
    for result in results.values():
        if result["m"]:
            curves.setdefault(result["sampler"], {})[result["m"]] = result["cross_entropy"]
    return curves


def perplexity(curve: list[float]) -> float:
    """At the end."""
    return math.exp(curve[-1])


def ratios(results: Results) -> dict[str, dict[int, float]]:
    """The perplexity of each sampler and m over that of the full softmax of the same form."""
    exact = {name: perplexity(results[name]["cross_entropy"]) for name in (FULL, FULL_ABSOLUTE)}
    return {
        name: {
            size: perplexity(curve) / exact[FULL_ABSOLUTE if name in SYMMETRIC else FULL]
            for size, curve in made.items()
        }
        for name, made in by_sampler(results).items()
    }


def enough(made: dict[int, float]) -> int | None:
    """The least m from which on the ratio stays near one."""
    near = [size for size in made if all(value <= NEAR for other, value in made.items() if other >= size)]
    return min(near, default=None)


def _least(made: dict[int, float]) -> str:
    found = enough(made)
    return str(found) if found else f"more than {max(made)}"


def quality_claims(results: Results) -> list[Claim]:
    """Figure 2: the bias by sampler and m."""
    found = ratios(results)
    uniform, quadratic = found["uniform"], found["quadratic"]
    common = sorted(set(uniform) & set(quadratic))
    exact = [perplexity(results[name]["cross_entropy"]) for name in (FULL, FULL_ABSOLUTE)]
    reached = enough(quadratic)
    # Where uniform sampling never gets near, its largest size is the least that it needs.
    saved = (enough(uniform) or max(uniform)) / reached if reached else 0.0
    return [
        Claim(
            "Uniform and quadratic sampling are biased, and improve with m.",
            f"Perplexity over that of the full softmax: uniform {_by_size(uniform)}; quadratic "
            f"{_by_size(quadratic)}.",
            _falling(uniform) and _falling(quadratic),
            "A larger m is no better at some step.",
        ),
        Claim(
            "The quadratic kernel has a much lower bias than uniform sampling.",
            "The same perplexities, quadratic to uniform: "
            + ", ".join(f"{quadratic[size]:.2f} to {uniform[size]:.2f} (m = {size})" for size in common)
            + ".",
            all(quadratic[size] < uniform[size] for size in common),
            "At some m it is no lower.",
        ),
        Claim(
            "The quadratic kernel needs one to two orders of magnitude fewer samples than uniform sampling.",
            f"Within {NEAR - 1:.0%} of the full softmax from m = {_least(uniform)} (uniform) and "
            f"{_least(quadratic)} (quadratic).",
            saved >= 10.0,
            f"Of the factor no more is known than that it is at least {saved:g}, at these sizes."
            if not enough(uniform)
            else f"The factor is {saved:g}.",
        ),
        Claim(
            "Absolute and usual softmax perform very similarly without sampling (section 3.3, footnote).",
            f"Perplexity {exact[1]:.1f} to {exact[0]:.1f}.",
            max(exact) <= NEAR * min(exact),
            f"They differ by more than {NEAR - 1:.0%} after so short a training.",
        ),
    ]


def words_claims(results: Results) -> list[Claim]:
    """Figure 2 of the small vocabulary, with the proposal that has no bias."""
    found = ratios(results)
    softmax = found["softmax"]
    return [
        Claim(
            "The quality of softmax sampling is independent of m.",
            f"Perplexity over that of the full softmax: {_by_size(softmax)}.",
            max(softmax.values()) <= NEAR * min(softmax.values()),
            f"They differ by more than {NEAR - 1:.0%} after so short a training.",
        ),
        *quality_claims(results),
    ]


def _by_size(made: dict[int, float]) -> str:
    return ", ".join(f"{value:.2f} (m = {size})" for size, value in made.items())


def _falling(made: dict[int, float]) -> bool:
    values = [made[size] for size in sorted(made)]
    return values == sorted(values, reverse=True)


def converged(curve: list[float]) -> int:
    """The first check at which the cross-entropy is near its end."""
    return next(place for place, value in enumerate(curve) if value <= curve[-1] + CONVERGED)


def size_claims(results: Results) -> list[Claim]:
    """Figure 3: more samples than enough don't speed up."""
    checks = next(iter(results.values()))["checks"]
    two = {name: sorted(made)[-2:] for name, made in by_sampler(results).items() if len(made) > 1}
    places = {
        name: [converged(by_sampler(results)[name][size]) for size in sizes] for name, sizes in two.items()
    }
    return [
        Claim(
            "Once there are enough samples to remove the bias, more of them do not converge faster.",
            f"Epochs until the cross-entropy is within {CONVERGED:g} nats of its end, at the two largest m: "
            + "; ".join(
                f"{name} {places[name][0] / checks:.2f} (m = {sizes[0]}), {places[name][1] / checks:.2f} "
                f"({sizes[1]})"
                for name, sizes in two.items()
            )
            + ".",
            all(abs(first - second) <= 1 for first, second in places.values()),
            "They differ by more than one check.",
        )
    ]


def sampler_claims(results: Results) -> list[Claim]:
    """Figure 4: at one m, samplers differ by their bias and not by their speed."""
    curves, checks = by_sampler(results), next(iter(results.values()))["checks"]
    size = max(set.intersection(*(set(made) for made in curves.values())))
    least = min(set.intersection(*(set(made) for made in curves.values())))
    places = {name: converged(made[size]) for name, made in curves.items()}
    paper = ("uniform", "quadratic", "softmax")
    ends = {name: perplexity(curves[name][least]) for name in paper}
    softmax, quadratic = curves["softmax"][size], curves["quadratic"][size]
    worse = sum(one >= other for one, other in zip(quadratic[1:], softmax[1:], strict=True))
    return [
        Claim(
            "All sampling distributions converge at a comparable speed.",
            f"Epochs until within {CONVERGED:g} nats of the end, m = {size}: "
            + ", ".join(f"{name} {place / checks:.2f}" for name, place in places.items())
            + ".",
            max(places.values()) - min(places.values()) <= 1,
            "They differ by more than one check.",
        ),
        Claim(
            "Uniform sampling converges to a much worse loss.",
            f"Perplexity, m = {least}: " + ", ".join(f"{name} {end:.1f}" for name, end in ends.items()) + ".",
            ends["uniform"] == max(ends.values()),
            "It is not the worst of the three.",
        ),
        Claim(
            "The quadratic kernel has a slightly worse loss than softmax sampling throughout.",
            f"At {worse} of {len(softmax) - 1} checks, m = {size}; at the end {perplexity(quadratic):.1f} to "
            f"{perplexity(softmax):.1f}.",
            worse == len(softmax) - 1,
            "Not at every check.",
        ),
    ]


def plot_quality(results: Results, path: Path) -> None:
    """The perplexity over m, a curve a sampler."""
    curves = by_sampler(results)
    sizes = sorted({size for made in curves.values() for size in made})
    lines = {
        name: [perplexity(made[size]) if size in made else math.nan for size in sizes]
        for name, made in curves.items()
    }
    for name in (FULL, FULL_ABSOLUTE):
        lines[name] = [perplexity(results[name]["cross_entropy"])] * len(sizes)
    plot_curves(
        {f"{results[FULL]['words']:,} words": lines},
        ("m", "perplexity of held-out words"),
        path,
        [float(size) for size in sizes],
        ("log", "log"),
    )


def plot_by_size(results: Results, path: Path) -> None:
    """A panel a sampler, a curve an m."""
    panels = {
        name: {f"m = {size}": curve[1:] for size, curve in made.items()}
        | {"exact": results[FULL_ABSOLUTE if name in SYMMETRIC else FULL]["cross_entropy"][1:]}
        for name, made in by_sampler(results).items()
    }
    plot_curves(panels, ("epoch", "held-out cross-entropy, nats"), path, _epochs(results))


def plot_by_sampler(results: Results, path: Path) -> None:
    """A panel an m, a curve a sampler."""
    curves = by_sampler(results)
    shared = sorted(set.intersection(*(set(made) for made in curves.values())))
    panels = {
        f"m = {size}": {name: made[size][1:] for name, made in curves.items()}
        | {"exact": results[FULL]["cross_entropy"][1:]}
        for size in shared
    }
    plot_curves(panels, ("epoch", "held-out cross-entropy, nats"), path, _epochs(results))


def _epochs(results: Results) -> list[float]:
    one = results[FULL]
    return [(place + 1) / one["checks"] for place in range(one["checks"] * one["epochs"])]


FIGURES = (
    PaperFigure("blanc_rendle_2", TRAININGS, words_claims, plot_quality),
    PaperFigure("blanc_rendle_2_100k", LARGE_TRAININGS, quality_claims, plot_quality),
    PaperFigure("blanc_rendle_3", TRAININGS, size_claims, plot_by_size),
    PaperFigure("blanc_rendle_4", TRAININGS, sampler_claims, plot_by_sampler),
)
