import math
from pathlib import Path

from benchmarks.paper_figures.contract import Results, Scale
from benchmarks.paper_figures.regression import (
    DELTAS,
    LOG_OTHERS,
    OPTIMISERS,
    claims_by_delta,
    claims_by_estimator,
    runs_by_delta,
    runs_by_estimator,
)
from benchmarks.softmax_regression import EXACT, estimators


def by_estimator(**likelihoods: list[float]) -> Results:
    """Likelihoods of a point under every optimiser; those not named end at .9."""
    names = [EXACT, *estimators(10)]
    return {
        f"{settings}: {name}": {
            "log_likelihood": [math.log(value) for value in likelihoods.get(name.split()[0], [0.5, 0.9])]
        }
        for settings in OPTIMISERS
        for name in names
    }


def test_a_training_for_every_optimiser_and_estimator() -> None:
    """The exact one among them; and one for every Delta."""
    scale = Scale(Path("data"), quick=True)
    assert set(runs_by_estimator(scale)) == set(by_estimator())
    assert set(runs_by_delta(scale)) == {EXACT, *DELTAS}


def test_complementary_sums_have_to_be_competitive_and_standard_sampling_unstable() -> None:
    """A fall of more than a hundredth is unstable; a hundredth below the best is still competitive."""
    held = by_estimator(standard=[0.5, 0.9, 0.8], complementary=[0.5, 0.8, 0.895])
    assert [claim.agrees for claim in claims_by_estimator(held)] == [True, True]
    failed = by_estimator(complementary=[0.5, 0.8, 0.88])
    assert [claim.agrees for claim in claims_by_estimator(failed)] == [False, False]


def test_the_best_delta_and_the_nearest_to_exact_training_are_looked_for() -> None:
    """Both have to be log(C - 1)."""
    curves = {name: [-3.0, -2.0] for name in DELTAS}
    exact = {EXACT: [-2.0, -1.0]}
    held = exact | curves | {LOG_OTHERS: [-2.1, -1.1]}
    results = {name: {"log_likelihood": curve} for name, curve in held.items()}
    assert [claim.agrees for claim in claims_by_delta(results)] == [True, True]
    results["12"] = {"log_likelihood": [-2.1, -0.5]}
    assert [claim.agrees for claim in claims_by_delta(results)] == [False, True]
    results["12"] = {"log_likelihood": [-2.0, -1.05]}
    assert [claim.agrees for claim in claims_by_delta(results)] == [False, False]
