"""Every sampler, by the settings that an experiment gives it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from data.sequences import PreparedData
from tower.config import ScoringConfig
from training.batches import target_counts
from training.randomness import stream
from training.samplers.config import (
    CrossBatchConfig,
    FourierFeaturesConfig,
    FrequencySettings,
    InBatchConfig,
    MinedConfig,
    MixedConfig,
    PositiveFeaturesConfig,
    QuadraticConfig,
    SamplerSettings,
    UniformConfig,
    UnigramConfig,
)
from training.samplers.contract import CountingSampler, Sampler
from training.samplers.cross_batch import CrossBatchSampler
from training.samplers.fourier_features import FourierFeaturesSampler
from training.samplers.frequency import Frequency
from training.samplers.in_batch import InBatchSampler
from training.samplers.known_frequency import KnownFrequency
from training.samplers.mined import MinedSampler
from training.samplers.mixed import MixedSampler
from training.samplers.positive_features import PositiveFeaturesSampler
from training.samplers.snapshot import Snapshot
from training.samplers.static import uniform_sampler, unigram_sampler
from training.samplers.streaming_frequency import StreamingFrequency


@dataclass(frozen=True)
class Setting:
    """What a sampler is built for: the data, how vectors are scored, the run's seed and its device."""

    data: PreparedData
    scoring: ScoringConfig
    seed: int
    device: torch.device

    @property
    def item_count(self) -> int:
        """N, the size of the catalogue."""
        return len(self.data.catalogue)


def build_sampler(config: SamplerSettings, setting: Setting) -> Sampler:
    """The sampler that `config` asks for. Raises TrainingError where the data has nothing to draw by."""
    return _SAMPLERS[type(config)](config, setting)


def _uniform(config: UniformConfig, setting: Setting) -> Sampler:
    return uniform_sampler(setting.item_count, config.negatives, setting.device)


def _unigram(config: UnigramConfig, setting: Setting) -> Sampler:
    return unigram_sampler(setting.data.item_counts(), config.alpha, config.negatives, setting.device)


def _in_batch(config: InBatchConfig, setting: Setting) -> Sampler:
    return InBatchSampler(_frequency(config, setting), setting.item_count, config.unique)


def _cross_batch(config: CrossBatchConfig, setting: Setting) -> Sampler:
    frequency = _frequency(config, setting)
    return CrossBatchSampler(frequency, setting.item_count, config.batches, setting.device)


def _mined(config: MinedConfig, setting: Setting) -> Sampler:
    snapshot = Snapshot(setting.item_count, config.refresh_every, setting.device)
    return MinedSampler(snapshot, config.negatives, setting.scoring.absolute)


def _mixed(config: MixedConfig, setting: Setting) -> Sampler:
    parts = [build_sampler(part, setting) for part in config.parts]
    # Which kinds can be parts stands with the settings; each of them can count any item.
    return MixedSampler(cast(list[CountingSampler], parts))


def _frequency(config: FrequencySettings, setting: Setting) -> Frequency:
    if config.frequencies != "streaming":
        smoothing = config.smoothing if config.frequencies == "smoothed" else 0.0
        return KnownFrequency(target_counts(setting.data), setting.device, smoothing)
    # Four times as many buckets as items keep collisions of both hash functions rare.
    buckets = 4 * setting.item_count
    random = stream(setting.seed, "streaming frequency", 0)
    return StreamingFrequency(buckets, config.streaming_hashes, config.streaming_rate, random)


def _positive_features(config: PositiveFeaturesConfig, setting: Setting) -> Sampler:
    # Sharper than the softmax itself, the kernel would only be harder to estimate.
    sharpness = min(config.sharpness, 1.0 / setting.scoring.temperature)
    return PositiveFeaturesSampler(
        setting.item_count,
        config.negatives,
        config.features,
        sharpness,
        config.refresh_every,
        stream(setting.seed, "positive features", 0),
    )


def _fourier_features(config: FourierFeaturesConfig, setting: Setting) -> Sampler:
    snapshot = Snapshot(setting.item_count, config.refresh_every, setting.device)
    random = stream(setting.seed, "fourier features", 0)
    return FourierFeaturesSampler(config.negatives, config.features, config.sharpness, snapshot, random)


def _quadratic(config: QuadraticConfig, setting: Setting) -> Sampler:
    # numba takes a second to load, which only this sampler should cost.
    from training.samplers.quadratic import BatchQuadraticSampler, QuadraticSampler

    kind = BatchQuadraticSampler if config.per == "batch" else QuadraticSampler
    return kind(
        setting.item_count,
        config.negatives,
        config.alpha,
        config.refresh_every,
        setting.device,
        config.exclude_positive,
    )


_SAMPLERS: dict[type[SamplerSettings], Callable[[Any, Setting], Sampler]] = {
    UniformConfig: _uniform,
    UnigramConfig: _unigram,
    InBatchConfig: _in_batch,
    CrossBatchConfig: _cross_batch,
    MinedConfig: _mined,
    MixedConfig: _mixed,
    PositiveFeaturesConfig: _positive_features,
    FourierFeaturesConfig: _fourier_features,
    QuadraticConfig: _quadratic,
}
