"""The optimiser: AdamW, and lazy Adam for the rows of large tables."""

import math

import torch
from torch import Tensor, nn

from turret.training.config.experiment import TrainingConfig
from turret.training.errors import TrainingError

# Tables with at least this many rows are updated by row. AdamW reads and writes a whole table and its
# moments in each step, 28 bytes a number, which takes longer than the rest of a step from this size on.
LARGE = 65_536

_ROWS = "rows."


def lazy_tables(
    model: nn.Module, settings: TrainingConfig, is_sampled: bool
) -> tuple[list[nn.Embedding], str]:
    """The tables that are updated by row, and a line for the run, empty where no table is large.

    Raises TrainingError where `training.tables` is lazy and they can't be.
    """
    tables = [one for one in model.modules() if isinstance(one, nn.Embedding)]
    large = [table for table in tables if table.num_embeddings >= LARGE]
    if not large:
        return [], ""
    obstacle = ""
    if settings.weight_decay:
        obstacle = f"training.weight_decay = {settings.weight_decay:g} changes all rows"
    elif not is_sampled:
        obstacle = "the loss is not sampled, so that all rows have a gradient"
    elif large[0].weight.device.type != "cpu":
        obstacle = f"the towers are trained on a GPU (training.device = {settings.device!r})"
    if obstacle and settings.tables == "lazy":
        raise TrainingError(
            f"training.tables = 'lazy': {obstacle}; set training.tables = 'dense', or 'auto'."
        )
    rows = " and ".join(f"{table.num_embeddings:,}" for table in large)
    if obstacle or settings.tables == "dense":
        why = obstacle or "training.tables = 'dense'"
        return [], f"The table of {rows} rows is updated by AdamW, all rows in each step: {why}."
    return large, f"The table of {rows} rows is updated by lazy Adam, only rows of the batch in each step."


class Optimiser:
    """AdamW (Loshchilov & Hutter 2019) for all parameters except `tables`, which `SparseAdam` updates.

    Table rows without a gradient don't change, and table rows have no weight decay.
    """

    def __init__(
        self,
        modules: list[nn.Module],
        tables: list[nn.Embedding],
        learning_rate: float,
        weight_decay: float,
    ) -> None:
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
        weights = [table.weight for table in tables]
        self.rows = torch.optim.SparseAdam(weights, lr=learning_rate) if tables else None
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
        for parameter in self.parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                # Sums the gradients of repeated rows.
                parameter.grad = parameter.grad.coalesce()
            if parameter.grad is not None:
                squares.append(_values(parameter.grad).square().sum())
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
            f"{_ROWS if optimiser is self.rows else ''}{index}.{name}": torch.as_tensor(value)
            for optimiser in self._all()
            for index, moments in optimiser.state_dict()["state"].items()
            for name, value in moments.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the result of `tensors`; settings such as the learning rate stay."""
        for optimiser in self._all():
            state: dict[int, dict[str, Tensor | int]] = {}
            for key, tensor in tensors.items():
                if key.startswith(_ROWS) == (optimiser is self.rows):
                    index, name = key.removeprefix(_ROWS).split(".", 1)
                    # SparseAdam computes its bias corrections in double precision from a plain number.
                    is_count = optimiser is self.rows and name == "step"
                    state.setdefault(int(index), {})[name] = int(tensor) if is_count else tensor
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
