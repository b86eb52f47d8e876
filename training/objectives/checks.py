"""Checks of the results of losses and samplers by type and shape, as packages add some; no value is read."""

import torch
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.draw import Draw

ROW_TYPES = (torch.int64, torch.int32)


def described(value: object) -> str:
    """The type of a value; of a tensor also the shape."""
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of the shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def check_draw(draw: object, sampler: Sampler, size: int) -> None:
    """Raise TrainingError unless the shapes and types of a draw for B = `size` examples fit each other."""
    name = f"objective.sampler: draw of {type(sampler).__name__}"
    if not isinstance(draw, Draw):
        raise TrainingError(f"{name} returned {described(draw)}; return a Draw.")
    ids = draw.ids
    fits = isinstance(ids, Tensor) and ids.dtype in ROW_TYPES and ids.dim() in (1, 2)
    if not fits or (ids.dim() == 2 and len(ids) != size):
        raise TrainingError(f"{name} returned as ids {described(ids)}; return int64 [K] or [{size}, K].")
    drawn = ids.shape[-1]
    _check(name, "log_count", draw.log_count, "float", (tuple(ids.shape), (size, drawn)))
    _check(name, "positive_log_count", draw.positive_log_count, "float", ((size,),))
    _check(name, "valid", draw.valid, "bool", ((size, drawn),))


def _check(name: str, part: str, value: object, kind: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    fits = isinstance(value, Tensor) and tuple(value.shape) in shapes
    if isinstance(value, Tensor):
        fits = fits and (value.dtype == torch.bool if kind == "bool" else value.is_floating_point())
    if not fits:
        raise TrainingError(f"{name} returned as {part} {described(value)}; return a {kind} {shapes[0]}.")
