"""Measures of a sampler: divergence from the softmax, error of the gradient, cost of a step."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.config import ScoringConfig
from turret.tower.towers.model import TwoTowers, cross_scores, paired_scores
from turret.training.batches.batches import TrainingBatches
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.losses.catalog import full_softmax
from turret.training.losses.sampled import sampled_softmax
from turret.training.model_loss import model_loss
from turret.training.objectives.contract import Loss, Objective
from turret.training.randomness import stream
from turret.training.samplers.core.contract import Draw

# At most so many Q x N and B x N scores are held at once.
_MOST_SCORES, _MOST_TIMED_SCORES = 2**22, 2**25
# A smaller unreachable probability is within the rounding of q.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Queries:
    """User vectors [Q, D] without gradient, positives [Q] and the newest items of the histories [Q]."""

    users: Tensor
    positives: Tensor
    last_items: Tensor

    def __len__(self) -> int:
        return len(self.positives)

    def take(self, indices: slice | Tensor) -> "Queries":
        """The queries at `indices`."""
        return Queries(self.users[indices], self.positives[indices], self.last_items[indices])

    @classmethod
    @torch.no_grad()
    def read(
        cls, model: TwoTowers, batches: TrainingBatches, count: int, random: np.random.Generator
    ) -> "Queries":
        """Draw at most `count` different training examples, with the vectors of `model` in evaluation mode.

        The examples come from the first batches of an epoch in its own order, and some of them are drawn.
        """
        training, device, read = model.training, next(model.parameters()).device, []
        model.eval()
        for batch in batches.epoch(random):
            histories = batch.to(device).histories
            targets = batch.targets.to(device)
            users = model.user_vectors(histories, model.current_vectors(histories.rows))
            users = model.training_vectors(users, model.current_vectors(targets))
            read.append((users, targets, histories.rows[histories.ends - 1]))
            if sum(len(block[0]) for block in read) >= count:
                break
        model.train(training)
        every = cls(*(torch.cat(columns) for columns in zip(*read, strict=True)))
        return every.take(torch.from_numpy(random.permutation(len(every))[:count]).to(device))

    def parts(self, items: int) -> Iterator[slice]:
        """Slices of the queries, whose scores of all items fit into memory."""
        size = max(1, _MOST_SCORES // items)
        return (slice(start, start + size) for start in range(0, len(self), size))


def divergence(queries: Queries, vectors: Tensor, scoring: ScoringConfig, proposal: Tensor) -> float | None:
    """The mean of KL(p || q) in nats over Q queries, of the softmax p and the proposal q [Q, N].

    Both are renormalised without the example's positive, whose term is exact. The result is None if items
    with q = 0 have more than a millionth of p.
    """
    sums = torch.zeros(2, dtype=torch.float64)
    for part in queries.parts(len(vectors)):
        block = queries.take(part)
        positives = block.positives.unsqueeze(1)
        scores = cross_scores(block.users, vectors, scoring).double().scatter(1, positives, float("-inf"))
        log_p = scores.log_softmax(dim=1)
        p = log_p.exp()
        q = proposal[part].double().scatter(1, positives, 0.0)
        q = q / q.sum(dim=1, keepdim=True)
        drawn = (q > 0) & (p > 0)
        log_ratio = torch.where(drawn, log_p - q.clamp_min(1e-300).log(), 0.0)
        sums += torch.stack([(p * log_ratio).sum(), p[q == 0].sum()]).cpu()
    kl, unreachable = (sums / len(queries)).tolist()
    return None if unreachable >= _NEGLIGIBLE else kl


def full_gradient(queries: Queries, vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """The gradient of each example's full softmax with respect to its user vector: [Q, D]."""
    users = queries.users.detach().requires_grad_()
    parts = []
    for part in queries.parts(len(vectors)):
        losses = full_softmax(cross_scores(users[part], vectors, scoring), queries.positives[part])
        parts.append(torch.autograd.grad(losses.sum(), users)[0][part])
    return torch.cat(parts)


def effective_share(drawn: Tensor, draw: Draw) -> Tensor:
    """(sum w)^2 / sum w^2 / K of w_j = exp(s_j - l_j) over valid candidates, 0 without any: [Q]."""
    log_weights = (drawn - draw.log_count).masked_fill(~draw.valid, float("-inf"))
    log_share = 2.0 * log_weights.logsumexp(dim=1) - (2.0 * log_weights).logsumexp(dim=1)
    return log_share.exp().nan_to_num(0.0) / max(1, drawn.shape[1])


