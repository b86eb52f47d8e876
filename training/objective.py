"""From a batch to a loss: vectors, draw, scores, temperature, correction, mask, loss, mean."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from data.sequences import PreparedData
from tower.gather import gather_rows
from tower.model import TwoTowers
from tower.scoring import cross_scores, paired_scores
from training.batches import Batch, target_counts
from training.config import InBatchConfig, ObjectiveConfig, UniformConfig, UnigramConfig
from training.known import known_candidates
from training.losses import SAMPLED_LOSSES
from training.losses.contract import Loss
from training.losses.full_softmax import full_softmax
from training.randomness import stream
from training.samplers.contract import DrawContext, Sampler
from training.samplers.frequency import Frequency, KnownFrequency, StreamingFrequency
from training.samplers.in_batch import InBatchSampler
from training.samplers.static import uniform_sampler, unigram_sampler


@dataclass(frozen=True)
class StepLoss:
    """The weighted mean loss of a batch (a scalar), and how many candidates were masked (a scalar)."""

    loss: Tensor
    masked: Tensor


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """The mean of per-example losses [B] under example weights [B]."""
    return (losses * weights).sum() / weights.sum()


class FullSoftmaxObjective:
    """Every item of the catalogue is scored in every step."""

    sampler: Sampler | None = None

    def __init__(self, mask_known: bool) -> None:
        self.mask_known = mask_known

    def __call__(self, model: TwoTowers, batch: Batch, random: np.random.Generator) -> StepLoss:
        """The batch's loss; nothing is drawn."""
        items = model.catalogue_vectors()
        users = model.user_vectors(batch.histories, gather_rows(items, batch.histories.rows))
        scores = cross_scores(users, items, model.config.scoring.temperature)
        masked = batch.targets.new_zeros(())
        if self.mask_known:
            known = known_candidates(batch, torch.arange(len(items), device=items.device))
            known[torch.arange(len(known)), batch.targets] = False
            scores = scores.masked_fill(known, float("-inf"))
            masked = known.sum()
        losses = full_softmax(scores, batch.targets)
        return StepLoss(weighted_mean(losses, batch.weights), masked)


class SampledObjective:
    """The positives and the candidates of one draw are scored."""

    def __init__(self, loss: Loss, sampler: Sampler, mask_known: bool) -> None:
        self.loss = loss
        self.sampler: Sampler | None = sampler
        self.mask_known = mask_known
        self._draw = sampler.draw

    def __call__(self, model: TwoTowers, batch: Batch, random: np.random.Generator) -> StepLoss:
        """The batch's loss over candidates drawn with `random`."""
        rows, targets = batch.histories.rows, batch.targets
        vectors = model.item_vectors(torch.cat([rows, targets]))
        read, positives = vectors[: len(rows)], vectors[len(rows) :]
        users = model.user_vectors(batch.histories, read)
        draw = self._draw(users.detach(), targets, DrawContext(random))
        if self.mask_known:
            draw = replace(draw, valid=draw.valid & ~known_candidates(batch, draw.ids))
        temperature = model.config.scoring.temperature
        losses = self.loss(
            paired_scores(users, positives, temperature),
            cross_scores(users, model.item_vectors(draw.ids), temperature),
            draw,
        )
        return StepLoss(weighted_mean(losses, batch.weights), draw.masked_count)


Objective = FullSoftmaxObjective | SampledObjective


def build_objective(
    config: ObjectiveConfig, data: PreparedData, seed: int, device: torch.device
) -> Objective:
    """The objective that an experiment asks for, on the training part of `data`."""
    if config.sampler is None:
        return FullSoftmaxObjective(config.mask_known)
    sampler = _build_sampler(config.sampler, data, seed, device)
    return SampledObjective(SAMPLED_LOSSES[config.loss], sampler, config.mask_known)


def _build_sampler(
    config: UniformConfig | UnigramConfig | InBatchConfig,
    data: PreparedData,
    seed: int,
    device: torch.device,
) -> Sampler:
    item_count = len(data.catalogue)
    if isinstance(config, UniformConfig):
        return uniform_sampler(item_count, config.negatives, device)
    if isinstance(config, UnigramConfig):
        return unigram_sampler(data.item_counts(), config.alpha, config.negatives, device)
    return InBatchSampler(_build_frequency(config, data, seed, device), item_count)


def _build_frequency(config: InBatchConfig, data: PreparedData, seed: int, device: torch.device) -> Frequency:
    if config.frequencies == "known":
        return KnownFrequency(target_counts(data), device)
    # Four times as many buckets as items keep collisions of both hash functions rare.
    buckets = 4 * len(data.catalogue)
    random = stream(seed, "streaming frequency", 0)
    return StreamingFrequency(buckets, config.streaming_hashes, config.streaming_rate, random)
