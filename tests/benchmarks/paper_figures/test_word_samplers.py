import pytest
import torch

from benchmarks.paper_figures.language_model import CPU, Schedule
from benchmarks.paper_figures.word_samplers import (
    ALPHA,
    FULL,
    FULL_ABSOLUTE,
    SIZES,
    dense_quadratic,
    sampler,
    trained,
)
from benchmarks.paper_figures.words import generated
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.kernel.quadratic import QuadraticSampler

TEXT = generated(40, 2_000, seed=0)
SCHEDULE = Schedule(epochs=1, checks=1, rows=4, steps=8)


def test_the_dense_kernel_is_the_distribution_of_the_tree() -> None:
    """So that the figures are those of the sampler that the package has."""
    vectors, query = torch.randn(40, 7), torch.randn(5, 7)
    tree = QuadraticSampler(40, 8, ALPHA, 1, CPU)
    tree.refresh(vectors)
    dense = dense_quadratic(query, vectors).softmax(dim=1)
    torch.testing.assert_close(dense, tree.probability(query), rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("kind", SIZES)
def test_every_sampler_proposes_all_words(kind: str) -> None:
    """With probabilities that sum to one; only the uniform one is constant."""
    made = sampler(kind, 8, TEXT)
    vectors, query = torch.randn(40, 7), torch.randn(5, 7)
    made.refresh(vectors)
    context = DrawContext(stream(0, "draw", 0), torch.arange(5), vectors[:5], vectors.__getitem__)
    shares = made.probability(query, context)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(5), rtol=1e-5, atol=1e-5)
    assert float(shares.min()) > 0
    assert bool((shares - shares[0, 0]).abs().max() < 1e-7) == (kind == "uniform")


@pytest.mark.parametrize("kind", [FULL, FULL_ABSOLUTE, *SIZES])
def test_a_training_says_its_sizes_and_gets_better(kind: str) -> None:
    """Each sampler's; the page shows the result."""
    result = trained(TEXT, kind, 8, 6, SCHEDULE)
    assert result["cross_entropy"][-1] < result["cross_entropy"][0]
    assert (result["words"], result["width"], result["epochs"]) == (40, 6, 1)
