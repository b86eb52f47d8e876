import numpy as np
import pytest
import torch

from training.errors import TrainingError
from training.randomness import stream
from training.samplers.frequency import KnownFrequency, StreamingFrequency


def streaming(rate: float = 0.01, buckets: int = 4096, hashes: int = 2) -> StreamingFrequency:
    return StreamingFrequency(buckets, hashes, rate, stream(0, "hash", 0))


def naive_gaps(batches: list[list[int]], rate: float) -> dict[int, float]:
    """The mean gap of each item by one update a hit; several hits of a batch share their mean gap.

    The nth hit weighs 1/n, and never less than the rate.
    """
    now = 0
    hits: dict[int, int] = {}
    last: dict[int, int] = {}
    gap: dict[int, float] = {}
    for batch in batches:
        for item in sorted(set(batch)):
            places = [place for place, other in enumerate(batch) if other == item]
            mean = (now + 1 + places[-1] - last.get(item, 0)) / len(places)
            for _ in places:
                hits[item] = hits.get(item, 0) + 1
                weight = max(rate, 1 / hits[item])
                gap[item] = (1 - weight) * gap.get(item, 0.0) + weight * mean
            last[item] = now + 1 + places[-1]
        now += len(batch)
    return gap


def test_known_shares_are_those_of_the_counts() -> None:
    """log p is the log of the count's share."""
    frequency = KnownFrequency(np.array([3, 1, 0]), torch.device("cpu"))
    torch.testing.assert_close(frequency.log_share(torch.tensor([0, 1])).exp(), torch.tensor([0.75, 0.25]))


def test_known_without_events_is_refused() -> None:
    """A sentence says what to use instead."""
    with pytest.raises(TrainingError, match="streaming"):
        KnownFrequency(np.zeros(2, dtype=np.int64), torch.device("cpu"))


def test_streaming_equals_one_update_after_the_other() -> None:
    """The vectorised update equals the loop over hits, duplicates within a batch included."""
    batches = [[1, 1, 2], [3, 1, 1, 1], [2, 3], [1, 5, 5], [1, 2, 1, 4, 1]]
    frequency = streaming(rate=0.25)
    for batch in batches:
        frequency.observe(torch.tensor(batch))
    for item, gap in naive_gaps(batches, 0.25).items():
        assert frequency.log_share(torch.tensor([item])).exp().item() == pytest.approx(1 / gap, rel=1e-5)


def test_rare_items_are_estimated_from_few_hits() -> None:
    """After five to thirty hits each, the estimates of a Zipf tail are within a few tenths of the truth."""
    random = np.random.default_rng(1)
    shares = 1.0 / np.arange(1, 1001)
    shares /= shares.sum()
    frequency = streaming(buckets=1 << 14)
    for _ in range(40):
        frequency.observe(torch.from_numpy(random.choice(1000, 2048, p=shares)))
    tail = np.flatnonzero((shares * 40 * 2048 > 5) & (shares * 40 * 2048 < 30))
    error = frequency.log_share(torch.from_numpy(tail)).numpy() - np.log(shares[tail])
    assert len(tail) > 300
    # n hits estimate a rate to one part in the square root of n.
    assert np.sqrt((error**2).mean()) < 0.4


def test_what_was_never_seen_has_no_share() -> None:
    """An item without a hit has p = 0, without a warning."""
    frequency = streaming()
    frequency.observe(torch.tensor([1]))
    assert frequency.log_share(torch.tensor([1, 2])).exp().tolist() == [1.0, 0.0]


def test_streaming_follows_a_drift() -> None:
    """When an item becomes ten times as frequent, its estimate follows within a few hundred hits."""
    random = np.random.default_rng(0)
    frequency = streaming(rate=0.02)
    estimates = []
    for share in (0.02, 0.2):
        for _ in range(200):
            batch = np.where(random.random(64) < share, 7, random.integers(100, 200, 64))
            batch[0] = 7 if share > 0.1 else batch[0]
            frequency.observe(torch.from_numpy(batch))
        estimates.append(frequency.log_share(torch.tensor([7])).exp().item())
    assert estimates[0] == pytest.approx(0.02, rel=0.5)
    assert estimates[1] == pytest.approx(0.2, rel=0.3)


def test_a_collision_is_outvoted_by_another_hash() -> None:
    """In an array so small that everything collides somewhere, two hashes estimate better than one."""
    random = np.random.default_rng(3)
    errors = []
    for hashes in (1, 3):
        frequency = streaming(rate=0.02, buckets=60, hashes=hashes)
        for _ in range(300):
            frequency.observe(torch.from_numpy(random.integers(0, 40, 64)))
        estimated = frequency.log_share(torch.arange(40)).exp().numpy()
        errors.append(np.abs(estimated * 40 - 1).mean())
    assert errors[1] < 0.7 * errors[0]
