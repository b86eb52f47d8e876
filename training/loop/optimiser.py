"""The optimiser: AdamW, and lazy Adam for the rows of large tables."""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from turret.tower.kernels.compiled import compiled, compiled_sum, in_parts, prefetch
from turret.training.config.experiment import TrainingConfig
from turret.training.errors import TrainingError

Table = NDArray[np.float32]
Rows = NDArray[np.int64]


# Rows are prefetched so many rows ahead.
AHEAD = 4


class Step(NamedTuple):
    """Parameters of a step: decay rates of both moments, bias-corrected learning rate, epsilon."""

    first: np.float32
    second: np.float32
    size: np.float32
    epsilon: np.float32


@compiled
def prefetch_row(row: int, index: int, gradient: Table, table: Table, moments: Table) -> None:
    """Prefetch a row of the table, its moments and its gradient at `index`."""
    for byte in range(0, 4 * table.shape[1], 64):
        prefetch(table, row, byte)
        prefetch(gradient, index, byte)
    for byte in range(0, 8 * table.shape[1], 64):
        prefetch(moments, row, byte)


@compiled_sum
def update_row(row: int, slope: NDArray[np.float32], table: Table, moments: Table, step: Step) -> None:
    """Adam's update of one row by its gradient [D]."""
    one = np.float32(1.0)
    for i in range(len(slope)):
        mean = step.first * moments[row, 0, i] + (one - step.first) * slope[i]
        square = step.second * moments[row, 1, i] + (one - step.second) * slope[i] * slope[i]
        moments[row, 0, i], moments[row, 1, i] = mean, square
        table[row, i] -= step.size * mean / (np.sqrt(square) + step.epsilon)


@compiled
def update_rows(
    rows: Rows,
    order: Rows,
    groups: Rows,
    gradient: Table,
    table: Table,
    moments: Table,
    step: Step,
    start: int,
    stop: int,
) -> None:
    """Update the rows of the groups from `start` to `stop`.

    Group g has the indices `order[groups[g]:groups[g + 1]]` into `rows` [n] and their gradient [n, D], which
    all belong to the same row.
    """
    total = np.empty(table.shape[1], np.float32)
    for group in range(start, stop):
        if group + AHEAD < stop:
            ahead = order[groups[group + AHEAD]]
            prefetch_row(rows[ahead], ahead, gradient, table, moments)
        total[:] = gradient[order[groups[group]]]
        for index in order[groups[group] + 1 : groups[group + 1]]:
            for i in range(len(total)):
                total[i] += gradient[index, i]
        update_row(rows[order[groups[group]]], total, table, moments, step)


