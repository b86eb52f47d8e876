"""Blanc & Rendle 2018, figures 2 to 4: a language model's quality and convergence by sampler and by m."""

import math
from pathlib import Path

from benchmarks.paper_figures.contract import Claim, Result, Results, markdown
from benchmarks.paper_figures.word_samplers import FULL, FULL_ABSOLUTE, SYMMETRIC
from benchmarks.plots import curves as plot_curves

# A perplexity so near that of the full softmax of the same form is called unbiased.
NEAR = 1.05
# Converged is so near the own end, in nats; speeds are equal up to one check.
CONVERGED = 0.1
READABLE = (
    "The paper's text and captions are read; its curves are images, so no value of them is. Statements are "
    "those of section 4.2 and of the captions."
)
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


def sizes_of(one: Result) -> str:
    """The text and the model of a training."""
    return (
        f"{one['text']} text: {one['words']:,} different words, {one['training_words']:,} to train on and "
        f"the next {one['held_out_words']:,} held out; a gated recurrent layer {one['width']} wide with a "
        f"bias for each word, Adam under a half cosine from {one['rate']:g}, batches of "
        f"{one['rows'] * one['steps']} words, epochs: {one['epochs']}"
    )


def setting(results: Results) -> str:
    """Sizes and deviations."""
    one = results[FULL]
    checks = f"held-out words scored {one['checks']} times an epoch, " if one["checks"] > 1 else ""
    return (
        f"{sizes_of(one)}, {checks}one seed. m words are drawn for each example, with replacement. "
        "Quadratic (100 o^2 + 1) and quartic (o^4 + 1) kernels train the absolute softmax, the others the "
        "usual one. The paper trains an LSTM of 200 units to convergence on Penn Treebank, or a network on "
        "logs of YouTube."
    )


def words_setting(results: Results) -> str:
    """Of the small vocabulary."""
    return (
        f"{setting(results)} The kernels are evaluated for all words: the tree's distribution, and faster at "
        "this size."
    )


def table(results: Results) -> list[str]:
    """The perplexity by sampler and m."""
    curves = by_sampler(results)
    sizes = sorted({size for made in curves.values() for size in made})
    rows = [
        [name, *(f"{perplexity(made[size]):,.1f}" if size in made else "" for size in sizes)]
        for name, made in curves.items()
    ]
    rows += [
        [name, *[f"{perplexity(results[name]['cross_entropy']):,.1f}"] * len(sizes)]
        for name in (FULL, FULL_ABSOLUTE)
    ]
    return markdown(["perplexity of held-out words", *(f"m = {size}" for size in sizes)], rows)


def curve_table(results: Results) -> list[str]:
    """The cross-entropy of each training after each epoch."""
    one = results[FULL]
    marks = [epoch * one["checks"] for epoch in range(one["epochs"] + 1)]
    rows = [
        [name, *(f"{made['cross_entropy'][mark]:.2f}" for mark in marks)] for name, made in results.items()
    ]
    return markdown(["held-out cross-entropy, nats", *(f"epoch {mark}" for mark in range(len(marks)))], rows)


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
