"""An exponential average of the weights over the steps of a training."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# More updates than this in an epoch change the average little, and each reads all weights.
UPDATES_AN_EPOCH = 32


class WeightAverage:
    """The average of the parameters of `modules`, which weighs a moment `epochs` epochs ago by 1 / e.

    Averages of the iterates end nearer to the optimum than the last one (Polyak & Juditsky 1992), so the
    average is what is validated, stored and served. Its first values are plain means, which don't depend on
    the initialisation of the average. `steps_per_epoch` are those of an optimiser.
    """

    def __init__(self, modules: list[nn.Module], epochs: float, steps_per_epoch: int) -> None:
        self._parameters = [parameter for module in modules for parameter in module.parameters()]
        self._averages: list[Tensor] = []
        self._steps = steps_per_epoch
        self._updates = min(steps_per_epoch, UPDATES_AN_EPOCH)
        self._least = 1.0 - math.exp(-1.0 / (epochs * self._updates))

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Add the weights after `step` steps in all, where the average is due."""
        count = step * self._updates // self._steps
        if count == (step - 1) * self._updates // self._steps:
            return
        if not self._averages:
            self._averages = [parameter.detach().clone() for parameter in self._parameters]
            return
        rate = max(self._least, 1.0 / count)
        for average, parameter in zip(self._averages, self._parameters, strict=True):
            average.lerp_(parameter.detach(), rate)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the modules the averages as parameters within the block; before any update, their own."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def state(self) -> dict[str, Tensor]:
        """The averages for a checkpoint, by the index of the parameter."""
        return {str(index): average for index, average in enumerate(self._averages)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the result of `state`. Raises KeyError for the averages of other modules."""
        indices = range(len(self._parameters) if tensors else 0)
        self._averages = [
            tensors[str(index)].to(self._parameters[index].device, copy=True) for index in indices
        ]

    def _exchange(self) -> None:
        for index, average in enumerate(self._averages):
            parameter = self._parameters[index]
            self._averages[index], parameter.data = parameter.data, average
