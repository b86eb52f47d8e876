"""The bias, variance and divergence that a report gives, against sums and enumerations by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.tower.config import ScoringConfig
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.report.measures import Queries, gradient_error
from turret.training.samplers.core.contract import Draw, drawn_from

FIVE, D, K = 5, 3, 2  # items, numbers of a vector, candidates
SHARP = ScoringConfig(kind="dot", temperature=0.5)
Floats = NDArray[np.float64]


def five_items() -> tuple[Queries, Tensor]:
    random = stream(1, "gradients", 0)
    users = torch.from_numpy(random.normal(size=(2, D))).float()
    vectors = torch.from_numpy(random.normal(size=(FIVE, D))).float()
    return Queries(users, torch.tensor([1, 3]), torch.tensor([0, 0])), vectors


Q = np.array([0.5, 0.25, 0.15, 0.07, 0.03])


def draw_of(ids: NDArray[np.int64], positives: Tensor, q: Floats = Q) -> Draw:
    """Each example's K candidates `ids` [2, K], drawn by q."""
    log_q = torch.from_numpy(np.log(q)).float()
    rows = torch.from_numpy(ids)
    return drawn_from(rows, log_q[rows], log_q[positives], positives)


def gradient(user: Tensor, terms: list[tuple[float, Tensor]], positive: Tensor) -> Tensor:
    """The gradient of log(sum of weight times exp s) - s_y by the user vector."""
    masses = [weight * math.exp(float(user @ vector)) for weight, vector in terms]
    pulled = sum((mass * term[1] for mass, term in zip(masses, terms, strict=True)), torch.zeros(3).double())
    return pulled / sum(masses) - positive


def enumerated_error() -> tuple[float, float]:
    """The relative bias and variance over all N^K draws, each as likely as q says."""
    given, vectors = five_items()
    items = vectors.double()
    squared_bias = variance = length = 0.0
    for user, own in zip(given.users.double() / SHARP.temperature, given.positives.tolist(), strict=True):
        exact = gradient(user, [(1.0, item) for item in items], items[own])
        mean, square = torch.zeros(D).double(), 0.0
        for ids in itertools.product(range(FIVE), repeat=K):
            drawn = [(1.0 / (K * Q[i]), items[i]) for i in ids if i != own]
            found = gradient(user, [(1.0, items[own]), *drawn], items[own])
            chance = math.prod(Q[i] for i in ids)
            mean += chance * found
            square += chance * float(found @ found)
        squared_bias += float((mean - exact).square().sum())
        variance += square - float(mean @ mean)
        length += float(exact @ exact)
    return math.sqrt(squared_bias / length), variance / length


def test_bias_and_variance_are_those_of_all_draws() -> None:
    """400 draws bring the bias within its bounds, here strictly, and the variance within a tenth."""
    given, vectors = five_items()
    random = stream(2, "gradients", 0)

    def draw_once(number: int) -> Draw:
        return draw_of(random.choice(FIVE, p=Q, size=(2, K)), given.positives)

    error = gradient_error(given, vectors, SHARP, draw_once, 400)
    bias, variance = enumerated_error()
    assert bias > 0.1
    assert 0.0 < error["bias_low"] < bias < error["bias_high"]
    assert error["variance"] == pytest.approx(variance, rel=0.1)


def test_a_model_that_is_certain_has_no_gradient_to_compare_with() -> None:
    """The sentence says which settings give it one."""
    given, vectors = five_items()
    certain = Queries(1e4 * vectors[given.positives], given.positives, given.last_items)
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    ids = np.zeros((2, K), np.int64)
    with pytest.raises(TrainingError, match=r"zero gradient for all 2 queries.*--queries"):
        gradient_error(certain, vectors, SHARP, lambda _: draw_of(ids, given.positives), 4)
