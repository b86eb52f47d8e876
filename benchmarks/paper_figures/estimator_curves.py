"""Curves of trainings by each estimator under several settings (Botev et al. 2017, figures 2(a) and 3)."""

from benchmarks.complementary_sum import largest_fall
from benchmarks.paper_figures.contract import Results

IMPORTANCE = "complementary sum sampling, importance"
COMPLEMENTARY = (IMPORTANCE, "complementary sum sampling, Bernoulli")
STANDARD = "standard importance sampling"
ALTERNATIVES = ("noise contrastive estimation", "negative sampling", "BlackOut", "ranking")

Curves = dict[str, dict[str, list[float]]]
Falls = dict[str, dict[str, float]]


def key_of(setting: str, estimator: str) -> str:
    """The name of a training under a setting."""
    return f"{setting}: {estimator}"


def by_setting(results: Results, measure: str) -> Curves:
    """The curve of `measure` of each estimator, by setting; trainings under no setting are left out."""
    curves: Curves = {}
    for key, result in results.items():
        setting, colon, name = key.partition(": ")
        if colon:
            curves.setdefault(setting, {})[name] = result[measure]
    return curves


def falls(curves: Curves, sign: float = 1.0) -> Falls:
    """The largest fall of each curve; with a `sign` of -1, the largest rise."""
    return {
        setting: {name: largest_fall([sign * value for value in curve]) for name, curve in made.items()}
        for setting, made in curves.items()
    }


def standard_to_complementary(falls: Falls, digits: int) -> str:
    """The falls of standard importance sampling and of the worse complementary sum, by setting."""
    return "; ".join(
        f"{made[STANDARD]:.{digits}f} to {_complementary(made):.{digits}f} ({setting})"
        for setting, made in falls.items()
    )


def only_standard_is_unstable(falls: Falls, unstable: float) -> bool:
    """Whether, under each setting, standard importance sampling falls by `unstable` and no other does."""
    return all(made[STANDARD] > unstable > _complementary(made) for made in falls.values())


def _complementary(falls: dict[str, float]) -> float:
    return max(falls[name] for name in COMPLEMENTARY)
