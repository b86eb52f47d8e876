"""The decorator `loss`: a function of scores becomes a loss that an experiment can choose."""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import create_model
from torch import Tensor

from turret.training.objectives.contract import LossSettings
from turret.training.objectives.sampled import DrawLossSettings

Function = TypeVar("Function", bound=Callable[..., Tensor])
_SETTINGS: dict[Callable[..., Tensor], type[LossSettings]] = {}
# An argument that the catalog gives and not the experiment.
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
            name for name, one in signature(function).parameters.items() if one.kind is Parameter.KEYWORD_ONLY
        ]
        given = [name for name in names if name != _ITEM_COUNT]

        class Built(base):  # type: ignore[misc] # a class of the caller's
            """Settings that build the function."""

            def build(self, item_count: int = 0) -> Callable[..., Tensor]:
                """The function with these settings, for a catalog of N = `item_count`."""
                settings = {name: getattr(self, name) for name in given}
                if _ITEM_COUNT in names:
                    settings[_ITEM_COUNT] = item_count
                return partial(function, **settings) if settings else function

            def pair_loss(self) -> Callable[..., Tensor] | None:
                return pairs and partial(pairs, **{name: getattr(self, name) for name in given})

        for name, value in traits.items():
            getattr(base, name)  # refuses another name
            setattr(Built, name, value)
        fields: dict[str, Any] = {"kind": (Literal[kind], kind)} | {
            name: (annotations[name], signature(function).parameters[name].default) for name in given
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
