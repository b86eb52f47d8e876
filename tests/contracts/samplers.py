"""What every sampler has to pass; a test class inherits this and says how to make one."""

import math

import numpy as np
import torch
from torch import Tensor

from training.randomness import stream
from training.samplers.contract import DrawContext, Sampler
from training.samplers.draw import Draw

# The chance that a right sampler fails: one in a million, at fixed seeds.
Z_OF_ONE_IN_A_MILLION = 4.75


def chi_square_limit(degrees: int) -> float:
    """The chi-square value that one in a million right samples exceeds (Wilson & Hilferty 1931)."""
    ninth = 2.0 / (9.0 * degrees)
    return degrees * (1.0 - ninth + Z_OF_ONE_IN_A_MILLION * math.sqrt(ninth)) ** 3


class SamplerContract:
    """The suite. `item_count` items, of which some are far more popular than others."""

    item_count = 12
    counts = np.array([400, 200, 100, 60, 30, 20, 10, 5, 3, 2, 1, 1])
    # How far log counts may be from the closed form: rounding, unless the sampler estimates them.
    count_tolerance = 1e-4

    def make(self) -> Sampler:
        raise NotImplementedError

    def positives(self, size: int, step: int) -> Tensor:
        shares = self.counts / self.counts.sum()
        drawn = stream(1, "positives", step).choice(self.item_count, size=size, p=shares)
        return torch.from_numpy(drawn)

    def draw(self, sampler: Sampler, step: int, size: int = 64) -> tuple[Draw, Tensor]:
        positives = self.positives(size, step)
        context = DrawContext(stream(2, "draw", step))
        return sampler.draw(torch.zeros(size, 4), positives, context), positives

    def test_probabilities_sum_to_one(self) -> None:
        """The closed form is a distribution for every query."""
        sampler = self.make()
        self.draw(sampler, 0, size=4096)
        q = sampler.probability(torch.zeros(3, 4))
        assert q.shape == (3, self.item_count)
        torch.testing.assert_close(q.sum(dim=1), torch.ones(3), atol=1e-5, rtol=0)

    def test_draws_follow_the_probabilities(self) -> None:
        """A chi-square test of the drawn ids against the closed form."""
        sampler = self.make()
        ids = torch.cat([self.draw(sampler, step)[0].ids.flatten() for step in range(400)])
        q = sampler.probability(torch.zeros(1, 4))[0].double().numpy()
        drawn = np.bincount(ids.numpy(), minlength=self.item_count)
        expected = q * len(ids)
        statistic = float(((drawn - expected) ** 2 / expected).sum())
        assert statistic < chi_square_limit(self.item_count - 1)

    def test_log_counts_are_those_of_the_closed_form(self) -> None:
        """Each candidate's count is K q, and each positive's is as well."""
        sampler = self.make()
        draw, positives = self.draw(sampler, 0, size=512)
        q = sampler.probability(torch.zeros(1, 4))[0]
        size = draw.ids.shape[-1]
        torch.testing.assert_close(
            draw.log_count.exp(), size * q[draw.ids], rtol=self.count_tolerance, atol=0
        )
        torch.testing.assert_close(
            draw.positive_log_count.exp(), size * q[positives], rtol=self.count_tolerance, atol=0
        )

    def test_only_accidental_hits_are_masked(self) -> None:
        """A candidate is invalid exactly where it is the example's positive, and such are counted."""
        draw, positives = self.draw(self.make(), 0)
        ids = draw.ids.expand(len(positives), -1)
        for b, positive in enumerate(positives.tolist()):
            for j in range(ids.shape[1]):
                assert bool(draw.valid[b, j]) == (int(ids[b, j]) != positive)
        assert int(draw.masked_count) == int((ids == positives[:, None]).sum()) > 0

    def test_the_same_stream_gives_the_same_draw(self) -> None:
        """A draw depends on the stream, the positives and the sampler's state alone."""
        first, second = self.make(), self.make()
        assert torch.equal(self.draw(first, 5)[0].ids, self.draw(second, 5)[0].ids)

    def test_a_restored_sampler_goes_on_as_the_original(self) -> None:
        """State that is put into a fresh sampler leads to the same counts."""
        original, other = self.make(), self.make()
        for step in range(3):
            self.draw(original, step)
        other.restore({name: tensor.clone() for name, tensor in original.state().items()})
        expected, given = self.draw(original, 9)[0], self.draw(other, 9)[0]
        assert torch.equal(expected.log_count, given.log_count)
        assert torch.equal(expected.ids, given.ids)
