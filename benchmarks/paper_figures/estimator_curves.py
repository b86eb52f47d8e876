"""Curves of trainings by each estimator under several settings (Botev et al. 2017, figures 2(a) and 3)."""

from benchmarks.paper_figures.contract import Results

IMPORTANCE = "complementary sum sampling, importance"
BERNOULLI = "complementary sum sampling, Bernoulli"
STANDARD = "standard importance sampling"

Curves = dict[str, dict[str, list[float]]]


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
