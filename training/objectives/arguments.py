"""Checks of the arguments of an `Estimator`: an error names the argument, and a value that would fit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.objectives.contract import LossSettings
from turret.training.objectives.sampled import described
from turret.training.samplers.core.settings import Counts, SamplerSettings


@dataclass(frozen=True)
class GivenStatistics:
    """Item counts as the caller gives them."""

    item_count: int
    counts: ArrayLike | None = None
    following: tuple[ArrayLike, ArrayLike] | None = None

    def item_counts(self) -> Counts:
        """How often each item is a positive, int64 [N]. Raises TrainingError without counts."""
        if self.counts is None:
            raise TrainingError("this sampler draws by popularity; give Estimator(counts=...), int64 [N].")
        counts = _array("counts", self.counts)
        if counts.shape != (self.item_count,):
            raise TrainingError(
                f"counts have the shape {counts.shape}; give one for each of the {self.item_count} items."
            )
        if counts.dtype.kind not in "iu" or counts.min() < 0:
            raise TrainingError(
                f"counts are {counts.dtype} from {counts.min()}; give whole numbers of at least 0."
            )
        return counts.astype(np.int64)

    target_counts = positive_counts = item_counts

    def bigram_counts(self) -> tuple[Counts, Counts]:
        """Pairs and their counts, as in `ItemStatistics`. Raises TrainingError without pairs."""
        if self.following is None:
            raise TrainingError("this sampler draws by pairs; give Estimator(following=(rows, next)).")
        if not isinstance(self.following, tuple | list) or len(self.following) != 2:
            raise TrainingError("following is no pair; give (rows, next), two int64 [M].")
        first, second = (_array("following", rows) for rows in self.following)
        if first.dtype.kind not in "iu" or second.dtype.kind not in "iu":
            raise TrainingError(f"following has {first.dtype} and {second.dtype}; give two int64 [M].")
        first, second = first.astype(np.int64), second.astype(np.int64)
        lowest, highest = (of(np.append(first, second), initial=0) for of in (np.min, np.max))
        if first.shape != second.shape or first.ndim != 1 or lowest < 0 or highest >= self.item_count:
            raise TrainingError(
                f"following has the shapes {first.shape} and {second.shape} and rows from {lowest} to "
                f"{highest}; give two [M] of rows 0 to {self.item_count - 1}."
            )
        pairs, counts = np.unique(first * self.item_count + second, return_counts=True)
        return pairs, counts.astype(np.int64)


def _array(name: str, values: ArrayLike) -> NDArray[Any]:
    """An array of numbers. Raises TrainingError for lists of several lengths and for other values."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # NumPy and torch raise these
        raise TrainingError(f"{name} can't be an array ({error}); give whole numbers.") from None
    if array.dtype.kind not in "iufb":
        raise TrainingError(f"{name} holds {array.dtype}; give whole numbers.")
    return array


def check_tensors(**values: object) -> None:
    """Raise TrainingError for an argument that is neither a tensor nor left out."""
    for name, value in values.items():
        if value is not None and not isinstance(value, Tensor):
            raise TrainingError(f"{name} is a {type(value).__name__}; give a tensor.")


def check_settings(loss: object, sampler: object) -> None:
    """Raise TrainingError for a loss or a sampler that is not its settings, such as its name."""
    if not isinstance(loss, LossSettings):
        raise TrainingError(f"the loss is {loss!r}; give settings, such as losses.sampled_softmax().")
    if not isinstance(sampler, SamplerSettings | None):
        raise TrainingError(f"the sampler is {sampler!r}; give settings, such as samplers.uniform().")


def check_shapes(users: Tensor, positives: Tensor, targets: Tensor | None, negatives: Tensor | None) -> None:
    """Raise TrainingError for tensors whose numbers of examples differ."""
    if users.dim() != 2 or positives.dim() not in (1, 2) or len(positives) != len(users):
        raise TrainingError(
            f"users of shape {tuple(users.shape)} and positives of shape {tuple(positives.shape)} don't fit "
            "each other; give [B, D] and [B], or [B, T] for several positives of each."
        )
    if targets is not None and positives.dim() == 1:
        raise TrainingError("targets are the probabilities of several positives; give positives [B, T].")
    if negatives is not None and (negatives.dim() != 2 or len(negatives) != len(users)):
        raise TrainingError(
            f"users of shape {tuple(users.shape)} and negatives of shape {tuple(negatives.shape)} don't fit "
            "each other; give [B, D] and [B, K]."
        )


def check_rows(name: str, rows: Tensor, shape: tuple[int, ...], end: int, first: int = 0) -> None:
    """Raise TrainingError unless `rows` are int64 of this shape, from `first` to `end` - 1."""
    check_tensors(**{name: rows})
    if rows.dtype != torch.int64 or rows.shape != shape:
        raise TrainingError(f"{name} is {described(rows)}; give an int64 tensor of the shape {shape}.")
    outside = (rows < first) | (rows >= end)
    if outside.any():
        raise TrainingError(f"{name} has the row {int(rows[outside][0])}; give rows {first} to {end - 1}.")


def check_propensities(propensities: Tensor | None, loss: str, is_needed: bool, size: int) -> None:
    """Raise TrainingError for propensities [B] that the loss needs and has not, or can't use."""
    if propensities is None:
        if is_needed:
            raise TrainingError(
                f"losses.{loss} needs propensities, [{size}], those of the logged answers; NaN stands for an "
                "example that no answer led to."
            )
        return
    check_tensors(propensities=propensities)
    if not is_needed:
        raise TrainingError(f"losses.{loss} reads no propensities; use losses.top_k_off_policy, or weights.")
    if propensities.shape != (size,) or not propensities.is_floating_point():
        raise TrainingError(
            f"propensities is {described(propensities)}; give one for each of {size} examples."
        )
    if ((propensities <= 0) | (propensities > 1)).any():
        raise TrainingError(
            "propensities has a number outside of 0 to 1; give probabilities above 0, or NaN."
        )


def weights_of(weights: Tensor | None, users: Tensor) -> Tensor:
    """The weights [B] in the type of the user vectors; ones where there are none."""
    if weights is None:
        return users.new_ones(len(users))
    check_tensors(weights=weights)
    if weights.shape != users.shape[:1]:
        raise TrainingError(f"weights is {described(weights)}; give one for each of {len(users)} examples.")
    if not ((weights >= 0) & weights.isfinite()).all():
        raise TrainingError("weights has a negative, infinite or missing number; give numbers of at least 0.")
    return weights.to(users.dtype)
