"""The decorator `loss`, which makes a function of scores a loss of experiments, and terms of such losses."""

import math
from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any, Literal, TypeVar, get_type_hints

import torch
from pydantic import create_model
from torch import Tensor

from turret.training.objectives.contract import LossSettings
from turret.training.objectives.sampled import DrawLossSettings
from turret.training.samplers.core.contract import Draw

Function = TypeVar("Function", bound=Callable[..., Tensor])
_SETTINGS: dict[Callable[..., Tensor], type[LossSettings]] = {}
# The catalog gives this argument, not the experiment.
_ITEM_COUNT = "item_count"


def loss(
    kind: str,
    base: type[Any] = DrawLossSettings,
    pairs: Callable[..., Tensor] | None = None,
    **traits: bool | str,
) -> Callable[[Function], Function]:
    """Name a function of scores `kind`; its keyword arguments, with their defaults, are the settings.

    Args:
        kind: the value of `objective.loss.kind`.
        base: `DrawLossSettings` for `objectives.contract.Loss`, `CatalogLossSettings` for `CatalogLoss`, or a
            subclass with settings of the objective.
        pairs: the loss of labelled pairs with the same settings, if there is one.
        traits: the class attributes of `LossSettings` that differ, such as `needs_probabilities`.
    """

    def register(function: Function) -> Function:
        annotations = get_type_hints(function, include_extras=True)
        names = [
            name
            for name, parameter in signature(function).parameters.items()
            if parameter.kind is Parameter.KEYWORD_ONLY
        ]
        setting_names = [name for name in names if name != _ITEM_COUNT]

        class Built(base):  # type: ignore[misc] # a class of the caller's
            """Settings that build the function."""

            def build(self, item_count: int = 0) -> Callable[..., Tensor]:
                """The function with these settings, for a catalog of N = `item_count`."""
                settings = {name: getattr(self, name) for name in setting_names}
                if _ITEM_COUNT in names:
                    settings[_ITEM_COUNT] = item_count
                return partial(function, **settings) if settings else function

            def pair_loss(self) -> Callable[..., Tensor] | None:
                return pairs and partial(pairs, **{name: getattr(self, name) for name in setting_names})

        for name, value in traits.items():
            getattr(base, name)  # raises for an unknown trait
            setattr(Built, name, value)
        fields: dict[str, Any] = {"kind": (Literal[kind], kind)} | {
            name: (annotations[name], signature(function).parameters[name].default) for name in setting_names
        }
        _SETTINGS[function] = create_model(
            kind,
            __base__=Built,
            __module__=function.__module__,
            __doc__=(function.__doc__ or kind).splitlines()[0],
            **fields,
        )
        return function

    return register


def settings_of(function: Callable[..., Tensor]) -> type[Any]:
    """The settings class of a function that `loss` has named."""
    return _SETTINGS[function]


def decorated() -> tuple[type[LossSettings], ...]:
    """The settings classes of all functions that were named so far."""
    return tuple(_SETTINGS.values())


def minus_log_count(drawn: Tensor, draw: Draw) -> Tensor:
    """The logQ correction: tempered scores [B, K] less the log of each candidate's expected count."""
    return drawn - draw.log_count


def masked(corrected: Tensor, draw: Draw) -> Tensor:
    """Scores [B, K] with minus infinity in place of masked candidates.

    A masked candidate has no softmax mass, a sigmoid or hinge loss of zero, and a gradient of exactly zero
    for any score.
    """
    return torch.where(draw.valid, corrected, float("-inf"))


def log_sum_exp(scores: Tensor) -> Tensor:
    """log sum_j exp s_j over masked scores [B, K]: [B], minus infinity where no candidate is left.

    An example without candidates gets a gradient of zero instead of the nan of `torch.logsumexp`. The
    exponentials are stored for the gradient, which becomes faster too.
    """
    if not scores.shape[1]:
        return scores.sum(dim=1) - math.inf
    highest = scores.detach().amax(dim=1)
    empty = highest == -math.inf
    total = (scores - highest.masked_fill(empty, 0.0).unsqueeze(1)).exp().sum(dim=1)
    return (total + empty).log() + highest


def mean_of_valid(terms: Tensor, draw: Draw) -> Tensor:
    """The mean of terms [B, K] over each example's valid candidates: [B], zero where there are none.

    The terms of masked candidates must be zero, as those of scores that went through `masked` are.
    """
    return terms.sum(dim=1) / valid_count(draw).clamp(min=1)


def valid_count(draw: Draw) -> Tensor:
    """How many candidates of each example are valid: int32 [B]."""
    # Into int32 torch sums booleans four times as fast as into its default.
    return draw.valid.sum(dim=1, dtype=torch.int32)
