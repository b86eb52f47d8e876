import math
from dataclasses import asdict
from typing import Any

from benchmarks.sampler_trainings.page import absolute, trained
from benchmarks.sampler_trainings.plan import Training
from benchmarks.sampler_trainings.summary import summary


def row(
    sampler: str, k: int, entropy: float, seed: int = 0, signed: bool = False, twice: bool = False
) -> dict[str, Any]:
    training = Training("shop", sampler, k, not signed, seed, 2000 if twice else 1000)
    return {**asdict(training), "cross_entropy": entropy, "perplexity": math.exp(entropy)}


def results() -> dict[str, Any]:
    rows = [row("full", 0, 4.99, twice=True)]
    for seed in (0, 1):
        rows += [row("full", 0, 5.0, seed), row("full", 0, 4.0, seed, signed=True)]
        rows += [row("uniform", 8, 5.04, seed), row("uniform", 32, 5.0 + seed, seed)]
        rows += [row("quadratic", 8, 5.0, seed)]
    return {**summary(rows), "rows": rows}


def test_the_size_that_is_needed_stands_there_seed_by_seed() -> None:
    """Uniform needs 8 and then, with the second seed, more than any size."""
    lines = trained(results()).splitlines()
    assert "| uniform | 8, - | 32, - |" in lines
    assert "| quadratic | 8, 8 | 8, 8 |" in lines
    assert "| uniform over quadratic | at least 4.5 ± 4.9 times | at least 6 ± 2.8 times |" in lines


def test_convergence_is_the_change_by_twice_the_examples() -> None:
    """Where that was not measured, its cells are empty."""
    lines = trained(results()).splitlines()
    assert "| `shop`, absolute | 5.000 ± 0.000 | 148 ± 0 | 1,000 | -0.20% |  |" in lines
    assert "| `shop`, signed | 4.000 ± 0.000 | 54.598 ± 0.000 |  |  |  |" in lines


def test_a_set_that_overfits_is_named() -> None:
    """Twice the examples are worse there."""
    assert "overfits" not in trained(results())
    worse = [{**one, "cross_entropy": 5.3} if one["examples"] == 2000 else one for one in results()["rows"]]
    assert "On `shop` the full softmax does not converge but overfits" in trained(
        {**summary(worse), "rows": worse}
    )


def test_perplexity_stands_beside_cross_entropy() -> None:
    """Means over seeds."""
    assert "| uniform | 5.040 (154) | 5.500 (276) |" in trained(results()).splitlines()


def test_a_change_of_the_model_is_a_line_for_both_scorings() -> None:
    """Shares below zero are those of the absolute model."""
    plain = {"wide": False, "own_inputs": False, "cross_entropy": 5.0, "perplexity": 148.4}
    shares = {"negative_targets": 0.25, "negative_items": 0.5}
    zero = dict.fromkeys(shares, 0.0)
    rows = [
        {"absolute": False, **plain, **zero},
        {"absolute": True, **plain, **shares, "cross_entropy": 5.2},
        {"absolute": False, **plain, **zero, "own_inputs": True},
        {"absolute": True, **plain, **shares, "own_inputs": True},
    ]
    lines = absolute({"set": "shop", "examples": 1000, "rows": rows}).splitlines()
    assert "| as above | 5.000 (148) | 5.200 (148) | +0.200 | 25% | 50% |" in lines
    assert "| own inputs | 5.000 (148) | 5.000 (148) | +0.000 | 25% | 50% |" in lines
