"""AdamW, and row-wise Adam for large tables; the learning-rate schedule."""

import math

import torch
from torch import Tensor, nn

from turret.tower.layers.tables import Table
from turret.training.distributed.world import ALONE, World
from turret.training.optimisers.row_adam import RowAdam

# Tables with at least this many rows are updated by row. AdamW reads and writes a whole table and its
# moments in each step, 28 bytes a number, which takes longer than the rest of a step from this size on.
LARGE = 65_536

_ROWS = "rows."


def large_tables(model: nn.Module) -> list[nn.Embedding]:
    """The tables of a model that are large enough for updates by row."""
    tables = (module for module in model.modules() if isinstance(module, nn.Embedding))
    return [table for table in tables if table.num_embeddings >= LARGE and table.weight.device.type == "cpu"]


class Optimiser:
    """AdamW (Loshchilov & Hutter 2019) for all parameters except `tables`, which `RowAdam` updates.

    Table rows without a gradient don't change, and table rows have no weight decay.
    """

    def __init__(
        self,
        modules: list[nn.Module],
        tables: list[nn.Embedding],
        learning_rate: float,
        weight_decay: float,
        world: World = ALONE,
    ) -> None:
        self.world = world
        self.split = {
            id(module.weight)
            for parent in modules
            for module in parent.modules()
            if isinstance(module, Table) and module.is_split
        }
        for table in tables:
            table.sparse = True
        table_ids = {id(table.weight) for table in tables}
        self.parameters = [parameter for module in modules for parameter in module.parameters()]
        dense = [parameter for parameter in self.parameters if id(parameter) not in table_ids]
        # A tower may have no other parameters than its table.
        self.dense = (
            torch.optim.AdamW(dense, lr=learning_rate, weight_decay=weight_decay, fused=True)
            if dense
            else None
        )
        self.rows = RowAdam([table.weight for table in tables], lr=learning_rate) if tables else None
        self.learning_rate = learning_rate

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.learning_rate = rate
        for optimiser in self._all():
            for group in optimiser.param_groups:
                group["lr"] = rate

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for optimiser in self._all():
            optimiser.zero_grad()

    def clip(self, max_norm: float) -> None:
        """Scale the gradient of all parameters down to the norm `max_norm` if it is larger."""
        squares: list[Tensor] = []
        own_squares: list[Tensor] = []
        for parameter in self.parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                # Sums the gradients of repeated rows.
                parameter.grad = parameter.grad.coalesce()
            if parameter.grad is not None:
                kept = own_squares if id(parameter) in self.split else squares
                kept.append(_values(parameter.grad).square().sum())
        if self.split:
            # The other processes have the gradients of the other rows.
            squares.append(torch.tensor(self.world.sums([float(square) for square in own_squares])).sum())
        factor = (max_norm / (torch.stack(squares).sum().sqrt() + 1e-6)).clamp(max=1.0)
        for parameter in self.parameters:
            if parameter.grad is not None:
                _values(parameter.grad).mul_(factor)

    def step(self) -> None:
        """Update all parameters that have a gradient."""
        for optimiser in self._all():
            optimiser.step()

    def tensors(self) -> dict[str, Tensor]:
        """All moments for a checkpoint, by index of the parameter and name of the moment."""
        return {
            f"{_ROWS if optimiser is self.rows else ''}{index}.{name}": tensor
            for optimiser in self._all()
            for index, moments in optimiser.state_dict()["state"].items()
            for name, tensor in moments.items()
        }

    def row_names(self, parameter: nn.Parameter) -> list[str]:
        """The names in `tensors` of the moments that have a row for each row of `parameter`."""
        for optimiser in self._all():
            prefix = _ROWS if optimiser is self.rows else ""
            for index, one in enumerate(optimiser.param_groups[0]["params"]):
                if one is parameter:
                    names = ("moments",) if prefix else ("exp_avg", "exp_avg_sq")
                    return [f"{prefix}{index}.{name}" for name in names]
        return []

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the result of `tensors`; settings such as the learning rate stay."""
        for optimiser in self._all():
            state: dict[int, dict[str, Tensor]] = {}
            for key, tensor in tensors.items():
                if key.startswith(_ROWS) == (optimiser is self.rows):
                    index, name = key.removeprefix(_ROWS).split(".", 1)
                    state.setdefault(int(index), {})[name] = tensor
            optimiser.load_state_dict({**optimiser.state_dict(), "state": state})

    def _all(self) -> list[torch.optim.Optimizer]:
        return [optimiser for optimiser in (self.dense, self.rows) if optimiser is not None]


def _values(gradient: Tensor) -> Tensor:
    return gradient._values() if gradient.is_sparse else gradient


def learning_rate_factor(step: int, steps: int, warmup: float, decay: float) -> float:
    """Linear warm-up, then a half cosine down to `decay`.

    Args:
        step: the current step, from 0.
        steps: the number of steps of the whole run.
        warmup: the share of `steps` in which the factor rises to 1.
        decay: the factor at the end.

    Returns:
        The factor of the experiment's learning rate, in (0, 1].
    """
    rise = warmup * steps
    if step < rise:
        return (step + 1) / (rise + 1)
    progress = min(1.0, (step - rise) / max(1.0, steps - rise))
    return decay + (1.0 - decay) * 0.5 * (1.0 + math.cos(math.pi * progress))
