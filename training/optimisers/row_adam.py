"""Adam for tables with sparse gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from turret.tower.kernels.compiled import compiled, compiled_sum, prefetch
from turret.tower.kernels.threads import in_parts

Table = NDArray[np.float32]
Rows = NDArray[np.int64]


# Rows to prefetch ahead.
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

    Group g has the indices `order[groups[g]:groups[g + 1]]` into `rows` [n] and their gradient [n, D], all of
    the same row.
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
    gradients, as of `nn.Embedding(..., sparse=True)`.
    """

    def __init__(
        self, tables: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        super().__init__(tables, {"lr": lr, "betas": betas, "eps": eps})

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all tables with a gradient; `closure`, if given, computes the loss and its gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, group)
        return loss

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
