"""Every loss, by the settings that an experiment gives it."""

from collections.abc import Callable
from typing import Any

from training.losses.config import (
    CorrectedSampledSoftmaxConfig,
    FullSoftmaxConfig,
    LossSettings,
    SampledSoftmaxConfig,
)
from training.losses.contract import CatalogueLoss, Loss
from training.losses.full_softmax import full_softmax
from training.losses.sampled_softmax import sampled_softmax, sampled_softmax_corrected

_LOSSES: dict[type[LossSettings], Callable[[Any, int], Loss]] = {
    SampledSoftmaxConfig: lambda config, item_count: sampled_softmax,
    CorrectedSampledSoftmaxConfig: lambda config, item_count: sampled_softmax_corrected,
}

_CATALOGUE_LOSSES: dict[type[LossSettings], Callable[[Any], CatalogueLoss]] = {
    FullSoftmaxConfig: lambda config: full_softmax,
}


def build_loss(config: LossSettings, item_count: int) -> Loss:
    """The loss over a draw that `config` asks for, on a catalogue of N = `item_count`."""
    return _LOSSES[type(config)](config, item_count)


def build_catalogue_loss(config: LossSettings) -> CatalogueLoss:
    """The loss over the whole catalogue that `config` asks for."""
    return _CATALOGUE_LOSSES[type(config)](config)