def gradient_error(
    queries: Queries,
    vectors: Tensor,
    scoring: ScoringConfig,
    draw_once: Callable[[int], Draw],
    draws: int,
    loss: Loss = sampled_softmax,
) -> dict[str, float]:
    """Compare the gradients of `draws` independent draws with the full gradient, by the user vectors.

    Returns:
        With g_b the full gradient of example b and E_b the expectation of the sampled one, `bias` is
        sqrt(sum_b |E_b - g_b|^2 / sum_b |g_b|^2), and `bias_low` and `bias_high` are two standard errors from
        it. `variance` is sum_b E|sampled_b - E_b|^2 / sum_b |g_b|^2. `effective_share` is the effective
        sample size (sum w)^2 / sum w^2 of the weights w_j = exp(s_j - l_j), as a share of the `candidates`
        drawn.

    The squared bias is the mean of <G_r - g, G_t - g> over pairs of *different* draws r and t, which excludes
    the variance of the draws; its standard error is the jackknife's over the draws, of which at least 3 are
    needed.

    Raises:
        TrainingError: the full gradient is zero.
    """
    exact = full_gradient(queries, vectors, scoring)
    length = float(exact.double().square().sum())
    if length == 0.0:
        raise TrainingError(
            f"the full softmax has a zero gradient for all {len(queries.positives)} queries, so errors "
            "relative to it are undefined; raise --queries or tower.scoring.temperature."
        )
    deviations, share, candidates = [], 0.0, 0
    for number in range(draws):
        draw = draw_once(number)
        users = queries.users.detach().requires_grad_()
        drawn = cross_scores(users, vectors[draw.ids], scoring)
        losses = loss(paired_scores(users, vectors[queries.positives], scoring), drawn, draw)
        gradient = torch.autograd.grad(losses.sum(), users)[0]
        deviations.append((gradient - exact).flatten().cpu())
        share += float(effective_share(drawn.detach(), draw).mean())
        candidates += draw.ids.shape[-1]
    each = torch.stack(deviations).double()
    products = each @ each.T
    mean_square = float(products.trace()) / draws
    products.fill_diagonal_(0.0)
    squared = float(products.sum()) / (draws * (draws - 1))
    # The jackknife takes the same mean without each draw in turn.
    without = (products.sum() - 2.0 * products.sum(dim=1)) / ((draws - 1) * (draws - 2))
    error = float((without - without.mean()).square().sum() * (draws - 1) / draws) ** 0.5
    ends = {"bias": squared, "bias_low": squared - 2.0 * error, "bias_high": squared + 2.0 * error}
    return {
        **{name: max(0.0, value / length) ** 0.5 for name, value in ends.items()},
        "variance": max(0.0, mean_square - squared) / length,
        "effective_share": share / draws,
        "candidates": candidates / draws,
    }


def step_cost(
    model: TwoTowers,
    data: PreparedData,
    experiment: ExperimentConfig,
    objective: Objective,
    dense: bool,
    steps: int = 7,
) -> dict[str, Any]:
    """The median `milliseconds` of a step of B examples, measured with `timed_examples` of them.

    A step is towers forward, draw, scores, loss, backward and the sampler's update; the first one warms up.

    The time of the optimiser does not depend on the sampler. Where each example is scored against the whole
    catalog (`dense`), fewer examples are timed if B x N scores would not fit, and the time is scaled up.
    """
    whole = experiment.training.batch_size
    most = max(1, _MOST_TIMED_SCORES // len(data.item_ids)) if dense else whole
    batches = TrainingBatches.of(experiment, data, min(whole, most))
    size = min(batches.batch_size, batches.example_count)
    seed, device = experiment.training.seed, next(model.parameters()).device
    epoch = batches.epoch(stream(seed, "report order", 0))
    first = next(epoch)
    seconds = []
    model.train()
    for step in range(steps + 1):
        # The first batch repeats where an epoch has fewer.
        batch = next(epoch, first).to(device)
        random = stream(seed, "report step", step)
        start = _now(device)
        model.zero_grad()
        torch.autograd.backward(model_loss(objective, model, batch, random).loss)
        if objective.sampler:
            objective.sampler.update(model.current_vectors)
        seconds.append(_now(device) - start)
    model.zero_grad()
    model.eval()
    whole = min(whole, batches.example_count)
    median = 1000.0 * statistics.median(seconds[1:])
    return {"milliseconds": median * whole / size, "timed_examples": size}


def _now(device: torch.device) -> float:
    """The time after all queued work of `device` is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