class RowAdam(Optimizer):
    """The update of `torch.optim.SparseAdam` in one pass over the rows with a gradient.

    Rows without a gradient and their moments don't change. For float32 tables [N, D] on the CPU with sparse
    gradients, as of `nn.Embedding(..., sparse=True)`. With it, a whole step of `youtubednn` over a million
    items takes 8.3 microseconds an example, with `SparseAdam` 9.9 (batches of 1,024, one thread, in turns).
    """

    def __init__(self, tables: Any, lr: float) -> None:
        super().__init__(tables, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override] # nothing computes losses here
        """Update all tables with a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, group)

    def _update(self, table: Tensor, group: dict[str, Any]) -> None:
        assert table.grad is not None
        assert table.grad.is_sparse, "RowAdam: the gradient is dense; use nn.Embedding(..., sparse=True)"
        state = self.state[table]
        if not state:
            # NumPy requests huge pages and both moments of a row are adjacent: random rows are read faster.
            state["step"] = torch.zeros((), dtype=torch.int64)
            state["moments"] = torch.from_numpy(np.zeros((len(table), 2, table.shape[1]), np.float32))
        state["step"] += 1
        rows, gradient = table.grad._indices()[0].numpy(), table.grad._values().contiguous().numpy()
        if not len(rows):
            return
        order = np.argsort(rows)
        groups = np.flatnonzero(np.diff(rows[order], prepend=-1, append=-1))
        arrays = (gradient, table.detach().numpy(), state["moments"].numpy())
        work = partial(update_rows, rows, order, groups, *arrays, self._step(group, int(state["step"])))
        in_parts(len(groups) - 1, work, least=256)

    def _step(self, group: dict[str, Any], steps: int) -> Step:
        first, second = group["betas"]
        size = group["lr"] * (1.0 - second**steps) ** 0.5 / (1.0 - first**steps)
        return Step(np.float32(first), np.float32(second), np.float32(size), np.float32(group["eps"]))


# Tables with at least this many rows are updated by row. AdamW reads and writes a whole table and its
# moments in each step, 28 bytes a number, which takes longer than the rest of a step from this size on.
LARGE = 65_536

_ROWS = "rows."


def lazy_tables(
    model: nn.Module, settings: TrainingConfig, is_sampled: bool
) -> tuple[list[nn.Embedding], str]:
    """The tables that are updated by row, and a line for the run, empty where no table is large.

    Raises TrainingError where `training.tables` is lazy and the tables can't be updated by row.
    """
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
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
    """AdamW (Loshchilov & Hutter 2019) for all parameters except `tables`, which `RowAdam` updates.

    Table rows without a gradient don't change, and table rows have no weight decay.
    """

    def __init__(
        self, modules: list[nn.Module], tables: list[nn.Embedding], learning_rate: float, weight_decay: float
    ) -> None:
        for table in tables:
            table.sparse = True
        table_ids = {id(table.weight) for table in tables}
        self.parameters = [parameter for module in modules for parameter in module.parameters()]
        dense = [parameter for parameter in self.parameters if id(parameter) not in table_ids]
        # The keys are prefixes of moments in a checkpoint; a tower may have no parameters but its table's.
        self.optimisers: dict[str, torch.optim.Optimizer] = {}
        if dense:
            self.optimisers[""] = torch.optim.AdamW(
                dense, lr=learning_rate, weight_decay=weight_decay, fused=True
            )
        if tables:
            self.optimisers[_ROWS] = RowAdam([table.weight for table in tables], lr=learning_rate)
        self.learning_rate = learning_rate

    def clip(self, max_norm: float) -> None:
        """Scale the gradient of all parameters down to the norm `max_norm` if it is larger."""
        gradients: list[Tensor] = []
        for parameter in self.parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                # This sums the gradients of repeated rows.
                parameter.grad = parameter.grad.coalesce()
                gradients.append(parameter.grad._values())
            elif parameter.grad is not None:
                gradients.append(parameter.grad)
        squares = torch.stack([gradient.square().sum() for gradient in gradients])
        factor = (max_norm / (squares.sum().sqrt() + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor)

    def step(self, rate: float) -> None:
        """Update all parameters that have a gradient, with this learning rate."""
        self.learning_rate = rate
        for optimiser in self.optimisers.values():
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()

    def tensors(self) -> dict[str, Tensor]:
        """All moments for a checkpoint, by index of the parameter and name of the moment."""
        return {
            f"{prefix}{index}.{name}": tensor
            for prefix, optimiser in self.optimisers.items()
            for index, moments in optimiser.state_dict()["state"].items()
            for name, tensor in moments.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the result of `tensors`; settings such as the learning rate stay."""
        for prefix, optimiser in self.optimisers.items():
            state: dict[int, dict[str, Tensor]] = {}
            for key, tensor in tensors.items():
                if key.startswith(_ROWS) == (prefix == _ROWS):
                    index, name = key.removeprefix(prefix).split(".", 1)
                    state.setdefault(int(index), {})[name] = tensor
            optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


def learning_rate_factor(step: int, steps: int, warmup: float, decay: float) -> float:
    """The factor of the experiment's learning rate, in (0, 1], at `step`, from 0, of all `steps` of a run.

    The factor rises to 1 in the share `warmup` of the steps, and falls by a half cosine to `decay`.
    """
    rise = warmup * steps
    if step < rise:
        return (step + 1) / (rise + 1)
    progress = min(1.0, (step - rise) / max(1.0, steps - rise))
    return decay + (1.0 - decay) * 0.5 * (1.0 + math.cos(math.pi * progress))
