import numpy as np
import pytest
import torch

from tests.contracts.samplers import SamplerContract
from training.errors import TrainingError
from training.samplers.contract import Sampler
from training.samplers.static import uniform_sampler, unigram_sampler

CPU = torch.device("cpu")


class TestUniform(SamplerContract):
    def make(self) -> Sampler:
        return uniform_sampler(self.item_count, 50, CPU)

    def test_is_one_over_n(self) -> None:
        """Every item is as likely as any other."""
        q = self.make().probability(torch.zeros(1, 4))
        torch.testing.assert_close(q, torch.full((1, 12), 1 / 12))


class TestUnigram(SamplerContract):
    def make(self) -> Sampler:
        return unigram_sampler(self.counts, 0.75, 50, CPU)

    def test_follows_the_power_of_the_counts(self) -> None:
        """Ratios of probabilities are ratios of (count + 1)^alpha."""
        q = self.make().probability(torch.zeros(1, 4))[0]
        assert float(q[0] / q[9]) == pytest.approx((401 / 3) ** 0.75, rel=1e-5)


def test_unigram_without_events_is_refused() -> None:
    """A sentence says what to use where no item has an event."""
    with pytest.raises(TrainingError, match="use kind = 'uniform'"):
        unigram_sampler(np.zeros(3, dtype=np.int64), 1.0, 5, CPU)


def test_an_item_without_events_has_a_finite_correction() -> None:
    """Its count is smoothed, not floored, so its log count is finite and its share the smallest."""
    sampler = unigram_sampler(np.array([1000, 0, 10]), 1.0, 5, CPU)
    q = sampler.probability(torch.zeros(1, 1))[0]
    assert float(q[1]) == pytest.approx(1 / 1013, rel=1e-5)
