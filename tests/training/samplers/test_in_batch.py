import torch

from tests.contracts.samplers import SamplerContract
from training.randomness import stream
from training.samplers.contract import Sampler
from training.samplers.in_batch import InBatchSampler
from training.samplers.known_frequency import KnownFrequency
from training.samplers.streaming_frequency import StreamingFrequency


class TestKnown(SamplerContract):
    def make(self) -> Sampler:
        return InBatchSampler(KnownFrequency(self.counts, torch.device("cpu")), self.item_count)


class TestStreaming(SamplerContract):
    # The estimated shares of what a batch showed need not sum to one; the closed form does.
    count_tolerance = 0.2

    def make(self) -> Sampler:
        return InBatchSampler(StreamingFrequency(1024, 2, 1e-4, stream(0, "hash", 0)), self.item_count)


def test_streaming_counts_near_the_known_ones() -> None:
    """After many batches the estimated counts are within a few per cent of B p for frequent items."""
    contract = TestKnown()
    frequency = StreamingFrequency(1024, 2, 0.005, stream(0, "hash", 0))
    sampler = InBatchSampler(frequency, contract.item_count)
    for step in range(600):
        draw, _ = contract.draw(sampler, step, size=256)
    expected = 256 * contract.counts / contract.counts.sum()
    for item in (0, 1, 2, 3):
        estimated = float(draw.log_count[draw.ids == item][0].exp())
        assert abs(estimated / expected[item] - 1) < 0.25
